//! The remote level of a run: where copies go, and which checkpoints are copied.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use unspool::{Error, ErrorKind};
use unspool_remote::{Options, Remote};

use crate::agreement::{Part, Said};
use crate::copier::Copier;
use crate::folder::Folder;
use crate::interval::Every;
use crate::shelf::{Shelf, failed};

/// Copies of checkpoints beyond the machine.
#[derive(Clone, PartialEq, Debug)]
pub struct RemoteSettings {
    /// The place: `s3://bucket/prefix`, `gs://`, `az://`, or a directory.
    pub place: String,
    /// Which checkpoints are copied: `Auto` is each one for which the place has time, and `Never`
    /// the last one of a run.
    pub every: Every,
    /// How it is used. No request takes longer than a wait of the Checkpointer may.
    pub options: Options,
}

impl RemoteSettings {
    /// Each checkpoint for which the place has time, with defaults for all else.
    pub fn new(place: impl Into<String>) -> RemoteSettings {
        let options = Options::default();
        RemoteSettings { place: place.into(), every: Every::Auto, options }
    }
}

/// The remote place of a rank, opened.
pub(crate) struct OpenedLevel {
    pub(crate) shelf: Shelf,
    pub(crate) parts: Vec<Part>,
    pub(crate) warnings: Vec<String>,
}

/// Opens the remote place and looks what this rank has there.
///
/// # Errors
/// `Io` when it cannot be had: without it nobody knows what the newest checkpoint is. `Invalid`
/// when another number of ranks has left checkpoints there.
pub(crate) fn open(
    settings: &RemoteSettings,
    folder: &Folder,
    (rank, size): (u32, u32),
    timeout: Duration,
) -> Result<OpenedLevel, Error> {
    let opened = || {
        let options = settings.options.clone().within(timeout);
        let remote = Remote::open(&settings.place, &options).map_err(failed)?;
        let remote = Arc::new(remote);
        // One rank looks for all of them.
        let ranks = if rank == 0 { Shelf::ranks(&remote)? } else { Default::default() };
        let shelf = Shelf::of(remote, rank, size, folder.path().join("upload"));
        if let Some((_, other)) = ranks.iter().find(|(_, other)| *other != size) {
            let message = format!(
                "{} has checkpoints of {other} ranks, and this run has {size}. Choose another \
                 place.",
                shelf.place()
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let (parts, warnings) = shelf.parts()?;
        folder.note_place(&settings.place)?;
        Ok(OpenedLevel { shelf, parts, warnings })
    };
    opened().map_err(|cause: Error| match cause.kind() {
        ErrorKind::Invalid => cause,
        _ => {
            let message = format!(
                "The newest checkpoint may be in the remote place, which cannot be had: {cause} \
                 Open the Checkpointer without it only if you know that it is not."
            );
            Error::new(ErrorKind::Io, message).caused_by(cause)
        }
    })
}

/// The remote level of a rank while the run goes on.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) copier: Arc<Copier>,
    every: Every,
    /// The step and the time of the last checkpoint that was to be copied.
    last: Mutex<(u64, f64)>,
}

impl Level {
    pub(crate) fn of(copier: Arc<Copier>, every: Every, step: u64) -> Level {
        Level { copier, every, last: Mutex::new((step, 0.0)) }
    }

    /// What this rank says of it before a save of `step` at time `now`.
    pub(crate) fn say(&self, said: &mut Said, step: u64, now: f64) {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        said.due = self.every.is_due_after(last, step, now);
        said.free = self.copier.is_free();
    }

    /// The checkpoint of `step`, saved at time `now`, is copied when it counts.
    pub(crate) fn promise(&self, step: u64, now: f64) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = (step, now);
        self.copier.promise(step);
    }
}
