//! The forward pass: where to keep a state next, and which copy to give up for it.
//!
//! `beta(s, r)` states are the most that `s` slots serve with `r` repetitions, and *range* `r` is
//! the numbers of states from `beta(s, r - 1) + 1` to `beta(s, r)`. At the end of a range there is
//! one best placement: the `j`-th copy at `beta(s, r) - beta(s - j, r)`. All of them but state 0 lie
//! behind the end of the range before, so within a range all older copies go, one for each new one.
//! A copy at a place of that placement stays; of the others the one goes whose loss costs least in
//! the reverse sweep. The last copy may lie `r` to `r + 1` states before the end without loss.

use alloc::vec::Vec;

use super::Kept;
use crate::schedule::Action;
use crate::schedule::revolve::binomial::beta;

#[derive(Clone, Debug)]
pub(super) struct Placing {
    slots: u64,
    /// The working state's step, if the last `Forward` was carried out in full.
    at: u64,
    /// Where that began; `at` when no `Forward` was the last action.
    from: u64,
    /// The current range `r`, and `beta(slots, r)`, its end.
    range: u64,
    end: u64,
    /// The best placement's first copy that is not behind `at`, by number.
    number: u64,
    next: Next,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Arrive,
    Save,
    Forward,
}

impl Placing {
    pub fn new(slots: u64) -> Placing {
        let end = beta(slots, 1);
        Placing { slots, at: 0, from: 0, range: 1, end, number: 1, next: Next::Save }
    }

    /// The states between which the working state is.
    pub fn between(&self) -> (u64, u64) {
        (self.from, self.at)
    }

    pub fn next(&mut self, kept: &mut Vec<Kept>) -> Option<Action> {
        if self.at == u64::MAX {
            return None;
        }
        self.from = self.at;
        Some(match self.next {
            Next::Arrive => self.arrive(kept),
            Next::Save => self.save(kept),
            Next::Forward => self.forward(kept),
        })
    }

    fn arrive(&mut self, kept: &mut Vec<Kept>) -> Action {
        self.enter_range(kept);
        if (kept.len() as u64) < self.slots {
            return self.save(kept);
        }
        self.next = Next::Save;
        let step = kept.remove(self.least_needed(kept)).step;
        Action::Discard { step, tier: None }
    }

    /// The pass has at least one more step to go: `at + 2` states with state 0 and the next one.
    fn enter_range(&mut self, kept: &mut [Kept]) {
        while self.at.saturating_add(2) > self.end && self.end < u64::MAX {
            self.range += 1;
            self.end = beta(self.slots, self.range);
            self.number = 1;
            kept.iter_mut().for_each(|copy| copy.stays = false);
        }
        while self.place(self.number).is_some_and(|place| place < self.at) {
            self.number += 1;
        }
    }

    /// Of the best placement at the end of the range, the copy with that number.
    fn place(&self, number: u64) -> Option<u64> {
        let left = self.slots.checked_sub(number)?;
        (left > 0).then(|| self.end - beta(left, self.range))
    }

    fn save(&mut self, kept: &mut Vec<Kept>) -> Action {
        let step = self.at;
        let stays = self.place(self.number) == Some(step);
        debug_assert!((kept.len() as u64) < self.slots, "every slot is taken");
        kept.push(Kept { step, stays, split: None });
        self.next = Next::Forward;
        Action::Save { step, tier: None }
    }

    fn forward(&mut self, kept: &[Kept]) -> Action {
        let from = self.at;
        self.at = match self.slots {
            1 => u64::MAX,
            slots if (kept.len() as u64) < slots => from + 1,
            _ => self.next_place(),
        };
        debug_assert!(self.at > from, "no way forward");
        self.next = Next::Arrive;
        Action::Forward { from, to: self.at }
    }

    /// With every slot taken, the last by the working state.
    fn next_place(&self) -> u64 {
        let mut number = self.number;
        while self.place(number).is_some_and(|place| place <= self.at) {
            number += 1;
        }
        let farthest = self.at.saturating_add(self.range);
        let to = farthest.min(self.place(number).unwrap_or(u64::MAX));
        if to.saturating_add(2) > self.end {
            // The next range begins: it bears one state more, up to its first place.
            return to.max(farthest.saturating_add(1).min(self.end));
        }
        to
    }

    /// The place in the list of the copy to give up; never state 0's.
    fn least_needed(&self, kept: &[Kept]) -> usize {
        debug_assert!(kept.len() > 1, "state 0 is always kept");
        if self.range <= 2 {
            // Any that does not stay leaves gaps which the range allows.
            return (1..kept.len()).find(|&i| !kept[i].stays).unwrap_or(1);
        }
        let mut least = (i128::MAX, 1);
        let mut shifted = 0;
        for i in 1..kept.len() {
            let slots = self.slots - i as u64;
            let (start, before) = (kept[i].step, kept[i - 1].step);
            let stop = kept.get(i + 1).map_or(self.at, |copy| copy.step);
            // The gap in front gets one slot less than it would if a copy before it went.
            let front = cost(start - before, slots + 2);
            let loss =
                shifted + cost(stop - before, slots + 1) - front - cost(stop - start, slots + 1);
            if !kept[i].stays && loss < least.0 {
                least = (loss, i);
            }
            shifted += cost(start - before, slots + 1) - front;
        }
        least.1
    }
}

/// What [`advances`](crate::schedule::revolve::advances) says of a gap, by counting up: gaps take
/// few repetitions.
fn cost(length: u64, slots: u64) -> i128 {
    let (length, slots) = (i128::from(length), i128::from(slots));
    if slots == 1 {
        return length * (length - 1) / 2;
    }
    let (mut r, mut reach) = (0, 1);
    while reach < length {
        r += 1;
        reach = reach * (slots + r) / r;
    }
    r * length - reach * r / (slots + 1)
}
