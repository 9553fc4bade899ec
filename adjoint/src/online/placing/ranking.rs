//! The cost to the reverse sweep of losing each of the kept states, and which costs least.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::PlacedState;

/// The costs of the first few copies, as far as nothing has changed there since they were computed.
#[derive(Clone, Debug)]
pub(super) struct Ranking {
    slots: u64,
    /// One rank for each copy but that of state 0.
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

    /// Forgets the ranks that change when the copy at this place is given up, or when it is decided
    /// anew from there on which copies stay.
    pub fn changed(&mut self, place: usize) {
        // The loss of the copy before depends on this one; its rank is at `place - 2`.
        self.ranks.truncate(place.saturating_sub(2));
    }

    /// The place of the copy to give up, when the working state is state `at`.
    pub fn least(&mut self, kept: &VecDeque<PlacedState>, at: u64) -> usize {
        // After the last copy something has changed: the working state or a new copy.
        self.ranks.truncate(kept.len().saturating_sub(2));
        let before =
            self.ranks.last().map_or((0, (i128::MAX, 1)), |rank| (rank.shifted, rank.least));
        let (mut shifted, mut least) = before;
        for i in self.ranks.len() + 1..kept.len() {
            let slots = self.slots - i as u64;
            let (start, previous) = (kept[i].step, kept[i - 1].step);
            let stop = kept.get(i + 1).map_or(at, |copy| copy.step);
            // The gap before this copy gets one slot less than if an earlier copy were given up.
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

/// [`advances`](crate::revolve::advances) of a gap, by counting up, since gaps take few
/// repetitions.
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

/// `number / by`. Most numbers are small, and a division of small ones takes a fifth of the time.
fn divided(number: u128, by: u64) -> u128 {
    match u64::try_from(number) {
        Ok(small) => u128::from(small / by),
        Err(_) => number / u128::from(by),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::cost;
    use crate::revolve::advances;

    proptest! {
        #[test]
        fn a_gap_costs_what_revolve_takes_for_it(
            slots in 1..100_u64,
            bits in 1..=61_u32,
            part in 0.5..1.0,
        ) {
            // Fewer slots take more repetitions, which are counted up.
            let bits = bits.min(8 * slots as u32);
            let length = ((1_u64 << bits) as f64 * part) as u64;
            let most = i128::from(u64::MAX);
            prop_assert_eq!(cost(length, slots).min(most), i128::from(advances(length, slots)));
        }
    }
}
