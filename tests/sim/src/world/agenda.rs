//! The queue of future actions. Of two actions at the same time the one that was planned first is
//! executed first, so a run is deterministic.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use unspool_core::{Event, Nanos, RequestId};

use crate::device::streams::{Fence, OpId};

/// Identifier of an application thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ThreadId(pub usize);

/// A future action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// A thread continues its script.
    Wake(ThreadId),
    /// An answer arrives at its thread.
    Answer(ThreadId, RequestId),
    /// A call is withdrawn after a long wait.
    GiveUp(ThreadId, RequestId),
    /// An operation of a stream ends.
    OpDone(OpId),
    /// The background reports to the core, after a wait for its own fence if it enqueued anything.
    Report(Event, Option<Fence>),
    /// Saves in flight that are done are reported.
    ReportSaves,
    /// A deadline of the core is reached.
    Tick,
    /// The fastest tier loses memory.
    Shrink,
    /// The fastest tier has its memory again.
    Grow,
    /// The device of the fastest tier is lost.
    LoseDevice,
    /// The faults stop.
    FaultsStop,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    at: Nanos,
    number: u64,
    action: Action,
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The queue of future actions.
#[derive(Clone, Debug, Default)]
pub struct Agenda {
    entries: BinaryHeap<Reverse<Entry>>,
    planned: u64,
}

impl Agenda {
    /// Plans `action` for the time `at`.
    pub fn plan(&mut self, at: Nanos, action: Action) {
        let number = self.planned;
        self.planned += 1;
        self.entries.push(Reverse(Entry { at, number, action }));
    }

    /// Removes and returns the next action.
    pub fn take_next(&mut self) -> Option<(Nanos, Action)> {
        self.entries.pop().map(|Reverse(entry)| (entry.at, entry.action))
    }

    /// All planned actions, in no particular order.
    pub fn planned(&self) -> impl Iterator<Item = &Action> {
        self.entries.iter().map(|Reverse(entry)| &entry.action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_happen_in_the_order_of_time_and_then_of_planning() {
        let mut agenda = Agenda::default();
        agenda.plan(Nanos(5), Action::Wake(ThreadId(0)));
        agenda.plan(Nanos(3), Action::Wake(ThreadId(1)));
        agenda.plan(Nanos(5), Action::Wake(ThreadId(2)));
        let order: Vec<Action> =
            std::iter::from_fn(|| agenda.take_next()).map(|(_, a)| a).collect();
        assert_eq!(order, [1, 0, 2].map(|thread| Action::Wake(ThreadId(thread))));
    }
}
