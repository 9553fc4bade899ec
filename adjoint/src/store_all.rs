//! Keeps every state: no step is computed twice.

use super::walk::{Next, Walk};
use super::{Action, Schedule, ScheduleError};

/// Saves every state but the last, which is the working state when its step is reversed.
///
/// `steps - 1` advances, saves and restores each, and as many slots. Each copy is restored once, by
/// the step that reverses it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreAll {
    steps: u64,
    /// The state that is worked on: upwards in the forward pass, then downwards.
    at: u64,
    next: Next,
}

impl StoreAll {
    /// A schedule for so many steps.
    ///
    /// # Errors
    /// There are no steps.
    pub fn new(steps: u64) -> Result<StoreAll, ScheduleError> {
        Ok(StoreAll { steps, at: 0, next: Next::first(steps, steps)? })
    }
}

impl Walk for StoreAll {
    #[inline]
    fn next_kind(&mut self) -> &mut Next {
        &mut self.next
    }

    #[inline]
    fn at(&self) -> u64 {
        self.at
    }

    fn forward(&mut self) -> Action {
        let from = self.at;
        self.at += 1;
        self.next = if self.at + 1 == self.steps { Next::Reverse } else { Next::Save };
        Action::Forward { from, to: self.at }
    }

    fn restore(&mut self) -> Action {
        self.then(Next::Discard, Action::Restore { step: self.at, tier: None })
    }

    fn reverse(&mut self) -> Action {
        debug_assert!(self.at < self.steps, "a step of the schedule");
        let step = self.at;
        self.next = if step == 0 { Next::End } else { Next::Restore };
        self.at = step.saturating_sub(1);
        Action::Reverse { step }
    }
}

impl Iterator for StoreAll {
    type Item = Action;

    #[inline]
    fn next(&mut self) -> Option<Action> {
        self.go_on()
    }
}

impl Schedule for StoreAll {
    fn steps(&self) -> Option<u64> {
        Some(self.steps)
    }

    fn slots(&self) -> u64 {
        self.steps - 1
    }
}
