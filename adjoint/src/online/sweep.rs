//! The reverse sweep from the states that are kept when the forward pass ends.
//!
//! The steps after the last kept state are reversed as Revolve would, with the slots that are
//! free; then those after the one before, with one slot more; and so on. Where the last gap is too
//! long for its slots, its copy *leaps*: it is restored, given up, and a state further on is kept
//! in its place; the steps passed over are left to the copy before, which has more slots.
//!
//! How far to leap: let `fewest(i, m)` be the fewest advances that reverse the steps below `m` from
//! the copies `0..=i` at `kept(0) < ... < kept(i)` with `s` slots in all, and `advances` those of
//! Revolve. Then `fewest(i, m)` is the minimum of
//! `(y - kept(i)) + advances(m - y, s - i) + fewest(i - 1, y)` over `kept(i) <= y < m`. `advances`
//! is convex in the length with slopes `r` up to `beta(s, r)`, so `fewest` is convex in `m`, and
//! the farthest `m` that it reaches with no slope above `r`, `reach(i, r)`, is
//! `beta(s - i, r) + max(kept(i), reach(i - 1, r - 1))`. The smallest `r` that reaches `m` gives
//! `y`, the state to leap to.

use alloc::vec::Vec;

use crate::Action;
use crate::revolve::binomial::{Split, beta, repetitions};

#[derive(Clone, Debug)]
pub(super) struct Sweep {
    slots: u64,
    /// Steps that are left to reverse.
    left: u64,
    /// The working state's step.
    at: u64,
    /// How many of the kept states are as the forward pass has left them.
    untouched: usize,
    next: SweepStep,
}

/// A kept state.
#[derive(Clone, Copy, Debug)]
pub(super) struct SweepState {
    step: u64,
    /// How the steps after it are split, once that was decided.
    split: Option<Split>,
}

impl SweepState {
    /// A state that the forward pass has kept.
    pub fn new(step: u64) -> SweepState {
        SweepState { step, split: None }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SweepStep {
    /// Give up a copy of the state after the last step.
    Drop,
    Restore,
    /// Give up the copy of the working state, then reverse its step.
    Consume,
    /// Give up the copy of the working state, then advance to that state.
    Leap(u64),
    LeapTo(u64),
    Save,
    Forward,
    Reverse,
    End,
    Nothing,
}

impl Sweep {
    /// The sweep that begins with the working state being state `steps`.
    pub fn new(steps: u64, slots: u64, kept: &[SweepState]) -> Sweep {
        let next = match kept.last() {
            Some(copy) if copy.step == steps => SweepStep::Drop,
            _ => SweepStep::Restore,
        };
        Sweep { slots, left: steps, at: steps, untouched: kept.len(), next }
    }

    #[inline]
    pub fn next(&mut self, kept: &mut Vec<SweepState>) -> Option<Action> {
        Some(match self.next {
            SweepStep::Drop => {
                self.untouched -= 1;
                self.discard(SweepStep::Restore, kept)
            }
            SweepStep::Restore => self.restore(kept),
            SweepStep::Consume => self.discard(SweepStep::Reverse, kept),
            SweepStep::Leap(to) => self.discard(SweepStep::LeapTo(to), kept),
            SweepStep::LeapTo(to) => self.advance(to),
            SweepStep::Save => self.save(kept),
            SweepStep::Forward => self.forward(kept),
            SweepStep::Reverse => self.reverse(),
            SweepStep::End => {
                self.next = SweepStep::Nothing;
                Action::End
            }
            SweepStep::Nothing => return None,
        })
    }

    fn discard(&mut self, next: SweepStep, kept: &mut Vec<SweepState>) -> Action {
        self.next = next;
        debug_assert!(
            kept.last().is_some_and(|copy| copy.step == self.at),
            "the copy of the working state is the last"
        );
        kept.pop();
        Action::Discard { step: self.at, tier: None }
    }

    fn restore(&mut self, kept: &mut [SweepState]) -> Action {
        let before = kept.len().saturating_sub(1);
        let goal = if before < self.untouched { self.leap(&kept[..=before]) } else { 0 };
        self.untouched = self.untouched.min(before);
        let slots = self.slots - before as u64;
        if let Some(copy) = kept.last_mut() {
            self.at = copy.step;
            self.next = match self.left - self.at {
                1 => SweepStep::Consume,
                _ if goal > self.at => SweepStep::Leap(goal),
                length => {
                    match &mut copy.split {
                        Some(split) => split.shorten(length),
                        none => *none = Some(Split::new(length, slots.min(length - 1))),
                    }
                    SweepStep::Forward
                }
            };
        }
        Action::Restore { step: self.at, tier: None }
    }

    /// The state that the last of these untouched copies should leap to; its own if it should not.
    fn leap(&self, kept: &[SweepState]) -> u64 {
        let last = kept.len() - 1;
        let (start, slots) = (kept[last].step, self.slots - last as u64);
        let length = self.left - start;
        if last == 0 || length == 1 {
            return start;
        }
        let (mut small, mut large) = (0, repetitions(length, slots.min(length - 1)));
        while small < large {
            let middle = small + (large - small) / 2;
            let alone = beta(slots, middle);
            if self.reach(kept, middle).saturating_add(alone) >= self.left {
                large = middle;
            } else {
                small = middle + 1;
            }
        }
        let nearest = if large == 0 { start } else { self.reach(kept, large - 1) };
        nearest.max(self.left.saturating_sub(beta(slots, large)))
    }

    /// The farthest state to which the last copy leaps with no slope above `r` (see the module).
    fn reach(&self, kept: &[SweepState], r: u64) -> u64 {
        // Copies that are more than `r` before the last one are left alone.
        let first = (kept.len() as u64 - 1).saturating_sub(r) as usize;
        let mut farthest = 0;
        for (i, copy) in kept.iter().enumerate().skip(first) {
            farthest = copy.step.max(farthest);
            if i + 1 < kept.len() {
                let slope = r - (kept.len() - 1 - i) as u64;
                farthest = farthest.saturating_add(beta(self.slots - i as u64, slope));
            }
        }
        farthest
    }

    fn save(&mut self, kept: &mut Vec<SweepState>) -> Action {
        let (before, length) = (kept.len(), self.left - self.at);
        let split = match kept.last().and_then(|copy| copy.split) {
            Some(split) if before > self.untouched => split.after(length),
            _ => Split::new(length, (self.slots - before as u64).min(length - 1)),
        };
        debug_assert!((before as u64) < self.slots, "a slot is free");
        kept.push(SweepState { step: self.at, split: Some(split) });
        self.next = SweepStep::Forward;
        Action::Save { step: self.at, tier: None }
    }

    /// Advances from the last kept state, which is the working state, with two steps or more left.
    fn forward(&mut self, kept: &[SweepState]) -> Action {
        let split = kept.last().and_then(|copy| copy.split);
        let over = split.map_or(1, |split| split.advance(self.left - self.at));
        self.advance(self.at + over)
    }

    fn advance(&mut self, to: u64) -> Action {
        let from = self.at;
        self.at = to;
        debug_assert!(
            from < to && to < self.left,
            "an advance stops before the last step that is left"
        );
        self.next = if self.left - to == 1 { SweepStep::Reverse } else { SweepStep::Save };
        Action::Forward { from, to }
    }

    fn reverse(&mut self) -> Action {
        self.left -= 1;
        self.next = if self.left == 0 { SweepStep::End } else { SweepStep::Restore };
        Action::Reverse { step: self.left }
    }
}
