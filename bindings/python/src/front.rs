//! A spool, and the adaptor in front of it that saves small checkpoints together.

use std::sync::Arc;

use unspool::{Accumulate, Batched, Error, Head, RegionCoding, Spool, Wait};

/// What the calls of a Python spool go to.
#[derive(Debug)]
pub enum Front {
    /// The spool itself.
    Plain(Arc<Spool>),
    /// An adaptor in front of it.
    Batched(Batched),
}

impl Front {
    /// `spool`, with an adaptor in front of it where `most` says how much it keeps.
    pub fn of(spool: Arc<Spool>, most: Option<Accumulate>) -> Front {
        match most {
            Some(most) => Front::Batched(Batched::new(spool, most)),
            None => Front::Plain(spool),
        }
    }

    /// The spool, which knows nothing of what waits in front of it.
    pub fn spool(&self) -> &Arc<Spool> {
        match self {
            Front::Plain(spool) => spool,
            Front::Batched(batched) => batched.spool(),
        }
    }

    /// The adaptor, if there is one.
    pub fn batched(&self) -> Option<&Batched> {
        match self {
            Front::Plain(_) => None,
            Front::Batched(batched) => Some(batched),
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
        match self {
            Front::Plain(spool) => spool.regions(version),
            Front::Batched(batched) => batched.regions(version),
        }
    }

    /// As `Spool::achieved`.
    ///
    /// # Errors
    /// Those of that.
    pub fn achieved(&self, version: i64) -> Result<Vec<RegionCoding>, Error> {
        match self {
            Front::Plain(spool) => spool.achieved(version),
            Front::Batched(batched) => batched.achieved(version),
        }
    }

    /// As `Spool::discard`.
    ///
    /// # Errors
    /// Those of that.
    pub fn discard(&self, version: i64) -> Result<(), Error> {
        match self {
            Front::Plain(spool) => spool.discard(version),
            Front::Batched(batched) => batched.discard(version),
        }
    }

    /// As `Spool::flush`.
    ///
    /// # Errors
    /// Those of that.
    pub fn flush(&self, wait: &Wait<'_>) -> Result<(), Error> {
        match self {
            Front::Plain(spool) => spool.flush(wait),
            Front::Batched(batched) => batched.flush(wait),
        }
    }

    /// As `Spool::versions`.
    ///
    /// # Errors
    /// Those of that.
    pub fn versions(&self) -> Result<Vec<i64>, Error> {
        match self {
            Front::Plain(spool) => spool.versions(),
            Front::Batched(batched) => batched.versions(),
        }
    }

    /// As `Spool::contains`.
    ///
    /// # Errors
    /// Those of that.
    pub fn contains(&self, version: i64) -> Result<bool, Error> {
        match self {
            Front::Plain(spool) => spool.contains(version),
            Front::Batched(batched) => batched.contains(version),
        }
    }

    /// As `Spool::durable`.
    ///
    /// # Errors
    /// Those of that.
    pub fn durable(&self, version: i64) -> Result<bool, Error> {
        match self {
            Front::Plain(spool) => spool.durable(version),
            Front::Batched(batched) => batched.durable(version),
        }
    }

    /// As `Spool::close`, after what waits was handed over.
    ///
    /// # Errors
    /// Those of that.
    pub fn close(&self) -> Result<(), Error> {
        match self {
            Front::Plain(spool) => spool.close(),
            Front::Batched(batched) => batched.close(),
        }
    }
}
