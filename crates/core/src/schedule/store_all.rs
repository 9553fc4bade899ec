//! Keeps every state: no step is computed twice.

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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Save,
    Forward,
    Restore,
    Discard,
    Reverse,
    End,
    Nothing,
}

impl StoreAll {
    /// A schedule for so many steps.
    ///
    /// # Errors
    /// There are no steps.
    pub fn new(steps: u64) -> Result<StoreAll, ScheduleError> {
        match steps {
            0 => Err(ScheduleError::NoSteps),
            1 => Ok(StoreAll { steps, at: 0, next: Next::Reverse }),
            _ => Ok(StoreAll { steps, at: 0, next: Next::Save }),
        }
    }

    fn advance(&mut self) -> Action {
        let from = self.at;
        self.at += 1;
        self.next = if self.at + 1 == self.steps { Next::Reverse } else { Next::Save };
        Action::Forward { from, to: self.at }
    }

    fn reverse(&mut self) -> Action {
        debug_assert!(self.at < self.steps, "a step of the schedule");
        let step = self.at;
        self.next = if step == 0 { Next::End } else { Next::Restore };
        self.at = step.saturating_sub(1);
        Action::Reverse { step }
    }

    fn then(&mut self, next: Next, action: Action) -> Action {
        self.next = next;
        action
    }
}

impl Iterator for StoreAll {
    type Item = Action;

    #[inline]
    fn next(&mut self) -> Option<Action> {
        let (step, tier) = (self.at, None);
        Some(match self.next {
            Next::Save => self.then(Next::Forward, Action::Save { step, tier }),
            Next::Forward => self.advance(),
            Next::Restore => self.then(Next::Discard, Action::Restore { step, tier }),
            Next::Discard => self.then(Next::Reverse, Action::Discard { step, tier }),
            Next::Reverse => self.reverse(),
            Next::End => self.then(Next::Nothing, Action::End),
            Next::Nothing => return None,
        })
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
