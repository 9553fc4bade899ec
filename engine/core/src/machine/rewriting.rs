//! Programs that rewrite what they read: one save in each turn, as `unspool.tiled` does.
//!
//! Each turn takes a version away and brings another, so there is never much room, and claims that
//! filled it would leave none for the next save. It is seen from the calls alone: a schedule of an
//! adjoint saves several checkpoints between two restores, or none.

/// Turns that count at most.
const MOST: u32 = 8;
/// Turns from which on the program is taken to rewrite.
const SEEN: u32 = 4;
/// Turns that one with no save, or with several, takes away: a sweep begins and ends with some.
const OTHER: u32 = 2;

/// How often one save came between two restores of late.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Rewriting {
    /// Saves since the last restore.
    saves: u64,
    turns: u32,
}

impl Rewriting {
    /// Hears of a save.
    pub fn saves(&mut self) {
        self.saves += 1;
    }

    /// Hears of a restore.
    pub fn restores(&mut self) {
        self.turns = match core::mem::take(&mut self.saves) {
            1 => (self.turns + 1).min(MOST),
            _ => self.turns.saturating_sub(OTHER),
        };
    }

    /// Whether the program rewrites what it reads.
    pub fn is_seen(&self) -> bool {
        self.turns >= SEEN
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::Rewriting;

    /// What it has seen after each restore; `saves` before each.
    fn seen(saves: &[u64]) -> Vec<bool> {
        let mut rewriting = Rewriting::default();
        let turn = |count: &u64| {
            (0..*count).for_each(|_| rewriting.saves());
            rewriting.restores();
            rewriting.is_seen()
        };
        saves.iter().map(turn).collect()
    }

    #[test]
    fn one_save_in_each_turn_is_rewriting_from_the_fourth_on() {
        assert_eq!(seen(&[1, 1, 1, 1, 1]), [false, false, false, true, true]);
    }

    #[test]
    fn a_forward_and_a_reverse_pass_are_none() {
        assert!(!seen(&[300, 0, 0, 0, 0, 0]).contains(&true));
    }

    #[test]
    fn ranges_that_are_saved_again_before_they_are_reversed_are_none() {
        assert!(!seen(&[6, 4, 0, 0, 1, 0, 3, 0, 0, 1, 0]).contains(&true));
    }

    #[test]
    fn a_sweep_with_halos_is_seen_from_lap_to_lap() {
        let lap = [2, 0, 1, 1, 1, 1, 1, 1, 1, 1];
        assert!(seen(&[lap, lap, lap].concat())[10..].iter().all(|&seen| seen));
    }

    #[test]
    fn what_only_reads_again_is_forgotten() {
        assert_eq!(seen(&[1, 1, 1, 1, 0, 0])[3..], [true, false, false]);
    }
}
