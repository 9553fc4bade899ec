//! The alarm of an engine: it reports a tick at the core's next deadline, even while the
//! application computes and makes no calls.

use unspool_core::{Event, Nanos};

use crate::clock::Clock;
use crate::sink::Sink;
use crate::sync::{Condvar, Mutex, lock, wait, wait_timeout};

#[derive(Debug, Default)]
pub(crate) struct Timer {
    state: Mutex<TimerState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TimerState {
    deadline: Option<Nanos>,
    closed: bool,
}

impl Timer {
    /// Sets the alarm to `deadline`; `None` turns it off.
    pub(crate) fn set(&self, deadline: Option<Nanos>) {
        let mut state = lock(&self.state);
        let sooner = deadline.is_some_and(|new| state.deadline.is_none_or(|old| new < old));
        state.deadline = deadline;
        drop(state);
        // A later alarm needs no notification: the thread sees it when the old one goes off.
        if sooner {
            self.changed.notify_one();
        }
    }

    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_one();
    }

    /// Reports ticks until the alarm is closed.
    pub(crate) fn run(&self, clock: &dyn Clock, sink: &dyn Sink) {
        let mut state = lock(&self.state);
        while !state.closed {
            let Some(deadline) = state.deadline else {
                state = wait(&self.changed, state);
                continue;
            };
            let left = deadline.since(clock.now());
            if left > Nanos(0) {
                state = wait_timeout(&self.changed, state, clock.nap(left));
                continue;
            }
            state.deadline = None;
            drop(state);
            sink.event(Event::Tick, None);
            state = lock(&self.state);
        }
    }
}
