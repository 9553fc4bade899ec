//! A queue and its workers: one lane per link and direction, one per store for deletions.
//!
//! Invariants:
//! - A task is either in the queue, or running, or reported, so that it is reported exactly once.
//! - Tasks begin in the order in which they were pushed.
//! - A closed lane accepts no task, and its workers end when the queue is empty.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use unspool_core::{Nanos, TransferId};

use crate::clock::Clock;
use crate::job::{Submitted, Task};
use crate::sync::{Condvar, Mutex, lock, wait, wait_timeout};

/// For how long a worker that has ended a task looks for the next one before it sleeps. Waking it
/// costs the application up to 20 microseconds in a virtual machine, in each save of a series.
const LOOK: Duration = Duration::from_micros(50);

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) name: Arc<str>,
    /// The maximum number of tasks that the core has in flight here.
    limit: usize,
    state: Mutex<LaneState>,
    /// Whether a task may be in the queue; read without the lock.
    has_work: AtomicBool,
    /// Notified when there is a task, or the lane is closed.
    work: Condvar,
    /// Notified when the last worker has ended.
    empty: Condvar,
}

#[derive(Debug)]
struct LaneState {
    queue: VecDeque<Arc<Task>>,
    running: Vec<(Arc<Task>, Nanos)>,
    workers: usize,
    /// Those of the workers that have to be woken for a task.
    asleep: usize,
    closed: bool,
}

impl Lane {
    /// A lane for `workers` workers, each of which calls [`Lane::next`] until it returns `None` and
    /// then [`Lane::leave`].
    pub(crate) fn new(name: impl Into<Arc<str>>, limit: usize, workers: usize) -> Lane {
        let state = LaneState {
            queue: VecDeque::new(),
            running: Vec::with_capacity(workers),
            workers,
            asleep: 0,
            closed: false,
        };
        let (work, empty) = (Condvar::new(), Condvar::new());
        let (state, has_work) = (Mutex::new(state), AtomicBool::new(false));
        Lane { name: name.into(), limit, state, has_work, work, empty }
    }

    pub(crate) fn push(&self, task: Task) -> Submitted {
        let mut state = lock(&self.state);
        if state.closed {
            return Submitted::NeverRuns;
        }
        let held = state.queue.len() + state.running.len();
        debug_assert!(held < self.limit, "{}: more than {} in flight", self.name, self.limit);
        state.queue.push_back(Arc::new(task));
        self.has_work.store(true, Ordering::Release);
        let wakes = state.asleep > 0;
        drop(state);
        if wakes {
            self.work.notify_one();
        }
        Submitted::ReportFollows
    }

    /// Takes `transfer` out of the queue, or asks its worker to stop.
    pub(crate) fn cancel(&self, transfer: TransferId) -> Submitted {
        let mut state = lock(&self.state);
        if let Some((task, _)) = state.running.iter().find(|(task, _)| task.is_transfer(transfer)) {
            task.cancel();
            return Submitted::ReportFollows;
        }
        match state.queue.iter().position(|task| task.is_transfer(transfer)) {
            Some(index) => {
                state.queue.remove(index);
                Submitted::NeverRuns
            }
            None => Submitted::ReportFollows,
        }
    }

    /// Waits for the next task; `None` when the lane is closed and its queue is empty.
    pub(crate) fn next(&self, clock: &dyn Clock) -> Option<(Arc<Task>, Nanos)> {
        let (mut state, mut has_looked) = (lock(&self.state), false);
        loop {
            if let Some(task) = state.queue.pop_front() {
                let now = clock.now();
                state.running.push((Arc::clone(&task), now));
                return Some((task, now));
            }
            if state.closed {
                return None;
            }
            self.has_work.store(false, Ordering::Release);
            if has_looked {
                state.asleep += 1;
                state = wait(&self.work, state);
                state.asleep -= 1;
            } else {
                drop(state);
                self.look();
                (state, has_looked) = (lock(&self.state), true);
            }
        }
    }

    /// Looks for a task for a while, without the lock.
    fn look(&self) {
        // A scheduler that tries interleavings would try each turn of the loop.
        if cfg!(feature = "shuttle") || !has_cores_to_spare() {
            return;
        }
        let begin = Instant::now();
        while !self.has_work.load(Ordering::Acquire) && begin.elapsed() < LOOK {
            std::hint::spin_loop();
        }
    }

    /// Removes `task`, which has ended and will be reported next.
    pub(crate) fn finish(&self, task: &Arc<Task>) {
        let mut state = lock(&self.state);
        let held = state.running.len();
        state.running.retain(|(running, _)| !Arc::ptr_eq(running, task));
        debug_assert_eq!(state.running.len() + 1, held, "a task ends once");
    }

    /// Records that a worker has ended.
    pub(crate) fn leave(&self) {
        let mut state = lock(&self.state);
        state.workers -= 1;
        if state.workers == 0 {
            self.empty.notify_all();
        }
    }

    /// Closes the lane; queued tasks are still executed.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.work.notify_all();
    }

    /// Closes the lane, asks the workers to stop, and returns the queued tasks, which the caller
    /// has to report.
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

    /// Descriptions of the running tasks and their durations.
    pub(crate) fn running(&self, now: Nanos) -> Vec<String> {
        let seconds = |since: Nanos| now.since(since).0 as f64 / 1e9;
        let state = lock(&self.state);
        let line = |(task, since): &(Arc<Task>, Nanos)| {
            format!("{} on {} for {:.1} s", task.work, self.name, seconds(*since))
        };
        state.running.iter().map(line).collect()
    }
}

/// Whether workers may occupy a core for moments in which they have nothing to do.
fn has_cores_to_spare() -> bool {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from)) >= 4
}
