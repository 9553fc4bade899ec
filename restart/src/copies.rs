//! A remote place, seen from outside: the parts of checkpoints there, and their arrays.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use unspool::{Error, Spool, Wait};
use unspool_remote::{Options, Remote};

use crate::agreement::Part;
use crate::chain;
use crate::listing::{Listed, complete, listed};
use crate::manifest::Manifest;
use crate::shelf::{Shelf, failed};
use crate::waiting::interruptible;

/// A remote place with the manifests in it, and sentences about those that are damaged.
struct Copied {
    manifests: Vec<Manifest>,
    damaged: Vec<String>,
}

fn open(place: &str) -> Result<Arc<Remote>, Error> {
    Remote::open(place, &Options::default()).map(Arc::new).map_err(failed)
}

fn shelf(remote: &Arc<Remote>, rank: u32, size: u32) -> Shelf {
    Shelf::of(Arc::clone(remote), rank, size, PathBuf::new())
}

fn copied(place: &str, wait: &Wait<'_>) -> Result<Copied, Error> {
    let remote = open(place)?;
    let asked = Arc::clone(&remote);
    let found = interruptible(wait, "the remote place", move || copied_in(&asked));
    found.inspect_err(|_| remote.stop())
}

fn copied_in(remote: &Arc<Remote>) -> Result<Copied, Error> {
    let mut found = Copied { manifests: Vec::new(), damaged: Vec::new() };
    for (rank, size) in Shelf::ranks(remote)? {
        let (whole, others) = shelf(remote, rank, size).manifests()?;
        found.manifests.extend(whole);
        found.damaged.extend(others);
    }
    Ok(found)
}

/// The checkpoints in a remote place, as [`list`](crate::list) gives those of a folder.
///
/// # Errors
/// `Io`, `Interrupted`.
pub fn list_remote(place: &str, wait: &Wait<'_>) -> Result<(Vec<Listed>, Vec<String>), Error> {
    let found = copied(place, wait)?;
    Ok((listed(found.manifests), found.damaged))
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
    let found = copied(place, wait)?.manifests;
    let key = |one: &Manifest| (Part { step: one.step, run: one.run }, one.ranks);
    let keys: BTreeSet<_> = found.iter().map(key).collect();
    let of = |wanted| found.iter().filter(|one| key(one) == wanted).cloned().collect();
    complete(keys.into_iter().map(|key| (key, of(key))).collect(), step, place)
}

/// A spool in main memory that has the arrays of a part in a remote place, whole, under the step as
/// version.
///
/// # Errors
/// `Lost` when it is not there any more, or is that of another run; `Corrupt`, `Io`, `Interrupted`.
pub fn open_remote(place: &str, manifest: &Manifest, wait: &Wait<'_>) -> Result<Arc<Spool>, Error> {
    let part = Part { step: manifest.step, run: manifest.run };
    let remote = open(place)?;
    let from = shelf(&remote, manifest.rank, manifest.ranks);
    let found = interruptible(wait, "the remote place", move || from.get(part));
    let (_, frame) = found.inspect_err(|_| remote.stop())?;
    chain::adopted(&frame, wait)
}
