//! A remote place, seen from outside: the parts of checkpoints there, and their arrays.

use std::sync::Arc;

use unspool::{Error, Spool, Wait};
use unspool_remote::{Options, Remote};

use crate::chain;
use crate::listing::{Listed, complete, grouped, listed};
use crate::manifest::Manifest;
use crate::places::failed;
use crate::shelf::Shelf;
use crate::worker::interruptible;

/// The manifests in a remote place, and sentences about those that are damaged.
type Copied = (Vec<Manifest>, Vec<String>);

fn open(place: &str) -> Result<Arc<Remote>, Error> {
    Remote::open(place, &Options::default()).map(Arc::new).map_err(failed)
}

fn copied(place: &str, wait: &Wait<'_>) -> Result<Copied, Error> {
    let remote = open(place)?;
    let asked = Arc::clone(&remote);
    let found = interruptible(wait, "the remote place", move || copied_in(&asked));
    found.inspect_err(|_| remote.stop())
}

fn copied_in(remote: &Arc<Remote>) -> Result<Copied, Error> {
    let (mut manifests, mut damaged) = Copied::default();
    for (rank, size) in Shelf::ranks(remote)? {
        let (whole, others) = Shelf::of(remote, rank, size).manifests()?;
        manifests.extend(whole);
        damaged.extend(others);
    }
    Ok((manifests, damaged))
}

/// The checkpoints in a remote place, as [`list`](crate::list) gives those of a folder.
///
/// # Errors
/// `Io`, `Interrupted`.
pub fn list_remote(place: &str, wait: &Wait<'_>) -> Result<(Vec<Listed>, Vec<String>), Error> {
    let (manifests, damaged) = copied(place, wait)?;
    Ok((listed(manifests), damaged))
}

/// The manifests of all parts of the checkpoint of `step`, or of the newest one, in a remote place,
/// by rank.
///
/// # Errors
/// `Unknown` when no such checkpoint is there, `Io`, `Interrupted`.
pub fn find_remote(
    place: &str,
    step: Option<u64>,
    wait: &Wait<'_>,
) -> Result<Vec<Manifest>, Error> {
    complete(grouped(copied(place, wait)?.0), step, place)
}

/// A spool in main memory that has the arrays of a part in a remote place, whole, under the step as
/// version.
///
/// # Errors
/// `Lost` when it is not there any more, or is that of another run; `Corrupt`, `Io`, `Interrupted`.
pub fn open_remote(place: &str, manifest: &Manifest, wait: &Wait<'_>) -> Result<Arc<Spool>, Error> {
    let (part, remote) = (manifest.part(), open(place)?);
    let from = Shelf::of(&remote, manifest.rank, manifest.ranks);
    let found = interruptible(wait, "the remote place", move || from.get(part));
    let (_, frame) = found.inspect_err(|_| remote.stop())?;
    chain::adopted(&frame, wait)
}
