//! Streams: queues of operations that run one after the other. A mark is a place in a stream; it
//! is reached when every operation before it is over, and other streams can wait for it. Each
//! stream carries the clock of what is ordered before its next operation.

use std::collections::{BTreeMap, VecDeque};

use crate::check::clocks::{Agent, Clock};

/// The number of a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StreamId(pub usize);

/// The number of an operation, the same over all streams.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OpId(pub u64);

/// A place in a stream: behind an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Mark(pub OpId);

#[derive(Clone, Debug)]
struct Item {
    op: OpId,
    waits: Vec<Mark>,
    /// What was known to whoever enqueued the operation.
    known: Clock,
}

#[derive(Clone, Debug)]
struct Stream {
    agent: Agent,
    clock: Clock,
    items: VecDeque<Item>,
    running: bool,
}

/// All streams of the machine.
#[derive(Clone, Debug, Default)]
pub struct Streams {
    streams: Vec<Stream>,
    /// The stream of every operation that is not over.
    open: BTreeMap<OpId, StreamId>,
    /// What was known when an operation was over.
    reached: BTreeMap<Mark, Clock>,
    next_op: u64,
}

impl Streams {
    /// A new stream, whose actions are those of `agent`.
    pub fn create(&mut self, agent: Agent) -> StreamId {
        let stream =
            Stream { agent, clock: Clock::default(), items: VecDeque::new(), running: false };
        self.streams.push(stream);
        StreamId(self.streams.len() - 1)
    }

    /// Enqueues an operation that begins once `waits` are reached, for someone who knows `known`.
    pub fn push(&mut self, stream: StreamId, waits: Vec<Mark>, known: Clock) -> OpId {
        let op = OpId(self.next_op);
        self.next_op += 1;
        self.streams[stream.0].items.push_back(Item { op, waits, known });
        self.open.insert(op, stream);
        op
    }

    /// The operations in the queue of `stream`, the running one included.
    #[must_use]
    pub fn len(&self, stream: StreamId) -> usize {
        self.streams[stream.0].items.len()
    }

    /// Whether every operation before `mark` is over.
    #[must_use]
    pub fn is_reached(&self, mark: Mark) -> bool {
        !self.open.contains_key(&mark.0)
    }

    /// What is known to someone who waited for `mark`; nothing before it is reached.
    #[must_use]
    pub fn known_at(&self, mark: Mark) -> Clock {
        self.reached.get(&mark).cloned().unwrap_or_default()
    }

    /// Whether nothing is enqueued or running.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Begins every operation that can begin; the caller runs them and calls
    /// [`Streams::complete`] for each.
    pub fn begin_ready(&mut self) -> Vec<OpId> {
        let ready: Vec<usize> = (0..self.streams.len()).filter(|s| self.is_ready(*s)).collect();
        ready.into_iter().map(|stream| self.begin(stream)).collect()
    }

    fn is_ready(&self, stream: usize) -> bool {
        let stream = &self.streams[stream];
        let head = stream.items.front();
        !stream.running && head.is_some_and(|i| i.waits.iter().all(|m| self.is_reached(*m)))
    }

    fn begin(&mut self, stream: usize) -> OpId {
        let stream = &mut self.streams[stream];
        let head = stream.items.front().expect("a ready stream has an operation");
        stream.clock.join(&head.known);
        for mark in &head.waits {
            if let Some(known) = self.reached.get(mark) {
                stream.clock.join(known);
            }
        }
        stream.running = true;
        head.op
    }

    /// The agent and the clock of the stream that runs `op`.
    pub fn party(&mut self, op: OpId) -> (Agent, &mut Clock) {
        let stream = self.open[&op];
        let stream = &mut self.streams[stream.0];
        (stream.agent, &mut stream.clock)
    }

    /// A running operation is over.
    pub fn complete(&mut self, op: OpId) {
        let id = self.open.remove(&op).expect("an operation is over once");
        let stream = &mut self.streams[id.0];
        let head = stream.items.pop_front().expect("the operation is in its stream");
        assert!(head.op == op && stream.running, "only the head of a stream runs");
        stream.running = false;
        self.reached.insert(Mark(op), stream.clock.clone());
    }

    /// Takes an operation out that has not begun; `false` when it has.
    pub fn withdraw(&mut self, op: OpId) -> bool {
        let Some(&id) = self.open.get(&op) else { return false };
        let stream = &mut self.streams[id.0];
        let running = stream.running && stream.items.front().is_some_and(|head| head.op == op);
        if running {
            return false;
        }
        stream.items.retain(|item| item.op != op);
        self.open.remove(&op);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_streams() -> (Streams, StreamId, StreamId) {
        let mut streams = Streams::default();
        let (one, two) = (streams.create(Agent(0)), streams.create(Agent(1)));
        (streams, one, two)
    }

    #[test]
    fn a_stream_runs_its_operations_one_after_the_other() {
        let (mut streams, one, _) = two_streams();
        let first = streams.push(one, vec![], Clock::default());
        let second = streams.push(one, vec![], Clock::default());
        assert_eq!(streams.begin_ready(), [first]);
        assert_eq!(streams.begin_ready(), []);
        streams.complete(first);
        assert_eq!(streams.begin_ready(), [second]);
    }

    #[test]
    fn an_operation_waits_for_marks_of_other_streams_and_then_knows_them() {
        let (mut streams, one, two) = two_streams();
        let first = streams.push(one, vec![], Clock::default());
        let second = streams.push(two, vec![Mark(first)], Clock::default());
        assert_eq!(streams.begin_ready(), [first]);
        let (agent, clock) = streams.party(first);
        let time = clock.tick(agent);
        streams.complete(first);
        assert_eq!(streams.begin_ready(), [second]);
        assert!(streams.party(second).1.knows(Agent(0), time));
    }

    #[test]
    fn only_an_operation_that_has_not_begun_is_withdrawn() {
        let (mut streams, one, _) = two_streams();
        let first = streams.push(one, vec![], Clock::default());
        let second = streams.push(one, vec![], Clock::default());
        streams.begin_ready();
        assert!(!streams.withdraw(first));
        assert!(streams.withdraw(second));
        streams.complete(first);
        assert!(streams.is_idle());
    }
}
