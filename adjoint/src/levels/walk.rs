//! The actions of a planned schedule, one after the other.

use alloc::vec::Vec;

use super::plan::{LevelPlan, PlannedLevel};
use crate::Action;
use crate::revolve::binomial::Split;

#[derive(Clone, Debug)]
pub(super) struct LevelWalk {
    /// Steps that are left to reverse.
    left: u64,
    /// The working state's step.
    at: u64,
    /// The kept states, upwards. The chain of the last one is being reversed.
    kept: Vec<KeptState>,
    next: LevelStep,
}

/// A kept state.
#[derive(Clone, Copy, Debug)]
struct KeptState {
    start: u64,
    level: usize,
    /// How many slots its level has free besides.
    free: u64,
    /// How its chain is split, at a level without a table.
    split: Option<Split>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LevelStep {
    Save(KeepPlace),
    Forward,
    Restore,
    Discard,
    Reverse,
    End,
    Nothing,
}

/// Where to keep the working state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct KeepPlace {
    level: usize,
    free: u64,
}

impl LevelWalk {
    pub fn new(plan: &LevelPlan) -> LevelWalk {
        let kept = Vec::new();
        let mut walk = LevelWalk { left: plan.steps, at: 0, kept, next: LevelStep::Reverse };
        walk.place(plan, plan.parts.len());
        walk
    }

    #[inline]
    pub fn next(&mut self, plan: &LevelPlan) -> Option<Action> {
        Some(match self.next {
            LevelStep::Save(place) => self.save(plan, place),
            LevelStep::Forward => self.forward(plan),
            LevelStep::Restore => self.restore(plan),
            LevelStep::Discard => self.discard(plan),
            LevelStep::Reverse => self.reverse(),
            LevelStep::End => {
                self.next = LevelStep::Nothing;
                Action::End
            }
            LevelStep::Nothing => return None,
        })
    }

    /// Decides what to do with the working state, the first of a chain for levels faster than
    /// `level`.
    fn place(&mut self, plan: &LevelPlan, level: usize) {
        let length = self.left - self.at;
        self.next = LevelStep::Reverse;
        if length < 2 {
            return;
        }
        let below = plan.parts.iter().enumerate().take(level).rev();
        match below.filter_map(|(level, part)| part.whole_chain(level, length)).next() {
            Some(place) => self.next = LevelStep::Save(place),
            None => debug_assert!(false, "some level reverses every chain"),
        }
    }

    fn save(&mut self, plan: &LevelPlan, KeepPlace { level, free }: KeepPlace) -> Action {
        let part = &plan.parts[level];
        let split = part.table.is_none().then(|| self.split(part));
        self.kept.push(KeptState { start: self.at, level, free, split });
        self.next = LevelStep::Forward;
        Action::Save { step: self.at, tier: Some(part.level.tier) }
    }

    /// The split of the working state's chain at the level without a table, which is the fastest.
    fn split(&self, part: &PlannedLevel) -> Split {
        let length = self.left - self.at;
        match self.kept.last().and_then(|kept| kept.split) {
            Some(split) => split.after(length),
            None => Split::new(length, part.level.slots.min(length - 1)),
        }
    }

    fn forward(&mut self, plan: &LevelPlan) -> Action {
        let (from, Some(kept)) = (self.at, self.kept.last().copied()) else {
            return self.reverse();
        };
        let part = &plan.parts[kept.level];
        self.at += part.over(&kept, self.left - from);
        debug_assert!(from < self.at && self.at < self.left, "past the state of the last step");
        match part.chain_after(&kept, self.left - self.at) {
            Some(place) => self.next = LevelStep::Save(place),
            None => self.place(plan, kept.level),
        }
        Action::Forward { from, to: self.at }
    }

    fn restore(&mut self, plan: &LevelPlan) -> Action {
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
        self.next =
            if part.over(kept, length) == 0 { LevelStep::Discard } else { LevelStep::Forward };
        Action::Restore { step, tier: Some(part.level.tier) }
    }

    /// Gives up the copy and leaves its chain to faster levels.
    fn discard(&mut self, plan: &LevelPlan) -> Action {
        let Some(kept) = self.kept.pop() else {
            return self.reverse();
        };
        self.place(plan, kept.level);
        Action::Discard { step: kept.start, tier: Some(plan.parts[kept.level].level.tier) }
    }

    fn reverse(&mut self) -> Action {
        self.left -= 1;
        self.next = if self.left == 0 { LevelStep::End } else { LevelStep::Restore };
        Action::Reverse { step: self.left }
    }
}

impl PlannedLevel {
    /// Whether the first state of a chain of two steps or more is kept at this level, the number
    /// `level`, all of whose slots are free.
    fn whole_chain(&self, level: usize, length: u64) -> Option<KeepPlace> {
        let slots = self.level.slots;
        let keeps = self.table.as_ref().is_none_or(|table| table.keeps(length, slots));
        keeps.then(|| KeepPlace { level, free: slots - 1 })
    }

    /// As [`PlannedLevel::whole_chain`], for the chain after an advance from a kept state, which
    /// may have one step.
    fn chain_after(&self, kept: &KeptState, length: u64) -> Option<KeepPlace> {
        let free = kept.free.checked_sub(1)?;
        let keeps = self.table.as_ref().is_none_or(|table| table.keeps_after(length, kept.free));
        (length > 1 && keeps).then_some(KeepPlace { level: kept.level, free })
    }

    /// The steps to advance over from a kept state; 0 to give the copy up.
    fn over(&self, kept: &KeptState, length: u64) -> u64 {
        match (&self.table, kept.split) {
            (Some(table), _) => table.advance(length, kept.free),
            (None, Some(split)) if length > 1 => split.advance(length),
            _ => 0,
        }
    }
}
