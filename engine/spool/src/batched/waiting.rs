//! What waits in front of a spool, and whose turn it is to hand it over.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unspool_codec::Head;
use unspool_transfer::sync::{Condvar, Mutex, MutexGuard, lock, thread, wait_timeout};

use super::values::RegionValues;
use super::{Accumulate, busy};
use crate::error::{Error, ErrorKind};
use crate::save::Prepared;
use crate::wait::Wait;

/// The longest that a waiting thread sleeps before it asks whether it was interrupted.
const POLL: Duration = Duration::from_millis(50);

/// The longest sleep of the thread while nothing waits.
const IDLE: Duration = Duration::from_millis(100);

/// A checkpoint whose values are in the ring.
pub(super) struct BatchedCheckpoint {
    pub(super) prepared: Arc<Prepared>,
    pub(super) pieces: Vec<RegionValues>,
    /// Of its values.
    pub(super) bytes: u64,
    pub(super) since: Instant,
}

impl BatchedCheckpoint {
    pub(super) fn version(&self) -> i64 {
        self.prepared.head().version
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Waiting {
    batch: Mutex<Batch>,
    changed: Condvar,
    /// The thread that ends the wait of a batch.
    pub(super) thread: Mutex<Option<thread::JoinHandle<()>>>,
}

#[derive(Default)]
struct Batch {
    kept: VecDeque<BatchedCheckpoint>,
    /// Those that one call is handing to the spool.
    moving: Option<Vec<Arc<Prepared>>>,
    /// What no call has reported yet.
    failure: Option<Error>,
    is_over: bool,
}

impl Batch {
    /// Whether nothing should be added: half of the ring is the batch, and another checkpoint of
    /// the mean size would go beyond it.
    fn is_full(&self, most: &Accumulate) -> bool {
        let bytes: u64 = self.kept.iter().map(|kept| kept.bytes).sum();
        let mean = bytes / (self.kept.len() as u64).max(1);
        self.kept.len() >= most.checkpoints as usize || bytes.saturating_add(mean) > most.bytes
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Prepared>> {
        self.kept.iter().map(|kept| &kept.prepared).chain(self.moving.iter().flatten())
    }
}

impl Waiting {
    /// Adds a checkpoint. Whether the batch is full.
    pub(super) fn push(&self, kept: BatchedCheckpoint, most: &Accumulate) -> bool {
        let mut batch = lock(&self.batch);
        batch.kept.push_back(kept);
        let (is_first, is_full) = (batch.kept.len() == 1, batch.is_full(most));
        drop(batch);
        if is_first {
            self.changed.notify_all();
        }
        is_full
    }

    /// Takes `version` out, if it waits.
    pub(super) fn remove(&self, version: i64) -> bool {
        let mut batch = lock(&self.batch);
        let place = batch.kept.iter().position(|kept| kept.version() == version);
        let removed = place.and_then(|place| batch.kept.remove(place));
        drop(batch);
        removed.is_some()
    }

    /// Remembers an error for the next call; an earlier one comes first.
    pub(super) fn fail(&self, error: Error) {
        let mut batch = lock(&self.batch);
        batch.failure = Some(match batch.failure.take() {
            Some(first) => first.besides(&error),
            None => error,
        });
    }

    pub(super) fn take_failure(&self) -> Option<Error> {
        lock(&self.batch).failure.take()
    }

    pub(super) fn has(&self, version: i64) -> bool {
        self.head(version).is_some()
    }

    pub(super) fn head(&self, version: i64) -> Option<Arc<Head>> {
        let batch = lock(&self.batch);
        let mut heads = batch.all().map(|prepared| prepared.head());
        heads.find(|head| head.version == version).cloned()
    }

    pub(super) fn versions(&self) -> Vec<i64> {
        lock(&self.batch).all().map(|prepared| prepared.head().version).collect()
    }

    /// Takes all that waits, to be handed over by the caller alone: waits until nobody else does
    /// so, at most until `until`.
    ///
    /// # Errors
    /// `Timeout` and `Interrupted`.
    pub(super) fn take(&self, until: Instant, wait: &Wait<'_>) -> Result<Turn<'_>, Error> {
        let mut batch = lock(&self.batch);
        while batch.moving.is_some() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(busy(ErrorKind::Timeout));
            }
            batch = wait_timeout(&self.changed, batch, left.min(POLL));
            drop(batch);
            if (wait.interrupted)() {
                return Err(busy(ErrorKind::Interrupted));
            }
            batch = lock(&self.batch);
        }
        let kept = std::mem::take(&mut batch.kept);
        batch.moving = Some(kept.iter().map(|kept| Arc::clone(&kept.prepared)).collect());
        Ok(Turn { waiting: self, kept })
    }

    /// Waits until a checkpoint has waited for `limit`; `false` when there is nothing more to do.
    pub(super) fn wait_for_oldest(&self, limit: Duration) -> bool {
        let mut batch = lock(&self.batch);
        loop {
            if batch.is_over {
                return false;
            }
            let waited = batch.kept.front().map(|first| first.since.elapsed());
            let nap = match waited {
                Some(waited) if waited >= limit && batch.moving.is_none() => return true,
                Some(waited) => limit.saturating_sub(waited).clamp(Duration::from_micros(50), IDLE),
                None => IDLE,
            };
            batch = wait_timeout(&self.changed, batch, nap);
        }
    }

    /// Ends the thread, and waits for it.
    pub(super) fn end(&self) {
        lock(&self.batch).is_over = true;
        self.changed.notify_all();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    fn batch(&self) -> MutexGuard<'_, Batch> {
        lock(&self.batch)
    }
}

/// A batch that is being handed over. Dropped, what is left of it waits again, before all others.
pub(super) struct Turn<'a> {
    waiting: &'a Waiting,
    pub(super) kept: VecDeque<BatchedCheckpoint>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut batch = self.waiting.batch();
        for kept in self.kept.drain(..).rev() {
            batch.kept.push_front(BatchedCheckpoint { since: Instant::now(), ..kept });
        }
        batch.moving = None;
        drop(batch);
        self.waiting.changed.notify_all();
    }
}
