//! The spool: one history with its tiers and workers.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::restore::RestoreTicket;
use crate::save::SaveTicket;
use crate::settings::Settings;
use crate::stats::Stats;
use crate::wait::Wait;
use unspool_codec::{Head, RegionSpec};

/// One history of checkpoints with its tiers and workers.
///
/// All methods take `&self` and may be called from several threads at once. Dropping it closes
/// it; in a forked child everything is an error and dropping it does nothing.
#[derive(Debug)]
pub struct Spool {
    _settings: Settings,
}

fn unfinished<T>() -> Result<T, Error> {
    Err(Error::new(ErrorKind::Invalid, "This build of the spool has no bodies."))
}

impl Spool {
    /// Opens a spool. A durable disk tier brings back what an earlier run left in its directory.
    ///
    /// # Errors
    /// `Invalid` when the settings make no sense, `Io` when a tier cannot be made.
    pub fn open(_settings: Settings) -> Result<Spool, Error> {
        unfinished()
    }

    /// Waits until there is room for a checkpoint of these regions, and lends that room.
    ///
    /// # Errors
    /// `Duplicate`, `NotYetSaved` (another call is saving this version), `TooLarge`, `Full`,
    /// `Timeout`, `Interrupted`, `Closed`, `Forked`, and `Invalid` when the regions make no sense.
    pub fn save(
        &self,
        _version: i64,
        _regions: Vec<RegionSpec>,
        _wait: &Wait<'_>,
    ) -> Result<SaveTicket<'_>, Error> {
        unfinished()
    }

    /// The regions of a saved checkpoint, without any I/O.
    ///
    /// # Errors
    /// `Unknown`, `Discarded`, `NotYetSaved`, `Forked`, `Closed`.
    pub fn regions(&self, _version: i64) -> Result<Arc<Head>, Error> {
        unfinished()
    }

    /// Waits for the bytes of a checkpoint and lends them.
    ///
    /// # Errors
    /// `Unknown`, `Discarded`, `NotYetSaved`, `Io`, `Corrupt`, `Lost`, `Timeout`, `Interrupted`,
    /// `Closed`, `Forked`.
    pub fn restore(&self, _version: i64, _wait: &Wait<'_>) -> Result<RestoreTicket<'_>, Error> {
        unfinished()
    }

    /// Adds entries to the end of the restore order.
    ///
    /// # Errors
    /// `Closed`, `Forked`.
    pub fn expect(&self, _versions: impl IntoIterator<Item = i64>) -> Result<(), Error> {
        unfinished()
    }

    /// Forgets the whole restore order.
    ///
    /// # Errors
    /// `Closed`, `Forked`.
    pub fn forget_hints(&self) -> Result<(), Error> {
        unfinished()
    }

    /// Prefetching may start (the default).
    ///
    /// # Errors
    /// `Closed`, `Forked`.
    pub fn start_prefetch(&self) -> Result<(), Error> {
        unfinished()
    }

    /// No prefetch is started until [`start_prefetch`](Spool::start_prefetch).
    ///
    /// # Errors
    /// `Closed`, `Forked`.
    pub fn hold_prefetch(&self) -> Result<(), Error> {
        unfinished()
    }

    /// The application will never read `version` again: it is freed in every tier.
    ///
    /// # Errors
    /// `Unknown`, `Discarded`, `NotYetSaved`, `Closed`, `Forked`.
    pub fn discard(&self, _version: i64) -> Result<(), Error> {
        unfinished()
    }

    /// Waits until every checkpoint is in the slowest tier that can hold it; on a durable disk
    /// they survive a crash of the machine from then on.
    ///
    /// # Errors
    /// `Full`, `Io`, `Timeout`, `Interrupted`, `Closed`, `Forked`.
    pub fn flush(&self, _wait: &Wait<'_>) -> Result<(), Error> {
        unfinished()
    }

    /// The saved versions, in ascending order.
    ///
    /// # Errors
    /// `Closed`, `Forked`.
    pub fn versions(&self) -> Result<Vec<i64>, Error> {
        unfinished()
    }

    /// Whether `version` is saved and not discarded.
    ///
    /// # Errors
    /// `Closed`, `Forked`.
    pub fn contains(&self, _version: i64) -> Result<bool, Error> {
        unfinished()
    }

    /// Whether `version` survives a crash of the machine.
    ///
    /// # Errors
    /// `Unknown`, `Discarded`, `NotYetSaved`, `Closed`, `Forked`.
    pub fn durable(&self, _version: i64) -> Result<bool, Error> {
        unfinished()
    }

    /// What the spool has done so far. Also answered when it is closed.
    ///
    /// # Errors
    /// `Forked`.
    pub fn stats(&self) -> Result<Stats, Error> {
        unfinished()
    }

    /// Writes the spans so far as a Chrome trace, which <https://ui.perfetto.dev> opens. Also
    /// answered when the spool is closed.
    ///
    /// # Errors
    /// `Invalid` when the settings did not ask for a trace, `Io`, `Forked`.
    pub fn write_trace(&self, _path: &Path) -> Result<(), Error> {
        unfinished()
    }

    /// Whether the spool was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        false
    }

    /// Ends the work: a durable spool first writes everything to its disk and syncs it, any other
    /// one cancels what is under way. Calls that wait meanwhile get `Closed`. A second close does
    /// nothing.
    ///
    /// # Errors
    /// `Full` or `Io` when something could not be made durable, `Timeout` when a worker did not
    /// end in time, `Forked`. The spool is closed in each case.
    pub fn close(&self) -> Result<(), Error> {
        unfinished()
    }
}
