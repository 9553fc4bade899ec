//! States kept at equal intervals; between them every step is computed again from the last one.

use super::walk::{Next, Walk};
use super::{Action, Schedule, ScheduleError};

/// Keeps `slots` states at equal intervals and never another.
///
/// Each `Reverse` inside an interval restores the interval's first state and advances from there.
/// The last state needs no copy (it is the working state when its step is reversed), so the
/// `steps - 1` states before it are shared out; interval lengths differ by one at most, the longer
/// ones first. The cost is quadratic in an interval's length: see [`Uniform::advances`]. `Revolve`
/// needs fewer advances with the same slots, but saves more often.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uniform {
    steps: u64,
    slots: u64,
    /// Steps that are left to reverse.
    left: u64,
    /// The working state's step.
    at: u64,
    /// The interval that is worked on, counted from 0.
    interval: u64,
    next: Next,
}

impl Uniform {
    /// A schedule for so many steps with at most so many copies; more than `steps - 1` are
    /// not used.
    ///
    /// # Errors
    /// There are no steps, or there is no slot although there are two steps or more.
    pub fn new(steps: u64, slots: u64) -> Result<Uniform, ScheduleError> {
        let next = Next::first(steps, slots)?;
        let slots = slots.min(steps - 1);
        Ok(Uniform { steps, slots, left: steps, at: 0, interval: 0, next })
    }

    /// The steps that it advances over: `steps - 1`, and `l (l - 1) / 2` more for every interval of
    /// `l` steps; `u64::MAX` when it is more than that.
    #[must_use]
    pub fn advances(&self) -> u64 {
        let Some((length, longer)) = self.shares() else { return 0 };
        debug_assert!(longer < self.slots, "{longer} intervals cannot all be longer");
        let again = |length: u64| u128::from(length) * u128::from(length.saturating_sub(1)) / 2;
        let shorter = u128::from(self.slots - longer).saturating_mul(again(length));
        let longer = u128::from(longer).saturating_mul(again(length + 1));
        let all = shorter.saturating_add(longer).saturating_add(u128::from(self.steps - 1));
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// The length of an interval, and how many are longer by one.
    fn shares(&self) -> Option<(u64, u64)> {
        let states = self.steps - 1;
        Some((states.checked_div(self.slots)?, states.checked_rem(self.slots)?))
    }

    /// The first step of an interval; for the one after the last interval, the step of the last
    /// state.
    fn start(&self, interval: u64) -> u64 {
        self.shares().map_or(0, |(length, longer)| interval * length + interval.min(longer))
    }
}

impl Walk for Uniform {
    #[inline]
    fn next_kind(&mut self) -> &mut Next {
        &mut self.next
    }

    #[inline]
    fn at(&self) -> u64 {
        self.at
    }

    /// Advances to the next interval in the forward pass, later to the step to reverse.
    fn forward(&mut self) -> Action {
        let from = self.at;
        if self.left < self.steps {
            self.at = self.left - 1;
            return self.then(Next::Reverse, Action::Forward { from, to: self.at });
        }
        self.at = self.start(self.interval + 1);
        debug_assert!(from < self.at && self.at < self.steps, "an interval has a step");
        if self.at == self.steps - 1 {
            self.next = Next::Reverse;
        } else {
            self.interval += 1;
            self.next = Next::Save;
        }
        Action::Forward { from, to: self.at }
    }

    fn restore(&mut self) -> Action {
        self.at = self.start(self.interval);
        let next = if self.at + 1 == self.left { Next::Discard } else { Next::Forward };
        self.then(next, Action::Restore { step: self.at, tier: None })
    }

    fn discard(&mut self) -> Action {
        self.interval = self.interval.saturating_sub(1);
        self.then(Next::Reverse, Action::Discard { step: self.at, tier: None })
    }

    fn reverse(&mut self) -> Action {
        debug_assert!(self.left > 0, "every step is reversed");
        self.left -= 1;
        let next = if self.left == 0 { Next::End } else { Next::Restore };
        self.then(next, Action::Reverse { step: self.left })
    }
}

impl Iterator for Uniform {
    type Item = Action;

    #[inline]
    fn next(&mut self) -> Option<Action> {
        self.go_on()
    }
}

impl Schedule for Uniform {
    fn steps(&self) -> Option<u64> {
        Some(self.steps)
    }

    fn slots(&self) -> u64 {
        self.slots
    }
}
