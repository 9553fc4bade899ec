//! A schedule that someone wrote down: any list of actions that passes the interpreter.

use alloc::sync::Arc;

use super::{Action, Counts, Fault, Limits, Schedule, check};

/// A list of actions. It was checked when it was made; clones share it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    actions: Arc<[Action]>,
    next: usize,
    counts: Counts,
}

impl Listed {
    /// The schedule that consists of these actions; the first `Reverse` says how many steps it has.
    ///
    /// # Errors
    /// The first action that breaks a rule, or that there is no `End`.
    pub fn new(actions: impl Into<Arc<[Action]>>) -> Result<Listed, Fault> {
        let actions = actions.into();
        let counts = check(actions.iter().copied(), Limits::none())?;
        Ok(Listed { actions, next: 0, counts })
    }

    /// The counts of the whole list.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// All actions, including those that the iterator has given already.
    #[must_use]
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }
}

impl Iterator for Listed {
    type Item = Action;

    #[inline]
    fn next(&mut self) -> Option<Action> {
        let action = self.actions.get(self.next).copied()?;
        self.next += 1;
        Some(action)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.actions.len() - self.next;
        (left, Some(left))
    }
}

impl Schedule for Listed {
    fn steps(&self) -> Option<u64> {
        Some(self.counts.steps)
    }

    fn slots(&self) -> u64 {
        self.counts.peak
    }
}
