//! The forward pass: where to keep a state next, and which copy to give up for it.
//!
//! `beta(s, r)` states are the most that `s` slots serve with `r` repetitions, and *range* `r` is
//! the numbers of states from `beta(s, r - 1) + 1` to `beta(s, r)`. At the end of a range there is
//! one best placement: the `j`-th copy at `beta(s, r) - beta(s - j, r)`. All of them but state 0
//! lie after the end of the range before, so within a range all older copies go, one for each new
//! one. A copy at a place of that placement stays; of the others the one goes whose loss costs
//! least in the reverse sweep. The last copy may lie `r` to `r + 1` states before the end without
//! loss.
//!
//! What the loss of a copy costs depends on what lies before it and on its next neighbour, so the
//! costs before a change are still right and only those after it are computed again
//! ([`Ranking`]). Mostly one of the last copies goes: an action takes about constant time.

use alloc::collections::VecDeque;

use self::ranking::Ranking;
use crate::Action;
use crate::revolve::binomial::beta;

mod ranking;

#[derive(Clone, Debug)]
pub(super) struct Placing {
    slots: u64,
    /// The kept states, upwards.
    kept: VecDeque<PlacedState>,
    ranking: Ranking,
    /// The working state's step, if the last `Forward` was carried out in full.
    at: u64,
    /// Where that began; `at` when no `Forward` was the last action.
    from: u64,
    /// The current range `r`, and `beta(slots, r)`, its end.
    range: u64,
    end: u64,
    /// The number of the first copy in the best placement that does not lie before `at`.
    number: u64,
    next: PlacingStep,
}

/// A kept state.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedState {
    pub step: u64,
    /// It is part of the best placement at the end of the current range.
    stays: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PlacingStep {
    Arrive,
    Save,
    Forward,
}

impl Placing {
    pub fn new(slots: u64) -> Placing {
        let end = beta(slots, 1);
        Placing {
            slots,
            kept: VecDeque::new(),
            ranking: Ranking::new(slots),
            at: 0,
            from: 0,
            range: 1,
            end,
            number: 1,
            next: PlacingStep::Save,
        }
    }

    /// The kept states, upwards.
    pub fn kept(&self) -> impl Iterator<Item = u64> {
        self.kept.iter().map(|copy| copy.step)
    }

    /// The states between which the working state is.
    pub fn between(&self) -> (u64, u64) {
        (self.from, self.at)
    }

    pub fn next(&mut self) -> Option<Action> {
        if self.at == u64::MAX {
            return None;
        }
        self.from = self.at;
        Some(match self.next {
            PlacingStep::Arrive => self.arrive(),
            PlacingStep::Save => self.save(),
            PlacingStep::Forward => self.forward(),
        })
    }

    fn arrive(&mut self) -> Action {
        self.enter_range();
        if (self.kept.len() as u64) < self.slots {
            return self.save();
        }
        self.next = PlacingStep::Save;
        let place = self.least_needed();
        self.ranking.changed(place);
        let step = self.kept.remove(place).map_or(0, |copy| copy.step);
        debug_assert!(step > 0, "state 0 is always kept");
        Action::Discard { step, tier: None }
    }

    /// Enters the range of the states up to the next one: `at + 2` with state 0.
    fn enter_range(&mut self) {
        while self.at.saturating_add(2) > self.end && self.end < u64::MAX {
            self.range += 1;
            self.end = beta(self.slots, self.range);
            self.number = 1;
            self.kept.iter_mut().for_each(|copy| copy.stays = false);
            self.ranking.changed(0);
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

    fn save(&mut self) -> Action {
        let step = self.at;
        let stays = self.place(self.number) == Some(step);
        debug_assert!((self.kept.len() as u64) < self.slots, "a slot is free");
        self.kept.push_back(PlacedState { step, stays });
        self.next = PlacingStep::Forward;
        Action::Save { step, tier: None }
    }

    fn forward(&mut self) -> Action {
        let from = self.at;
        self.at = match self.slots {
            1 => u64::MAX,
            slots if (self.kept.len() as u64) < slots => from + 1,
            _ => self.next_place(),
        };
        debug_assert!(self.at > from, "the working state moves on");
        self.next = PlacingStep::Arrive;
        Action::Forward { from, to: self.at }
    }

    /// The next state to keep when every slot is taken, the last by the working state.
    fn next_place(&self) -> u64 {
        let mut number = self.number;
        while self.place(number).is_some_and(|place| place <= self.at) {
            number += 1;
        }
        let farthest = self.at.saturating_add(self.range);
        let to = farthest.min(self.place(number).unwrap_or(u64::MAX));
        if to.saturating_add(2) > self.end {
            // The next range begins, which allows one more state up to its first place.
            return to.max(farthest.saturating_add(1).min(self.end));
        }
        to
    }

    /// The place in the list of the copy to give up; never state 0's.
    fn least_needed(&mut self) -> usize {
        debug_assert!(self.kept.len() > 1, "state 0 is always kept");
        if self.range <= 2 {
            // Any copy that does not stay may go: the range allows the gap that it leaves.
            return (1..self.kept.len()).find(|&i| !self.kept[i].stays).unwrap_or(1);
        }
        self.ranking.least(&self.kept, self.at)
    }
}
