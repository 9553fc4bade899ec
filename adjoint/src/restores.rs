//! The order in which a schedule restores, found by a dry run.

use core::iter::Peekable;

use super::{Action, Schedule};

/// An iterator over the restores of a schedule alone: the step, and whether it is the copy's last
/// use, which it is when the copy's `Discard` follows at once.
///
/// Not meaningful for a schedule whose number of steps is not known.
#[derive(Clone, Debug)]
pub struct Restores<S: Iterator<Item = Action>> {
    actions: Peekable<S>,
}

impl<S: Schedule> Restores<S> {
    /// The restores that are still to come. Takes the schedule: give a clone of one that will be
    /// used.
    pub fn new(schedule: S) -> Restores<S> {
        Restores { actions: schedule.peekable() }
    }
}

impl<S: Schedule> Iterator for Restores<S> {
    type Item = (u64, bool);

    fn next(&mut self) -> Option<(u64, bool)> {
        loop {
            if let Action::Restore { step, tier } = self.actions.next()? {
                let last = self.actions.peek() == Some(&Action::Discard { step, tier });
                return Some((step, last));
            }
        }
    }
}
