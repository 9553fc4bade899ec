//! The remote level of a run: where copies go, and its opening.

use std::sync::Arc;

use unspool::{Error, ErrorKind, Wait};
use unspool_remote::{Options, Remote};

use crate::claim::Claim;
use crate::folder::Folder;
use crate::interval::Every;
use crate::manifest::{Part, Run};
use crate::names;
use crate::places::failed;
use crate::shelf::Shelf;
use crate::worker::interruptible;

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

/// Opens the remote place, takes it for this run as its rank 0, and looks what this rank has there.
///
/// # Errors
/// `Io` when it cannot be had: without it nobody knows what the newest checkpoint is. `Invalid`
/// when another number of ranks has left checkpoints there, or another run is at work there;
/// `Interrupted`.
pub(crate) fn open(
    settings: &RemoteSettings,
    folder: &Folder,
    (rank, size, run): (u32, u32, Run),
    wait: &Wait<'_>,
) -> Result<OpenedLevel, Error> {
    let options = settings.options.clone();
    let options = wait.timeout.map_or(options.clone(), |longest| options.within(longest));
    let remote =
        Arc::new(Remote::open(&settings.place, &options).map_err(failed).map_err(lacking)?);
    let (asked, there) = (Arc::clone(&remote), folder.clone());
    let opened =
        interruptible(wait, "the remote place", move || look(asked, &there, (rank, size, run)));
    let opened = opened.inspect_err(|_| remote.stop()).map_err(lacking)?;
    folder.note_place(&settings.place)?;
    Ok(opened)
}

/// Takes the place as rank 0, and looks what a rank has there.
fn look(
    remote: Arc<Remote>,
    folder: &Folder,
    (rank, size, run): (u32, u32, Run),
) -> Result<OpenedLevel, Error> {
    // One rank looks for all of them.
    let ranks = if rank == 0 { Shelf::ranks(&remote)? } else { Default::default() };
    let journal = Some(folder.path().join("upload"));
    let own = names::rank_folder(rank, size);
    let mut shelf = Shelf::new(&remote, own, (rank, size), journal);
    if let Some((_, other)) = ranks.iter().find(|(_, other)| *other != size) {
        let message = format!(
            "{} has checkpoints of {other} ranks, and this run has {size}. Choose another place.",
            shelf.place()
        );
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    if rank == 0 {
        let claim = Claim::take(&remote, run, &folder.path().to_string_lossy())?;
        shelf = shelf.claimed(claim);
    }
    let (parts, warnings) = shelf.parts()?;
    Ok(OpenedLevel { shelf, parts, warnings })
}

/// The error of an opening whose remote place cannot be had.
fn lacking(cause: Error) -> Error {
    if matches!(cause.kind(), ErrorKind::Invalid | ErrorKind::Interrupted) {
        return cause;
    }
    let message = format!(
        "The newest checkpoint may be in the remote place, which cannot be had: {cause} Open the \
         Checkpointer without it only if you know that it is not."
    );
    Error::new(ErrorKind::Io, message).caused_by(cause)
}
