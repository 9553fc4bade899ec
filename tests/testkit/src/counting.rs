//! A wrapper that counts calls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use unspool_core::CheckpointId;
use unspool_tiers::{Description, Stored, Tier, TierError};

use crate::operation::{Operation, total};

/// Counters of one operation of a [`Counting`] tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Number of calls that have begun.
    pub calls: u64,
    /// Number of calls that failed.
    pub failures: u64,
    /// Bytes of the calls that succeeded.
    pub bytes: u64,
    /// Number of calls in progress.
    pub running: u64,
    /// Maximum number of concurrent calls.
    pub most_running: u64,
}

/// A tier that counts calls, bytes and errors, and passes the calls to another tier.
#[derive(Debug)]
pub struct Counting {
    inner: Arc<dyn Tier>,
    counts: Mutex<[Counts; Operation::ALL.len()]>,
}

impl Counting {
    /// Counts the calls to `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Tier>) -> Counting {
        Counting { inner, counts: Mutex::default() }
    }

    /// The counters of `operation`.
    #[must_use]
    pub fn counts(&self, operation: Operation) -> Counts {
        self.all()[operation.index()]
    }

    fn all(&self) -> MutexGuard<'_, [Counts; Operation::ALL.len()]> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count<T>(
        &self,
        operation: Operation,
        bytes: u64,
        call: impl FnOnce() -> Result<T, TierError>,
    ) -> Result<T, TierError> {
        {
            let counts = &mut self.all()[operation.index()];
            counts.calls += 1;
            counts.running += 1;
            counts.most_running = counts.most_running.max(counts.running);
        }
        let result = call();
        let counts = &mut self.all()[operation.index()];
        counts.running -= 1;
        match result {
            Ok(_) => counts.bytes += bytes,
            Err(_) => counts.failures += 1,
        }
        result
    }
}

impl Tier for Counting {
    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn put(&self, id: CheckpointId, offset: u64, parts: &[&[u8]]) -> Result<(), TierError> {
        self.count(Operation::Put, total(parts), || self.inner.put(id, offset, parts))
    }

    fn get(&self, id: CheckpointId, skip: u64, parts: &mut [&mut [u8]]) -> Result<(), TierError> {
        self.count(Operation::Get, total(parts), || self.inner.get(id, skip, parts))
    }

    fn delete(&self, id: CheckpointId) -> Result<(), TierError> {
        self.count(Operation::Delete, 0, || self.inner.delete(id))
    }

    fn list(&self) -> Result<Vec<Stored>, TierError> {
        self.count(Operation::List, 0, || self.inner.list())
    }

    fn sync(&self) -> Result<(), TierError> {
        self.count(Operation::Sync, 0, || self.inner.sync())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspool_core::TierKind;
    use unspool_tiers::Arena;

    #[test]
    fn calls_bytes_and_failures_are_counted_apart() {
        let arena = Arc::new(Arena::new(TierKind::Host, 4096).unwrap());
        let tier = Counting::new(arena);
        tier.put(CheckpointId(1), 0, &[b"abc", b"de"]).unwrap();
        assert!(tier.put(CheckpointId(1), 0, &[b"abc"]).is_err());
        tier.get(CheckpointId(1), 0, &mut [&mut [0; 2]]).unwrap();
        let puts = Counts { calls: 2, failures: 1, bytes: 5, running: 0, most_running: 1 };
        assert_eq!(tier.counts(Operation::Put), puts);
        assert_eq!(tier.counts(Operation::Get).bytes, 2);
        assert_eq!(tier.counts(Operation::Delete), Counts::default());
    }
}
