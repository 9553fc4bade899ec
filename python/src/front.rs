//! A spool, and the adaptor in front of it that saves small checkpoints together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use unspool::{Accumulate, Batched, Error, Head, RegionCoding, Spool, Unflushed, Wait};

/// What the calls of a Python spool go to.
#[derive(Debug)]
pub struct Front {
    target: Target,
    /// The number of saves when a close was interrupted.
    interrupted_at: AtomicU64,
}

#[derive(Debug)]
enum Target {
    /// The spool itself.
    Plain(Arc<Spool>),
    /// An adaptor in front of it.
    Batched(Batched),
}

impl Front {
    /// `spool`, with an adaptor in front of it where `most` says how much it keeps.
    pub fn of(spool: Arc<Spool>, most: Option<Accumulate>) -> Front {
        let target = match most {
            Some(most) => Target::Batched(Batched::new(spool, most)),
            None => Target::Plain(spool),
        };
        Front { target, interrupted_at: AtomicU64::new(u64::MAX) }
    }

    /// The spool, which knows nothing of what waits in front of it.
    pub fn spool(&self) -> &Arc<Spool> {
        match &self.target {
            Target::Plain(spool) => spool,
            Target::Batched(batched) => batched.spool(),
        }
    }

    /// The adaptor, if there is one.
    pub fn batched(&self) -> Option<&Batched> {
        match &self.target {
            Target::Plain(_) => None,
            Target::Batched(batched) => Some(batched),
        }
    }

    /// Hands over what waits, if `version` is among it: afterwards the spool knows it.
    ///
    /// # Errors
    /// Those of saving it.
    pub fn bring(&self, version: i64, wait: &Wait<'_>) -> Result<(), Error> {
        self.batched().map_or(Ok(()), |batched| batched.hand_over_for(version, wait))
    }

    /// Hands over all that waits.
    ///
    /// # Errors
    /// Those of saving it.
    pub fn bring_all(&self, wait: &Wait<'_>) -> Result<(), Error> {
        self.batched().map_or(Ok(()), |batched| batched.hand_over(wait))
    }

    /// As `Spool::regions`.
    ///
    /// # Errors
    /// Those of that.
    pub fn regions(&self, version: i64) -> Result<Arc<Head>, Error> {
        match &self.target {
            Target::Plain(spool) => spool.regions(version),
            Target::Batched(batched) => batched.regions(version),
        }
    }

    /// As `Spool::achieved`.
    ///
    /// # Errors
    /// Those of that.
    pub fn achieved(&self, version: i64) -> Result<Vec<RegionCoding>, Error> {
        match &self.target {
            Target::Plain(spool) => spool.achieved(version),
            Target::Batched(batched) => batched.achieved(version),
        }
    }

    /// As `Spool::discard`.
    ///
    /// # Errors
    /// Those of that.
    pub fn discard(&self, version: i64) -> Result<(), Error> {
        match &self.target {
            Target::Plain(spool) => spool.discard(version),
            Target::Batched(batched) => batched.discard(version),
        }
    }

    /// As `Spool::flush`.
    ///
    /// # Errors
    /// Those of that.
    pub fn flush(&self, wait: &Wait<'_>) -> Result<(), Error> {
        match &self.target {
            Target::Plain(spool) => spool.flush(wait),
            Target::Batched(batched) => batched.flush(wait),
        }
    }

    /// As `Spool::versions`.
    ///
    /// # Errors
    /// Those of that.
    pub fn versions(&self) -> Result<Vec<i64>, Error> {
        match &self.target {
            Target::Plain(spool) => spool.versions(),
            Target::Batched(batched) => batched.versions(),
        }
    }

    /// As `Spool::contains`.
    ///
    /// # Errors
    /// Those of that.
    pub fn contains(&self, version: i64) -> Result<bool, Error> {
        match &self.target {
            Target::Plain(spool) => spool.contains(version),
            Target::Batched(batched) => batched.contains(version),
        }
    }

    /// As `Spool::durable`.
    ///
    /// # Errors
    /// Those of that.
    pub fn durable(&self, version: i64) -> Result<bool, Error> {
        match &self.target {
            Target::Plain(spool) => spool.durable(version),
            Target::Batched(batched) => batched.durable(version),
        }
    }

    /// As `Spool::close_as`, after what waits was handed over.
    ///
    /// # Errors
    /// Those of that.
    pub fn close(&self, unflushed: Unflushed, wait: &Wait<'_>) -> Result<(), Error> {
        match &self.target {
            Target::Plain(spool) => spool.close_as(unflushed, wait),
            Target::Batched(batched) => batched.close_as(unflushed, wait),
        }
    }

    /// The wait of a close was interrupted: unless something is saved after it, the end of the
    /// program does not wait again.
    pub fn note_interrupted(&self) {
        self.interrupted_at.store(self.saves(), Ordering::Relaxed);
    }

    /// Closes it when nobody will do so any more.
    ///
    /// # Errors
    /// Those of [`close`](Self::close).
    pub fn close_last(&self, wait: &Wait<'_>) -> Result<(), Error> {
        let hurried = self.interrupted_at.load(Ordering::Relaxed) == self.saves();
        let timeout = if hurried { Some(Duration::ZERO) } else { wait.timeout };
        self.close(Unflushed::Discard, &Wait { timeout, ..*wait })
    }

    fn saves(&self) -> u64 {
        self.spool().stats().map_or(0, |stats| stats.application.saves)
    }
}
