//! The state that the threads of one arena share: what is touched and registered. One lock,
//! held for bookkeeping only; the watermarks can be read without it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::bytes::Bytes;
use crate::error::{DeviceError, DeviceErrorKind};

/// The end of the part that is complete from the start, when pieces complete in any order.
#[derive(Debug, Default)]
struct Prefix {
    upto: u64,
    /// Complete pieces after a gap.
    early: BTreeSet<u64>,
}

impl Prefix {
    /// Marks piece `index` complete and returns the number of complete pieces from the start.
    fn complete(&mut self, index: u64) -> u64 {
        self.early.insert(index);
        while self.early.remove(&self.upto) {
            self.upto += 1;
        }
        self.upto
    }
}

/// Duration and number of the registrations of an arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegisterStats {
    /// Number of registrations.
    pub calls: u64,
    /// Total time inside them.
    pub inside: Duration,
    /// The longest one.
    pub longest: Duration,
    /// Time spent waiting for the turns of other processes.
    pub waited_for_turns: Duration,
    /// Time from the creation of the arena until everything was registered.
    pub all_after: Option<Duration>,
}

#[derive(Debug, Default)]
pub(super) struct ProgressState {
    pub(super) failure: Option<DeviceError>,
    pub(super) stats: RegisterStats,
    touched: Prefix,
}

#[derive(Debug)]
pub(super) struct Progress {
    pub(super) born: Instant,
    touched: AtomicU64,
    registered: AtomicU64,
    busy: AtomicUsize,
    /// Copies wait for the bytes below this.
    wanted: AtomicU64,
    /// The end of the bytes that are to be prepared.
    goal: AtomicU64,
    stop: AtomicBool,
    state: Mutex<ProgressState>,
    changed: Condvar,
}

impl Progress {
    pub(super) fn new() -> Progress {
        Progress {
            born: Instant::now(),
            touched: AtomicU64::new(0),
            registered: AtomicU64::new(0),
            busy: AtomicUsize::new(0),
            wanted: AtomicU64::new(0),
            goal: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            state: Mutex::new(ProgressState::default()),
            changed: Condvar::new(),
        }
    }

    /// The progress of an arena of `capacity` bytes in memory that has come this far, in whole
    /// pieces of `piece` bytes.
    pub(super) fn again(&self, piece: u64, capacity: u64) -> Progress {
        let progress = Progress::new();
        progress.touched.store(self.touched(), Ordering::Release);
        progress.registered.store(self.registered(), Ordering::Release);
        progress.change(|state| {
            state.touched.upto = self.touched() / piece;
            let is_ready = self.registered() >= capacity;
            state.stats.all_after = is_ready.then_some(Duration::ZERO);
        });
        progress
    }

    /// Locks the state. A panic elsewhere does no harm: each change is complete in itself.
    pub(super) fn state(&self) -> MutexGuard<'_, ProgressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes every thread that waits for a change.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut ProgressState) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.notify_all();
        result
    }

    /// Waits for a change, at most `limit`.
    pub(super) fn wait<'a>(
        &self,
        state: MutexGuard<'a, ProgressState>,
        limit: Duration,
    ) -> MutexGuard<'a, ProgressState> {
        self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Bytes from the start whose pages are present.
    pub(super) fn touched(&self) -> u64 {
        self.touched.load(Ordering::Acquire)
    }

    /// Bytes from the start that are registered.
    pub(super) fn registered(&self) -> u64 {
        self.registered.load(Ordering::Acquire)
    }

    pub(super) fn piece_touched(&self, index: u64, piece: u64, capacity: u64) {
        self.change(|state| {
            let upto = state.touched.complete(index).saturating_mul(piece).min(capacity);
            self.touched.fetch_max(upto, Ordering::Release);
        });
    }

    pub(super) fn chunk_registered(&self, end: u64, took: Duration, capacity: u64) {
        self.change(|state| {
            debug_assert!(end > self.registered());
            self.registered.store(end, Ordering::Release);
            let stats = &mut state.stats;
            stats.calls += 1;
            stats.inside += took;
            stats.longest = stats.longest.max(took);
            if end >= capacity {
                stats.all_after = Some(self.born.elapsed());
            }
        });
    }

    pub(super) fn fail(&self, error: DeviceError) {
        self.change(|state| {
            state.failure.get_or_insert(error);
        });
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.change(|_| ());
    }

    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Requests the bytes below `upto`, which a copy waits for: they are registered without a gap.
    pub(super) fn want(&self, upto: u64) {
        self.wanted.fetch_max(upto, Ordering::Relaxed);
        self.change(|_| ());
    }

    pub(super) fn is_wanted(&self, begin: u64) -> bool {
        begin < self.wanted.load(Ordering::Relaxed)
    }

    /// Asks for the bytes below `end` to be prepared.
    pub(super) fn aim_for(&self, end: u64) {
        if self.goal.fetch_max(end, Ordering::Relaxed) < end {
            self.change(|_| ());
        }
    }

    /// The end of the bytes that are to be prepared.
    pub(super) fn goal(&self) -> u64 {
        self.goal.load(Ordering::Relaxed)
    }

    /// Waits until the byte at `begin` is to be prepared: false when nothing is to be prepared any
    /// more.
    pub(super) fn wait_for_goal(&self, begin: u64, doze: Duration) -> bool {
        if begin < self.goal() {
            return !self.stopped();
        }
        let mut state = self.state();
        while begin >= self.goal() && !self.stopped() && state.failure.is_none() {
            state = self.wait(state, doze);
        }
        !self.stopped() && state.failure.is_none()
    }

    pub(super) fn link_busy(&self) {
        self.busy.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn link_idle(&self) {
        let before = self.busy.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0);
        if before == 1 {
            self.change(|_| ());
        }
    }

    pub(super) fn links_idle(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0
    }

    /// Waits until `watermark` is at least `upto`, at most `limit`.
    pub(super) fn wait_until(
        &self,
        what: &str,
        watermark: impl Fn() -> u64,
        upto: u64,
        limit: Duration,
    ) -> Result<(), DeviceError> {
        let deadline = Instant::now() + limit;
        let mut state = self.state();
        loop {
            if watermark() >= upto {
                return Ok(());
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if self.stopped() {
                return Err(DeviceError::new(DeviceErrorKind::Closed, "the arena is closed"));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let message = format!(
                    "{} of {} were {what} after {:.3} s",
                    Bytes(watermark()),
                    Bytes(upto),
                    limit.as_secs_f64()
                );
                return Err(DeviceError::new(DeviceErrorKind::TimedOut, message));
            }
            state = self.wait(state, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_prefix_is_the_first_gap_whatever_the_order(
            order in Just((0u64..40).collect::<Vec<_>>()).prop_shuffle(), count in 0usize..40,
        ) {
            let mut prefix = Prefix::default();
            let mut upto = 0;
            for &index in &order[..count] {
                upto = prefix.complete(index);
            }
            let done = |index: &u64| order[..count].contains(index);
            prop_assert_eq!(upto, (0u64..).take_while(done).count() as u64);
        }
    }
}
