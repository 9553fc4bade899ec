//! zCut: equal cuts, each computed again once, with every state inside kept meanwhile.
//!
//! It is known from GPUZIP (Maltempi, Rigo, Pereira, Yviquel, Araujo: Euro-Par 2024, IJHPCA 2025),
//! where it is one of three schedules of a reverse time migration. Its code is not public; this
//! follows its description and its published numbers.

use super::walk::{Next, Walk};
use super::{Action, Schedule, ScheduleError};

/// `M` cuts of `L` steps, `L = ceil(N / M)`; the last cut is shorter when `M L > N`.
///
/// The forward sweep saves the first state of each cut, and inside the last cut every state. Then
/// cut by cut, the last first: restore the cut's first state, go forward again and save every state
/// inside, reverse through the cut and discard each copy as it is used for the last time. The state
/// of a cut's last step is never saved: it is the working state when that step is reversed.
///
/// With `M` cuts of `L > 1` steps each it keeps at most `M + L - 2` copies, saves `N - M`, restores
/// `N - 1`, and makes `2 N - L - M` advances: `N - 1` in the forward sweep and `L - 1` again in
/// every cut but the last. GPUZIP counts `2 N - L` forward steps, since it also counts the pass
/// that reverses a cut's last step: one more for each cut. So no step is advanced over more than
/// twice, for `2 sqrt(N) - 2` copies at least: a schedule for storage that is large and fast. The
/// numbers that GPUZIP publishes imply cuts of 33 to 41 steps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZCut {
    steps: u64,
    length: u64,
    /// The first step of the cut that is worked on.
    start: u64,
    /// Steps that are left to reverse.
    left: u64,
    /// The working state's step.
    at: u64,
    next: Next,
}

impl ZCut {
    /// At most so many cuts, of equal length; more than `steps` are not used.
    ///
    /// There are fewer where fewer of the same length suffice: 10 steps in 4 cuts have length 3,
    /// and in 6 cuts length 2, which makes 5.
    ///
    /// # Errors
    /// There are no steps, or no cuts.
    pub fn with_cuts(steps: u64, cuts: u64) -> Result<ZCut, ScheduleError> {
        if cuts == 0 {
            return Err(ScheduleError::NoCuts);
        }
        ZCut::with_length(steps, steps.div_ceil(cuts).max(1))
    }

    /// Cuts of so many steps; more than `steps` are one cut.
    ///
    /// # Errors
    /// There are no steps, or the length is 0.
    pub fn with_length(steps: u64, length: u64) -> Result<ZCut, ScheduleError> {
        let next = match (steps, length) {
            (0, _) => return Err(ScheduleError::NoSteps),
            (_, 0) => return Err(ScheduleError::NoCuts),
            (1, _) => Next::Reverse,
            _ => Next::Save,
        };
        Ok(ZCut { steps, length: length.min(steps), start: 0, left: steps, at: 0, next })
    }

    /// The fewest cuts for which `M + L - 2` copies fit into so many slots: with cuts of equal
    /// length, the fewer there are, the fewer steps are computed again, up to the rounding of `L`.
    ///
    /// # Errors
    /// There are no steps, or even cuts of `sqrt(steps)` steps need more slots; the error says how
    /// many they need.
    pub fn with_slots(steps: u64, slots: u64) -> Result<ZCut, ScheduleError> {
        if steps == 0 {
            return Err(ScheduleError::NoSteps);
        }
        // From sqrt(steps) on, a longer cut never needs less: M falls by one at most.
        let root = steps.isqrt();
        let mut fits = if root * root == steps { root } else { root + 1 };
        let needed = copies(steps, fits);
        if needed > slots {
            return Err(ScheduleError::TooFewSlots { slots, needed });
        }
        let mut longest = steps;
        while fits < longest {
            let middle = longest - (longest - fits) / 2;
            if copies(steps, middle) <= slots {
                fits = middle;
            } else {
                longest = middle - 1;
            }
        }
        debug_assert!(copies(steps, fits) <= slots, "the cuts fit");
        // The longest cuts that fit leave a short last one: as many of equal length recompute less.
        ZCut::with_cuts(steps, steps.div_ceil(fits))
    }

    /// The number of cuts, `M`.
    #[must_use]
    pub fn cuts(&self) -> u64 {
        self.steps.div_ceil(self.length)
    }

    /// The number of steps of each cut but the last, `L`.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The steps that it advances over: `2 N - L - M` when the last cut is as long as the others;
    /// `u64::MAX` when it is more than that.
    #[must_use]
    pub fn advances(&self) -> u64 {
        (self.steps - 1).saturating_add((self.cuts() - 1) * (self.length - 1))
    }

    /// The first step of the last cut.
    fn last_start(&self) -> u64 {
        (self.cuts() - 1) * self.length
    }
}

impl Walk for ZCut {
    #[inline]
    fn next_kind(&mut self) -> &mut Next {
        &mut self.next
    }

    #[inline]
    fn at(&self) -> u64 {
        self.at
    }

    /// Advances to the next cut in the forward sweep, by one step inside a cut that is kept.
    fn forward(&mut self) -> Action {
        let from = self.at;
        if self.left == self.steps && self.at < self.last_start() {
            self.at += self.length;
            self.start = self.at;
        } else {
            self.at += 1;
        }
        debug_assert!(self.at < self.left, "past the state of the last step");
        self.next = if self.at + 1 == self.left { Next::Reverse } else { Next::Save };
        Action::Forward { from, to: self.at }
    }

    /// Restores the state before, or the first state of the cut before.
    fn restore(&mut self) -> Action {
        self.at = if self.left == self.start {
            self.start -= self.length;
            self.start
        } else {
            self.left - 1
        };
        debug_assert!(self.start <= self.at && self.at < self.left, "a state of this cut");
        let next = if self.at + 1 == self.left { Next::Discard } else { Next::Forward };
        self.then(next, Action::Restore { step: self.at, tier: None })
    }

    fn reverse(&mut self) -> Action {
        self.left -= 1;
        let next = if self.left == 0 { Next::End } else { Next::Restore };
        self.then(next, Action::Reverse { step: self.left })
    }
}

/// `M + L - 2` for `1 <= length <= steps`.
fn copies(steps: u64, length: u64) -> u64 {
    steps.div_ceil(length) - 1 + (length - 1)
}

impl Iterator for ZCut {
    type Item = Action;

    #[inline]
    fn next(&mut self) -> Option<Action> {
        self.go_on()
    }
}

impl Schedule for ZCut {
    fn steps(&self) -> Option<u64> {
        Some(self.steps)
    }

    /// `M + L - 2`, and one less when the last cut is shorter.
    fn slots(&self) -> u64 {
        let last = self.steps - self.last_start();
        let in_last = copies(self.steps, self.length) - (self.length - last);
        // The first states of the cuts before the last, and what is kept inside one of those.
        let in_others = (self.cuts() - 1) + self.length.saturating_sub(2);
        if self.cuts() == 1 { in_last } else { in_last.max(in_others) }
    }
}

#[cfg(test)]
#[path = "cuts_tests.rs"]
mod tests;
