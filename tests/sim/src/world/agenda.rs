//! What will happen, and when. Of two things at the same time the one that was planned first
//! happens first, so a run is the same every time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use unspool_core::{Event, Nanos, RequestId};

use crate::device::streams::{Mark, OpId};

/// The number of an application thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ThreadId(pub usize);

/// One thing that will happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// A thread goes on with its script.
    Wake(ThreadId),
    /// A thread sees the answer to its call.
    Answer(ThreadId, RequestId),
    /// A call has waited long enough.
    GiveUp(ThreadId, RequestId),
    /// An operation of a stream is over.
    OpDone(OpId),
    /// The background reports to the core, after a wait for its own mark if it enqueued anything.
    Report(Event, Option<Mark>),
    /// The settler looks whether the saves that were handed over are done.
    Settle,
    /// A deadline of the core has passed.
    Tick,
    /// Nothing fails any more.
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

/// The queue of everything that will happen.
#[derive(Clone, Debug, Default)]
pub struct Agenda {
    entries: BinaryHeap<Reverse<Entry>>,
    planned: u64,
}

impl Agenda {
    /// `action` will happen at `at`.
    pub fn plan(&mut self, at: Nanos, action: Action) {
        let number = self.planned;
        self.planned += 1;
        self.entries.push(Reverse(Entry { at, number, action }));
    }

    /// What happens next.
    pub fn take_next(&mut self) -> Option<(Nanos, Action)> {
        self.entries.pop().map(|Reverse(entry)| (entry.at, entry.action))
    }

    /// Everything that is planned, in no order.
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
