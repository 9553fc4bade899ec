//! A spool that Python has opened, and that is closed at the end of the program at the latest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use unspool::{Error, Spool, Unflushed, Wait};

/// What the calls of a Python spool go to.
#[derive(Debug)]
pub struct Front {
    spool: Arc<Spool>,
    /// The number of saves when a close was interrupted.
    interrupted_at: AtomicU64,
}

impl Front {
    /// Of `spool`.
    pub fn of(spool: Arc<Spool>) -> Front {
        Front { spool, interrupted_at: AtomicU64::new(u64::MAX) }
    }

    /// The spool itself.
    pub fn spool(&self) -> &Arc<Spool> {
        &self.spool
    }

    /// The wait of a close was interrupted: unless something is saved after it, the end of the
    /// program does not wait again.
    pub fn note_interrupted(&self) {
        self.interrupted_at.store(self.saves(), Ordering::Relaxed);
    }

    /// Closes it when nobody will do so any more.
    ///
    /// # Errors
    /// Those of `Spool::close_as`.
    pub fn close_last(&self, wait: &Wait<'_>) -> Result<(), Error> {
        let hurried = self.interrupted_at.load(Ordering::Relaxed) == self.saves();
        let timeout = if hurried { Some(Duration::ZERO) } else { wait.timeout };
        self.spool.close_as(Unflushed::Discard, &Wait { timeout, ..*wait })
    }

    fn saves(&self) -> u64 {
        self.spool.stats().map_or(0, |stats| stats.application.saves)
    }
}
