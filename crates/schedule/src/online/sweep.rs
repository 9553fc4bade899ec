//! The reverse sweep from the states that are kept when the forward pass ends.
//!
//! The steps behind the last kept state are worked off as Revolve would, with the slots that are
//! free; then those behind the one before, with one slot more; and so on. Where the last gap is too
//! long for its slots, its copy *leaps*: it is restored, given up, and a state further on is kept
//! in its place; the steps passed over are left to the copy before, which has more slots.
//!
//! How far to leap: let `G(i, m)` be the fewest advances that reverse the steps below `m` from the
//! copies `0..=i` at `q(0) < ... < q(i)`, and `A` those of Revolve. Then `G(i, m)` is the minimum
//! of `(y - q(i)) + A(m - y, s - i) + G(i - 1, y)` over `q(i) <= y < m`. `A` is convex in the
//! length with slopes `r` up to `beta(s, r)`, so `G` is convex in `m`, and the farthest `m` that it
//! reaches with no slope above `r` is `beta(s - i, r) + max(q(i), that of G(i - 1) with r - 1)`.
//! The smallest `r` that reaches `m` tells `y`.

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
    /// So many of the kept states are as the forward pass has left them.
    untouched: usize,
    next: Next,
}

/// A kept state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    step: u64,
    /// How the steps behind it are split, once that was decided.
    split: Option<Split>,
}

impl Kept {
    /// As the forward pass leaves it.
    pub fn new(step: u64) -> Kept {
        Kept { step, split: None }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// Give up a copy of the state behind the last step.
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
    /// The working state is state `steps`.
    pub fn new(steps: u64, slots: u64, kept: &[Kept]) -> Sweep {
        let next = match kept.last() {
            Some(copy) if copy.step == steps => Next::Drop,
            _ => Next::Restore,
        };
        Sweep { slots, left: steps, at: steps, untouched: kept.len(), next }
    }

    #[inline]
    pub fn next(&mut self, kept: &mut Vec<Kept>) -> Option<Action> {
        Some(match self.next {
            Next::Drop => {
                self.untouched -= 1;
                self.discard(Next::Restore, kept)
            }
            Next::Restore => self.restore(kept),
            Next::Consume => self.discard(Next::Reverse, kept),
            Next::Leap(to) => self.discard(Next::LeapTo(to), kept),
            Next::LeapTo(to) => self.advance(to),
            Next::Save => self.save(kept),
            Next::Forward => self.forward(kept),
            Next::Reverse => self.reverse(),
            Next::End => {
                self.next = Next::Nothing;
                Action::End
            }
            Next::Nothing => return None,
        })
    }

    fn discard(&mut self, next: Next, kept: &mut Vec<Kept>) -> Action {
        self.next = next;
        debug_assert!(kept.last().is_some_and(|copy| copy.step == self.at), "it is the last");
        kept.pop();
        Action::Discard { step: self.at, tier: None }
    }

    fn restore(&mut self, kept: &mut [Kept]) -> Action {
        let before = kept.len().saturating_sub(1);
        let goal = if before < self.untouched { self.leap(&kept[..=before]) } else { 0 };
        self.untouched = self.untouched.min(before);
        let slots = self.slots - before as u64;
        if let Some(copy) = kept.last_mut() {
            self.at = copy.step;
            self.next = match self.left - self.at {
                1 => Next::Consume,
                _ if goal > self.at => Next::Leap(goal),
                length => {
                    match &mut copy.split {
                        Some(split) => split.shorten(length),
                        none => *none = Some(Split::new(length, slots.min(length - 1))),
                    }
                    Next::Forward
                }
            };
        }
        Action::Restore { step: self.at, tier: None }
    }

    /// The state that the last of these untouched copies should leap to: its own for no leap.
    fn leap(&self, kept: &[Kept]) -> u64 {
        let last = kept.len() - 1;
        let (start, slots) = (kept[last].step, self.slots - last as u64);
        let length = self.left - start;
        if last == 0 || length == 1 {
            return start;
        }
        let (mut small, mut large) = (0, repetitions(length, slots.min(length - 1)));
        while small < large {
            let middle = small + (large - small) / 2;
            let behind = beta(slots, middle);
            if self.reach(kept, middle).saturating_add(behind) >= self.left {
                large = middle;
            } else {
                small = middle + 1;
            }
        }
        let nearest = if large == 0 { start } else { self.reach(kept, large - 1) };
        nearest.max(self.left.saturating_sub(beta(slots, large)))
    }

    /// The farthest that the last copy leaps to, with no slope above `r` behind it.
    fn reach(&self, kept: &[Kept], r: u64) -> u64 {
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

    fn save(&mut self, kept: &mut Vec<Kept>) -> Action {
        let (before, length) = (kept.len(), self.left - self.at);
        let split = match kept.last().and_then(|copy| copy.split) {
            Some(split) if before > self.untouched => split.behind(length),
            _ => Split::new(length, (self.slots - before as u64).min(length - 1)),
        };
        debug_assert!((before as u64) < self.slots, "every slot is taken");
        kept.push(Kept { step: self.at, split: Some(split) });
        self.next = Next::Forward;
        Action::Save { step: self.at, tier: None }
    }

    /// The working state is the last kept one, with two steps or more behind it.
    fn forward(&mut self, kept: &[Kept]) -> Action {
        let split = kept.last().and_then(|copy| copy.split);
        let over = split.map_or(1, |split| split.advance(self.left - self.at));
        self.advance(self.at + over)
    }

    fn advance(&mut self, to: u64) -> Action {
        let from = self.at;
        self.at = to;
        debug_assert!(from < to && to < self.left, "past the state of the last step");
        self.next = if self.left - to == 1 { Next::Reverse } else { Next::Save };
        Action::Forward { from, to }
    }

    fn reverse(&mut self) -> Action {
        self.left -= 1;
        self.next = if self.left == 0 { Next::End } else { Next::Restore };
        Action::Reverse { step: self.left }
    }
}
