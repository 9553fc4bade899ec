//! What schedules with a known number of steps have in common: each is a small state machine with
//! the kind of the next action as its state and one method for each kind.

use super::{Action, ScheduleError};

/// The kind of the next action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Save,
    Forward,
    Restore,
    Discard,
    Reverse,
    End,
    Nothing,
}

impl Next {
    /// The first action of a schedule that keeps a state if there are two steps or more.
    ///
    /// # Errors
    /// There are no steps, or there is no slot although there are two steps or more.
    pub fn first(steps: u64, slots: u64) -> Result<Next, ScheduleError> {
        match (steps, slots) {
            (0, _) => Err(ScheduleError::NoSteps),
            (1, _) => Ok(Next::Reverse),
            (_, 0) => Err(ScheduleError::TooFewSlots { slots, needed: 1 }),
            _ => Ok(Next::Save),
        }
    }
}

/// A schedule as a walk over the states. Each method gives the action of its kind and says by
/// [`Walk::then`] what comes after it.
pub(super) trait Walk {
    /// Which kind of action comes next.
    fn next_kind(&mut self) -> &mut Next;

    /// The working state's step.
    fn at(&self) -> u64;

    /// Advances. At the last step that is left, a `Reverse` comes next.
    fn forward(&mut self) -> Action;

    /// Restores a kept state.
    fn restore(&mut self) -> Action;

    /// Reverses a step.
    fn reverse(&mut self) -> Action;

    /// Keeps the working state.
    #[inline]
    fn save(&mut self) -> Action {
        let step = self.at();
        self.then(Next::Forward, Action::Save { step, tier: None })
    }

    /// Gives up the copy that was restored for the last time.
    #[inline]
    fn discard(&mut self) -> Action {
        let step = self.at();
        self.then(Next::Reverse, Action::Discard { step, tier: None })
    }

    /// `action`, and after it one of the kind `next`.
    #[inline]
    fn then(&mut self, next: Next, action: Action) -> Action {
        *self.next_kind() = next;
        action
    }

    /// The next action; none after [`Action::End`].
    #[inline]
    fn go_on(&mut self) -> Option<Action> {
        Some(match *self.next_kind() {
            Next::Save => self.save(),
            Next::Forward => self.forward(),
            Next::Restore => self.restore(),
            Next::Discard => self.discard(),
            Next::Reverse => self.reverse(),
            Next::End => self.then(Next::Nothing, Action::End),
            Next::Nothing => return None,
        })
    }
}
