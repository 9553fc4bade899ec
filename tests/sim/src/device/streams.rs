//! Streams: queues of operations that run one after the other. A fence is a place in a stream; it
//! is reached when every operation before it is over, and other streams can wait for it.
//!
//! A worker has a stream of its own and a queue of jobs: it takes the next job when the previous
//! one is over, and only then determines what the job must wait for.
//! before is over, and only then looks what the job must wait for.

use std::collections::{BTreeMap, VecDeque};

use unspool_verify::Agent;

/// Identifier of a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StreamId(pub usize);

impl StreamId {
    /// The stream's name for the order checker.
    #[must_use]
    pub fn agent(self) -> Agent {
        Agent::Stream(self.0 as u64)
    }
}

/// Identifier of an operation, unique over all streams.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OpId(pub u64);

/// A place in a stream: directly after an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Fence(pub OpId);

impl Fence {
    /// The fence's name for the order checker.
    #[must_use]
    pub fn event(self) -> u64 {
        self.0.0
    }
}

#[derive(Clone, Debug)]
struct Item {
    op: OpId,
    /// Fences to wait for; unknown while no worker has taken the job.
    waits: Option<Vec<Fence>>,
}

#[derive(Clone, Debug, Default)]
struct Stream {
    items: VecDeque<Item>,
    running: bool,
}

/// All streams of the machine.
#[derive(Clone, Debug, Default)]
pub struct Streams {
    streams: Vec<Stream>,
    /// The stream of every unfinished operation.
    open: BTreeMap<OpId, StreamId>,
    next_op: u64,
}

impl Streams {
    /// A new stream.
    pub fn create(&mut self) -> StreamId {
        self.streams.push(Stream::default());
        StreamId(self.streams.len() - 1)
    }

    /// Enqueues an operation that begins once `waits` are reached.
    pub fn push(&mut self, stream: StreamId, waits: Vec<Fence>) -> OpId {
        self.add(stream, Some(waits))
    }

    /// Adds a job to the queue of a worker's stream.
    pub fn push_job(&mut self, stream: StreamId) -> OpId {
        self.add(stream, None)
    }

    fn add(&mut self, stream: StreamId, waits: Option<Vec<Fence>>) -> OpId {
        let op = OpId(self.next_op);
        self.next_op += 1;
        self.streams[stream.0].items.push_back(Item { op, waits });
        self.open.insert(op, stream);
        op
    }

    /// The jobs that are next and that their workers have not taken.
    #[must_use]
    pub fn next_jobs(&self) -> Vec<(OpId, StreamId)> {
        let heads = self.streams.iter().enumerate();
        let next = heads.filter_map(|(number, stream)| {
            let head = stream.items.front().filter(|item| item.waits.is_none())?;
            Some((head.op, StreamId(number)))
        });
        next.collect()
    }

    /// Makes a worker take the next job of its stream, which begins once `waits` are reached.
    pub fn take_up(&mut self, stream: StreamId, waits: Vec<Fence>) {
        let head = self.streams[stream.0].items.front_mut();
        let head = head.expect("a stream with a next job has one");
        assert!(head.waits.is_none(), "a job is taken up once");
        head.waits = Some(waits);
    }

    /// Number of operations in the queue of `stream`, including the running one.
    #[must_use]
    pub fn len(&self, stream: StreamId) -> usize {
        self.streams[stream.0].items.len()
    }

    /// Whether every operation before `fence` is over.
    #[must_use]
    pub fn is_reached(&self, fence: Fence) -> bool {
        !self.open.contains_key(&fence.0)
    }

    /// Whether nothing is enqueued or running.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Begins every operation that can begin; the caller executes them and calls
    /// [`Streams::complete`] for each.
    pub fn begin_ready(&mut self) -> Vec<OpId> {
        let ready: Vec<usize> = (0..self.streams.len()).filter(|s| self.is_ready(*s)).collect();
        ready.into_iter().filter_map(|stream| self.begin(stream)).collect()
    }

    fn is_ready(&self, stream: usize) -> bool {
        let stream = &self.streams[stream];
        let waits = stream.items.front().and_then(|head| head.waits.as_ref());
        !stream.running && waits.is_some_and(|all| all.iter().all(|m| self.is_reached(*m)))
    }

    fn begin(&mut self, stream: usize) -> Option<OpId> {
        let stream = &mut self.streams[stream];
        stream.running = true;
        stream.items.front().map(|head| head.op)
    }

    /// Ends a running operation.
    pub fn complete(&mut self, op: OpId) {
        let id = self.open.remove(&op).expect("an operation is over once");
        let stream = &mut self.streams[id.0];
        let head = stream.items.pop_front().expect("the operation is in its stream");
        assert!(head.op == op && stream.running, "only the head of a stream runs");
        stream.running = false;
    }

    /// Withdraws a job that no worker has taken; returns `false` when one has.
    pub fn withdraw(&mut self, op: OpId) -> bool {
        let Some(&id) = self.open.get(&op) else { return false };
        let items = &mut self.streams[id.0].items;
        let waiting = |item: &Item| item.op == op && item.waits.is_none();
        let Some(at) = items.iter().position(waiting) else { return false };
        items.remove(at);
        self.open.remove(&op);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_streams() -> (Streams, StreamId, StreamId) {
        let mut streams = Streams::default();
        let (one, two) = (streams.create(), streams.create());
        (streams, one, two)
    }

    #[test]
    fn a_stream_runs_its_operations_one_after_the_other() {
        let (mut streams, one, _) = two_streams();
        let first = streams.push(one, vec![]);
        let second = streams.push(one, vec![]);
        assert_eq!(streams.begin_ready(), [first]);
        assert_eq!(streams.begin_ready(), []);
        streams.complete(first);
        assert_eq!(streams.begin_ready(), [second]);
    }

    #[test]
    fn an_operation_waits_for_fences_of_other_streams() {
        let (mut streams, one, two) = two_streams();
        let first = streams.push(one, vec![]);
        let second = streams.push(two, vec![Fence(first)]);
        assert_eq!(streams.begin_ready(), [first]);
        assert_eq!(streams.begin_ready(), []);
        streams.complete(first);
        assert!(streams.is_reached(Fence(first)));
        assert_eq!(streams.begin_ready(), [second]);
    }

    #[test]
    fn a_job_begins_only_when_its_worker_has_taken_it_up() {
        let (mut streams, one, two) = two_streams();
        let first = streams.push(one, vec![]);
        let (job, next) = (streams.push_job(two), streams.push_job(two));
        assert_eq!(streams.begin_ready(), [first]);
        assert_eq!(streams.next_jobs(), [(job, two)]);
        streams.take_up(two, vec![Fence(first)]);
        assert_eq!(streams.next_jobs(), []);
        assert_eq!(streams.begin_ready(), []);
        streams.complete(first);
        assert_eq!(streams.begin_ready(), [job]);
        streams.complete(job);
        assert_eq!(streams.next_jobs(), [(next, two)]);
    }

    #[test]
    fn only_a_job_that_was_not_taken_up_is_withdrawn() {
        let (mut streams, one, _) = two_streams();
        let first = streams.push_job(one);
        let second = streams.push_job(one);
        streams.take_up(one, vec![]);
        assert!(!streams.withdraw(first));
        assert!(streams.withdraw(second) && !streams.withdraw(second));
        assert_eq!(streams.begin_ready(), [first]);
        streams.complete(first);
        assert!(streams.is_idle());
    }
}
