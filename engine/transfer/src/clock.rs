//! The source of time: the system, or a test.

use std::fmt;
use std::time::{Duration, Instant};

use unspool_core::Nanos;

use crate::sync::atomic::{AtomicU64, Ordering};

/// A clock that never goes back.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time since some moment in the past.
    fn now(&self) -> Nanos;

    /// How long a thread may sleep at a time while it waits until `span` has passed on this clock.
    fn nap(&self, span: Nanos) -> Duration;
}

/// The monotonic clock of the system.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn nap(&self, span: Nanos) -> Duration {
        Duration::from_nanos(span.0)
    }
}

/// A clock that advances only on request: for tests.
#[derive(Debug, Default)]
pub struct ManualClock {
    now: AtomicU64,
}

impl ManualClock {
    /// Advances the time by `span`.
    pub fn advance(&self, span: Duration) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.now.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Nanos {
        Nanos(self.now.load(Ordering::SeqCst))
    }

    fn nap(&self, _span: Nanos) -> Duration {
        Duration::from_millis(1)
    }
}
