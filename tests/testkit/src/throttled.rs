//! A wrapper that is as slow as a slower medium.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use unspool_core::CheckpointId;
use unspool_tiers::{Description, Stored, Tier, TierError};

use crate::operation::total;

/// A tier with the bandwidth and the latency of a slower one, for benchmarks and demonstrations.
///
/// All threads share the bandwidth, as on a real medium. Tests that need an order of events use
/// [`Gated`](crate::Gated) instead, which has no clock.
#[derive(Debug)]
pub struct Throttled {
    inner: Arc<dyn Tier>,
    bytes_per_second: f64,
    latency: Duration,
    /// Time at which the medium has moved all bytes so far.
    free_at: Mutex<Instant>,
}

impl Throttled {
    /// Moves at most `bytes_per_second` to and from `inner`; every `put` and `get` takes at least
    /// `latency`.
    #[must_use]
    pub fn new(inner: Arc<dyn Tier>, bytes_per_second: f64, latency: Duration) -> Throttled {
        assert!(bytes_per_second > 0.0, "a medium that never ends a call is a hang");
        Throttled { inner, bytes_per_second, latency, free_at: Mutex::new(Instant::now()) }
    }

    /// Executes `call` and returns when the slower medium would have.
    fn slowly<T>(&self, bytes: u64, call: impl FnOnce() -> T) -> T {
        let end = self.book(bytes) + self.latency;
        let result = call();
        thread::sleep(end.saturating_duration_since(Instant::now()));
        result
    }

    /// Reserves the medium for as long as `bytes` need, after earlier calls.
    fn book(&self, bytes: u64) -> Instant {
        let span = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        *free_at = (*free_at).max(Instant::now()) + span;
        *free_at
    }
}

impl Tier for Throttled {
    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn put(&self, id: CheckpointId, offset: u64, parts: &[&[u8]]) -> Result<(), TierError> {
        self.slowly(total(parts), || self.inner.put(id, offset, parts))
    }

    fn get(&self, id: CheckpointId, skip: u64, parts: &mut [&mut [u8]]) -> Result<(), TierError> {
        self.slowly(total(parts), || self.inner.get(id, skip, parts))
    }

    fn delete(&self, id: CheckpointId) -> Result<(), TierError> {
        self.inner.delete(id)
    }

    fn list(&self) -> Result<Vec<Stored>, TierError> {
        self.inner.list()
    }

    fn sync(&self) -> Result<(), TierError> {
        self.inner.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspool_core::TierKind;
    use unspool_tiers::Arena;

    #[test]
    fn a_put_takes_at_least_the_time_of_the_slower_medium() {
        let arena = Arc::new(Arena::new(TierKind::Host, 1 << 20).unwrap());
        let tier = Throttled::new(arena, 10e6, Duration::from_millis(1));
        let start = Instant::now();
        tier.put(CheckpointId(1), 0, &[&[1; 100_000]]).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(11));
    }
}
