//! A queue and its workers: one lane per link and direction, one per store for deletions.
//!
//! Invariants:
//! - A task is in the queue, or among the running ones, or its report was given: never in two of
//!   these, so that it is reported exactly once.
//! - Tasks begin in the order in which they were pushed.
//! - After the lane was closed nothing is pushed any more, and its workers end when the queue is
//!   empty.

use std::collections::VecDeque;
use std::sync::Arc;

use unspool_core::{Nanos, TransferId};

use crate::clock::Clock;
use crate::job::{Answer, Task};
use crate::sync::{Condvar, Mutex, lock, wait, wait_timeout};

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) name: Arc<str>,
    /// The most tasks that the core has in flight here.
    limit: usize,
    state: Mutex<State>,
    /// There is a task, or the lane was closed.
    work: Condvar,
    /// The last worker has ended.
    empty: Condvar,
}

#[derive(Debug)]
struct State {
    queue: VecDeque<Arc<Task>>,
    running: Vec<(Arc<Task>, Nanos)>,
    workers: usize,
    closed: bool,
}

impl Lane {
    /// A lane for `workers` workers, each of which calls [`Lane::next`] until it gets nothing and
    /// then [`Lane::leave`].
    pub(crate) fn new(name: impl Into<Arc<str>>, limit: usize, workers: usize) -> Lane {
        let state = State {
            queue: VecDeque::new(),
            running: Vec::with_capacity(workers),
            workers,
            closed: false,
        };
        let (work, empty) = (Condvar::new(), Condvar::new());
        Lane { name: name.into(), limit, state: Mutex::new(state), work, empty }
    }

    pub(crate) fn push(&self, task: Task) -> Answer {
        let mut state = lock(&self.state);
        if state.closed {
            return Answer::NeverRuns;
        }
        let held = state.queue.len() + state.running.len();
        debug_assert!(held < self.limit, "{}: more than {} in flight", self.name, self.limit);
        state.queue.push_back(Arc::new(task));
        drop(state);
        self.work.notify_one();
        Answer::ReportFollows
    }

    /// Takes `transfer` out of the queue, or asks its worker to stop.
    pub(crate) fn cancel(&self, transfer: TransferId) -> Answer {
        let mut state = lock(&self.state);
        if let Some((task, _)) = state.running.iter().find(|(task, _)| task.is_transfer(transfer)) {
            task.cancel();
            return Answer::ReportFollows;
        }
        match state.queue.iter().position(|task| task.is_transfer(transfer)) {
            Some(index) => {
                state.queue.remove(index);
                Answer::NeverRuns
            }
            None => Answer::ReportFollows,
        }
    }

    /// Waits for the next task; `None` when the lane is closed and its queue is empty.
    pub(crate) fn next(&self, clock: &dyn Clock) -> Option<(Arc<Task>, Nanos)> {
        let mut state = lock(&self.state);
        loop {
            if let Some(task) = state.queue.pop_front() {
                let now = clock.now();
                state.running.push((Arc::clone(&task), now));
                return Some((task, now));
            }
            if state.closed {
                return None;
            }
            state = wait(&self.work, state);
        }
    }

    /// `task` has ended; its report comes next.
    pub(crate) fn finish(&self, task: &Arc<Task>) {
        let mut state = lock(&self.state);
        let held = state.running.len();
        state.running.retain(|(running, _)| !Arc::ptr_eq(running, task));
        debug_assert_eq!(state.running.len() + 1, held, "a task ends once");
    }

    /// A worker has ended.
    pub(crate) fn leave(&self) {
        let mut state = lock(&self.state);
        state.workers -= 1;
        if state.workers == 0 {
            self.empty.notify_all();
        }
    }

    /// Nothing is accepted any more; what is in the queue is still done.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.work.notify_all();
    }

    /// Nothing is accepted any more. Gives back what was in the queue, whose reports the caller
    /// now owes, and asks the workers to stop what they do.
    pub(crate) fn close_and_drop(&self) -> VecDeque<Arc<Task>> {
        let mut state = lock(&self.state);
        state.closed = true;
        for (task, _) in &state.running {
            task.cancel();
        }
        let dropped = std::mem::take(&mut state.queue);
        drop(state);
        self.work.notify_all();
        dropped
    }

    /// Waits until every worker has ended, at most until `deadline`. Returns whether they have.
    pub(crate) fn wait_empty(&self, deadline: Nanos, clock: &dyn Clock) -> bool {
        let mut state = lock(&self.state);
        while state.workers > 0 {
            let left = deadline.since(clock.now());
            if left == Nanos(0) {
                return false;
            }
            state = wait_timeout(&self.empty, state, clock.nap(left));
        }
        true
    }

    /// What is being done and since when, for people.
    pub(crate) fn running(&self, now: Nanos) -> Vec<String> {
        let seconds = |since: Nanos| now.since(since).0 as f64 / 1e9;
        let state = lock(&self.state);
        let line = |(task, since): &(Arc<Task>, Nanos)| {
            format!("{} on {} for {:.1} s", task.work, self.name, seconds(*since))
        };
        state.running.iter().map(line).collect()
    }
}
