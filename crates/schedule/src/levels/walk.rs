//! The actions of a planned schedule, one after the other.

use alloc::vec::Vec;

use super::plan::{Part, Plan};
use crate::Action;
use crate::revolve::binomial::Split;

#[derive(Clone, Debug)]
pub(super) struct Walk {
    /// Steps that are left to reverse.
    left: u64,
    /// The working state's step.
    at: u64,
    /// The kept states, upwards; the last one's chain is the one that is worked off.
    kept: Vec<Kept>,
    next: Next,
}

/// A kept state.
#[derive(Clone, Copy, Debug)]
struct Kept {
    start: u64,
    level: usize,
    /// How many slots its level has free besides.
    free: u64,
    /// How its chain is split, at a level without a table.
    split: Option<Split>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Save(Place),
    Forward,
    Restore,
    Discard,
    Reverse,
    End,
    Nothing,
}

/// Where to keep the working state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    level: usize,
    free: u64,
}

impl Walk {
    pub fn new(plan: &Plan) -> Walk {
        let kept = Vec::new();
        let mut walk = Walk { left: plan.steps, at: 0, kept, next: Next::Reverse };
        walk.place(plan, plan.parts.len());
        walk
    }

    #[inline]
    pub fn next(&mut self, plan: &Plan) -> Option<Action> {
        Some(match self.next {
            Next::Save(place) => self.save(plan, place),
            Next::Forward => self.forward(plan),
            Next::Restore => self.restore(plan),
            Next::Discard => self.discard(plan),
            Next::Reverse => self.reverse(),
            Next::End => {
                self.next = Next::Nothing;
                Action::End
            }
            Next::Nothing => return None,
        })
    }

    /// What to do with the working state, the first of a chain that levels below `level` work off.
    fn place(&mut self, plan: &Plan, level: usize) {
        let length = self.left - self.at;
        self.next = Next::Reverse;
        if length < 2 {
            return;
        }
        let below = plan.parts.iter().enumerate().take(level).rev();
        match below.filter_map(|(level, part)| part.whole_chain(level, length)).next() {
            Some(place) => self.next = Next::Save(place),
            None => debug_assert!(false, "a chain that no level works off"),
        }
    }

    fn save(&mut self, plan: &Plan, Place { level, free }: Place) -> Action {
        let part = &plan.parts[level];
        let split = part.table.is_none().then(|| self.split(part));
        self.kept.push(Kept { start: self.at, level, free, split });
        self.next = Next::Forward;
        Action::Save { step: self.at, tier: Some(part.level.tier) }
    }

    /// Of the working state's chain, at the level without a table, which is the fastest.
    fn split(&self, part: &Part) -> Split {
        let length = self.left - self.at;
        match self.kept.last().and_then(|kept| kept.split) {
            Some(split) => split.behind(length),
            None => Split::new(length, part.level.slots.min(length - 1)),
        }
    }

    fn forward(&mut self, plan: &Plan) -> Action {
        let (from, Some(kept)) = (self.at, self.kept.last().copied()) else {
            return self.reverse();
        };
        let part = &plan.parts[kept.level];
        self.at += part.over(&kept, self.left - from);
        debug_assert!(from < self.at && self.at < self.left, "past the state of the last step");
        match part.chain_behind(&kept, self.left - self.at) {
            Some(place) => self.next = Next::Save(place),
            None => self.place(plan, kept.level),
        }
        Action::Forward { from, to: self.at }
    }

    fn restore(&mut self, plan: &Plan) -> Action {
        let Some(kept) = self.kept.last_mut() else {
            return self.reverse();
        };
        let (step, level) = (kept.start, kept.level);
        self.at = step;
        let length = self.left - step;
        let part = &plan.parts[level];
        if let Some(split) = &mut kept.split {
            split.shorten(length);
        }
        self.next = if part.over(kept, length) == 0 { Next::Discard } else { Next::Forward };
        Action::Restore { step, tier: Some(part.level.tier) }
    }

    /// The copy is given up and its chain is left to faster levels.
    fn discard(&mut self, plan: &Plan) -> Action {
        let Some(kept) = self.kept.pop() else {
            return self.reverse();
        };
        self.place(plan, kept.level);
        Action::Discard { step: kept.start, tier: Some(plan.parts[kept.level].level.tier) }
    }

    fn reverse(&mut self) -> Action {
        self.left -= 1;
        self.next = if self.left == 0 { Next::End } else { Next::Restore };
        Action::Reverse { step: self.left }
    }
}

impl Part {
    /// Whether the first state of a chain of two steps or more is kept at this level, the number
    /// `level`, all of whose slots are free.
    fn whole_chain(&self, level: usize, length: u64) -> Option<Place> {
        let slots = self.level.slots;
        let keeps = self.table.as_ref().is_none_or(|table| table.keeps(length, slots));
        keeps.then(|| Place { level, free: slots - 1 })
    }

    /// The same for the chain behind an advance from a kept state, which may be of one step.
    fn chain_behind(&self, kept: &Kept, length: u64) -> Option<Place> {
        let free = kept.free.checked_sub(1)?;
        let keeps = self.table.as_ref().is_none_or(|table| table.keeps_behind(length, kept.free));
        (length > 1 && keeps).then_some(Place { level: kept.level, free })
    }

    /// Over how many steps to advance from a kept state; 0 to give the copy up.
    fn over(&self, kept: &Kept, length: u64) -> u64 {
        match (&self.table, kept.split) {
            (Some(table), _) => table.advance(length, kept.free),
            (None, Some(split)) if length > 1 => split.advance(length),
            _ => 0,
        }
    }
}
