//! The actions of a planned schedule, one after the other.

use alloc::vec::Vec;

use super::plan::{How, Plan};
use crate::schedule::Action;
use crate::schedule::revolve::binomial::Split;
use crate::types::TierKind;

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
    /// Its level, and how many slots are free there besides.
    level: usize,
    free: u64,
    /// How its blocks are split, at a level that works in blocks.
    split: Option<Split>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// Keep the working state at that level, which leaves so many slots.
    Save(usize, u64),
    Forward,
    Restore,
    Discard,
    Reverse,
    End,
    Nothing,
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
            Next::Save(level, free) => self.save(plan, level, free),
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
        for (level, part) in plan.parts.iter().enumerate().take(level).rev() {
            let free = part.level.slots;
            if plan.keeps(level, length, free) {
                self.next = Next::Save(level, free - 1);
                return;
            }
        }
        debug_assert!(false, "a chain that no level works off");
    }

    fn save(&mut self, plan: &Plan, level: usize, free: u64) -> Action {
        let part = &plan.parts[level];
        let split = match part.how {
            How::Table(_) => None,
            How::Blocks(size) => {
                Some(self.split((self.left - self.at).div_ceil(size), level, plan))
            }
        };
        self.kept.push(Kept { start: self.at, level, free, split });
        self.next = Next::Forward;
        Action::Save { step: self.at, tier: Some(part.level.tier) }
    }

    /// Of a chain of so many blocks, the last kept state being before it.
    fn split(&self, blocks: u64, level: usize, plan: &Plan) -> Split {
        match self.kept.last() {
            Some(Kept { level: before, split: Some(split), .. }) if *before == level => {
                split.behind(blocks)
            }
            _ => Split::new(blocks, plan.parts[level].level.slots.min(blocks - 1)),
        }
    }

    fn forward(&mut self, plan: &Plan) -> Action {
        let (from, Some(kept)) = (self.at, self.kept.last().copied()) else {
            return self.reverse();
        };
        self.at += plan.over(&kept, self.left - from);
        debug_assert!(from < self.at && self.at < self.left, "past the state of the last step");
        let length = self.left - self.at;
        if length > 1 && plan.keeps(kept.level, length, kept.free) {
            self.next = Next::Save(kept.level, kept.free - 1);
        } else {
            self.place(plan, kept.level);
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
        if let (Some(split), How::Blocks(size)) = (&mut kept.split, &plan.parts[level].how) {
            split.shorten(length.div_ceil(*size));
        }
        self.next = if plan.over(kept, length) == 0 { Next::Discard } else { Next::Forward };
        Action::Restore { step, tier: Some(plan.parts[level].level.tier) }
    }

    /// The copy is given up and its chain is left to faster levels.
    fn discard(&mut self, plan: &Plan) -> Action {
        let Some(kept) = self.kept.pop() else {
            return self.reverse();
        };
        self.place(plan, kept.level);
        Action::Discard { step: kept.start, tier: self.tier(plan, kept.level) }
    }

    fn tier(&self, plan: &Plan, level: usize) -> Option<TierKind> {
        Some(plan.parts[level].level.tier)
    }

    fn reverse(&mut self) -> Action {
        self.left -= 1;
        self.next = if self.left == 0 { Next::End } else { Next::Restore };
        Action::Reverse { step: self.left }
    }
}

impl Plan {
    /// Whether the first state of a chain of two steps or more is kept at that level, with so many
    /// slots free.
    fn keeps(&self, level: usize, length: u64, free: u64) -> bool {
        match &self.parts[level].how {
            How::Blocks(size) => length > *size,
            How::Table(table) => table.keeps(length as usize, free),
        }
    }

    /// Over how many steps to advance from a kept state; 0 to give the copy up.
    fn over(&self, kept: &Kept, length: u64) -> u64 {
        match &self.parts[kept.level].how {
            How::Table(table) => table.advance(length as usize, kept.free),
            How::Blocks(size) => match kept.split {
                Some(split) if length > *size => split.advance(length.div_ceil(*size)) * size,
                _ => 0,
            },
        }
    }
}
