//! What it would cost the reverse sweep to lose each of the kept states, and which costs least.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Placed;

/// The costs of the first few copies, as far as nothing has changed there since they were found.
#[derive(Clone, Debug)]
pub(super) struct Ranking {
    slots: u64,
    /// One for each copy but state 0's.
    ranks: Vec<Rank>,
}

#[derive(Clone, Copy, Debug)]
struct Rank {
    /// What the gaps up to this copy's front gain by one slot more than they would have if a copy
    /// before them went.
    shifted: i128,
    /// The least loss of this copy and those before it, and the place of the first that has it.
    least: (i128, usize),
}

impl Ranking {
    pub fn new(slots: u64) -> Ranking {
        Ranking { slots, ranks: Vec::new() }
    }

    /// The copy at this place goes, or what stays is decided anew from there on.
    pub fn changed(&mut self, place: usize) {
        // The loss of the copy before reaches up to this one; that has rank `place - 2`.
        self.ranks.truncate(place.saturating_sub(2));
    }

    /// The place of the copy to give up, when the working state is state `at`.
    pub fn least(&mut self, kept: &VecDeque<Placed>, at: u64) -> usize {
        // What lies behind the last copy has changed: the working state or a new copy.
        self.ranks.truncate(kept.len().saturating_sub(2));
        let before =
            self.ranks.last().map_or((0, (i128::MAX, 1)), |rank| (rank.shifted, rank.least));
        let (mut shifted, mut least) = before;
        for i in self.ranks.len() + 1..kept.len() {
            let slots = self.slots - i as u64;
            let (start, previous) = (kept[i].step, kept[i - 1].step);
            let stop = kept.get(i + 1).map_or(at, |copy| copy.step);
            // The gap in front gets one slot less than it would if a copy before it went.
            let front = cost(start - previous, slots + 2);
            if !kept[i].stays {
                let apart = front + cost(stop - start, slots + 1);
                let loss = shifted + cost(stop - previous, slots + 1) - apart;
                if loss < least.0 {
                    least = (loss, i);
                }
            }
            shifted += cost(start - previous, slots + 1) - front;
            self.ranks.push(Rank { shifted, least });
        }
        debug_assert_eq!(self.ranks.len() + 1, kept.len());
        least.1
    }
}

/// What [`advances`](crate::revolve::advances) says of a gap, by counting up: gaps take
/// few repetitions.
fn cost(length: u64, slots: u64) -> i128 {
    if slots == 1 {
        return i128::from(length) * (i128::from(length) - 1) / 2;
    }
    let (mut r, mut reach) = (0, 1);
    while reach < u128::from(length) {
        r += 1;
        reach = divided(reach * u128::from(slots + r), r);
    }
    let fewer = divided(reach * u128::from(r), slots + 1);
    i128::from(r) * i128::from(length) - fewer as i128
}

/// Most numbers are small, and one division of small numbers takes a fifth of the time.
fn divided(number: u128, by: u64) -> u128 {
    match u64::try_from(number) {
        Ok(small) => u128::from(small / by),
        Err(_) => number / u128::from(by),
    }
}
