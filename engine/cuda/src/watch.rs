//! Observation of a run, for a check that all accesses to memory are ordered: every record, wait
//! and access of this crate is reported as an [`Op`] to the context's watch. Without a watch this
//! costs one load.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use unspool_verify::Op;

/// Receives everything that is enqueued, recorded and waited for. It is called on the thread that
/// does it, before the reported call returns, and must not block.
pub trait Watch: Send + Sync + Debug {
    /// Receives an operation that has just happened.
    fn saw(&self, op: Op);
}

/// The optional watch of one context.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    is: AtomicBool,
    by: RwLock<Option<Arc<dyn Watch>>>,
}

impl Watched {
    pub(crate) fn set(&self, watch: Arc<dyn Watch>) {
        *self.by.write().unwrap_or_else(PoisonError::into_inner) = Some(watch);
        self.is.store(true, Ordering::Release);
    }

    pub(crate) fn is(&self) -> bool {
        self.is.load(Ordering::Relaxed)
    }

    pub(crate) fn report(&self, op: Op) {
        // Cloned, so that the watch is not called under the lock.
        let watch = self.by.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(watch) = watch {
            watch.saw(op);
        }
    }
}

/// A number for a recording of an event that no other recording in the process has.
pub(crate) fn new_recording() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::new_recording;

    #[test]
    fn no_two_recordings_have_the_same_number() {
        let threads: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(|| (0..100).map(|_| new_recording()).collect::<Vec<_>>()))
            .collect();
        let mut all: Vec<u64> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 400);
        assert!(all[0] > 0, "0 stands for never recorded");
    }
}
