//! Save and restore: from Python's arrays to the spool's memory and back.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use unspool::{Codecs, Error, Head, Region, RegionSpec, RestoreTicket, Spool, Wait};

use crate::array::Array;
use crate::codecs;
use crate::copies::Copies;
use crate::donate::{self, Donor};
use crate::errors::{Class, error};
use crate::lend::overwritten;
use crate::piece::ArrayPiece;
use crate::regions::{Call, Given, TargetArray, describe, specs};
use crate::target::{Marks, Target};
use crate::trees;
use crate::waiting::{detached, waiting};

/// How a checkpoint is encoded.
#[derive(Clone, Debug)]
pub struct How {
    /// In place of the spool's codecs.
    pub codec: Option<Codecs>,
    /// What was saved under the version goes first.
    pub overwrite: bool,
    /// The caller gives the arrays away.
    pub donate: bool,
}

/// Saves the arrays of a call under `version`: `put` gets what copies them, the arrays and their
/// regions. They live until the copies are done.
///
/// # Errors
/// Those of taking the arrays in, and those of `put`.
pub fn save<P>(
    target: Target<'_>,
    version: i64,
    how: &How,
    positional: &Bound<'_, PyTuple>,
    named: Option<&Bound<'_, PyDict>>,
    put: P,
) -> PyResult<()>
where
    P: Send + FnOnce(Copies<'_>, &[ArrayPiece], Vec<RegionSpec>, &Wait<'_>) -> Result<Marks, Error>,
{
    let py = positional.py();
    target.kept.sweep(py);
    let given = Given::collect(Call { name: "save", version }, positional, named)?;
    let mut arrays = given.sources(&target.intake())?;
    let mut regions = specs(&given, &arrays);
    if how.donate {
        given.check_own(py, &arrays)?;
    }
    codecs::check(py, how.codec.as_ref(), &regions)?;
    target.unseen.see(&regions);
    let (pieces, spool) = (target.pieces(&arrays), target.spool);
    if how.overwrite && detached(py, Some(version), || target.spool.contains(version))? {
        detached(py, Some(version), || target.spool.discard(version))?;
    }
    if how.donate
        && let [ArrayPiece::Device(piece)] = &pieces[..]
        && given.is_of_others()
        && spool.takes(piece.array(), how.codec.as_ref())
        && let Some((array, region)) = arrays.pop().zip(regions.pop())
    {
        let donor = Donor::of(array, given.stream_alive());
        return donate::save(py, target, version, (region, piece, donor));
    }
    // `arrays` lives until the copies are done: `copies` and `release` see to that.
    let save = |wait: &Wait<'_>| put(Copies::new(spool, &pieces)?, &pieces, regions, wait);
    let saved = waiting(py, Some(version), |wait| {
        target.blocks.unless_stuck((spool, version), wait, save)
    })?;
    let marks = saved.map_err(|refusal| error(py, Class::Capacity, refusal))?;
    target.release(py, arrays, marks);
    Ok(())
}

/// Saves the arrays of `copies` under `version`, encoded by `codec` in place of the spool's codecs.
///
/// # Errors
/// Those of the spool.
///
/// # Safety
/// The arrays that the pieces were made from are borrowed until their copies are done.
pub unsafe fn save_pieces(
    spool: &Spool,
    mut copies: Copies<'_>,
    version: i64,
    regions: Vec<RegionSpec>,
    codec: Option<&Codecs>,
    wait: &Wait<'_>,
) -> Result<Marks, Error> {
    let codec = codec.unwrap_or_else(|| spool.codecs());
    if !codec.is_raw() && copies.are_on_gpu() {
        // A checkpoint that has its values can be encoded again, and needs less room at first.
        let streams = copies.streams()?;
        let mut checkpoint = spool.checkpoint_as(version, regions, codec)?;
        copies.begin_all();
        // SAFETY: the caller's promise.
        unsafe { copies.give(&mut checkpoint, &streams) }?;
        spool.save_many(&mut vec![checkpoint], &copies.wait(wait))?;
        return copies.finish();
    }
    let mut ticket = spool.save_as(version, regions, codec, &copies.wait(wait))?;
    // SAFETY: the caller's promise.
    unsafe { copies.save(&mut ticket) }?;
    ticket.commit()?;
    copies.finish()
}

/// Restores regions of `version` into the arrays of `copies`; `at` has the number of the region of
/// each. Nothing is restored, and there are no fences, when `accept` says no.
///
/// # Errors
/// Those of the spool, and of `accept`.
///
/// # Safety
/// As for [`save_pieces`]; the arrays may be written, and each has the size of its region.
pub unsafe fn restore_pieces(
    spool: &Spool,
    copies: Copies<'_>,
    version: i64,
    at: &[usize],
    wait: &Wait<'_>,
    accept: impl FnOnce(&RestoreTicket) -> Result<bool, Error>,
) -> Result<Option<Marks>, Error> {
    let ticket = spool.restore(version, &copies.wait(wait))?;
    // SAFETY: the caller's promise.
    unsafe { restore_held(ticket, copies, at, accept) }
}

/// [`restore_pieces`] of what a ticket has.
///
/// # Safety
/// As there.
unsafe fn restore_held(
    mut ticket: RestoreTicket,
    mut copies: Copies<'_>,
    at: &[usize],
    accept: impl FnOnce(&RestoreTicket) -> Result<bool, Error>,
) -> Result<Option<Marks>, Error> {
    if !accept(&ticket)? {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { copies.restore(&mut ticket, at) }?;
    ticket.finish()?;
    copies.finish().map(Some)
}

/// The regions of a saved checkpoint.
///
/// # Errors
/// Those of the spool, when there is no such checkpoint.
pub fn head(py: Python<'_>, spool: &Spool, version: i64) -> PyResult<Arc<Head>> {
    detached(py, Some(version), || spool.regions(version))
}

/// Restores `version` into the arrays of a call.
///
/// # Errors
/// Those of taking the arrays in, and those of the spool.
pub fn restore(
    target: Target<'_>,
    version: i64,
    positional: &Bound<'_, PyTuple>,
    named: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let py = positional.py();
    target.kept.sweep(py);
    let given = Given::collect(Call { name: "restore", version }, positional, named)?;
    let head = head(py, target.spool, version)?;
    if let Some(tree) = given.part_of(&head) {
        return restore_part(target, version, &head, tree);
    }
    given.restore(py, &head, &target.intake(), |arrays| {
        restore_into(py, target, version, &head, arrays)
    })
}

/// Restores the part of a tree that `tree` is, and what it lacks.
fn restore_part(
    target: Target<'_>,
    version: i64,
    head: &Arc<Head>,
    tree: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = tree.py();
    let (text, held) = text_of(py, target, version, head)?;
    let text = PyBytes::new(py, &text);
    let (arrays, write) = trees::assign(text.as_any(), tree, &describe(py, head)?)?;
    let given = Given::of_part(Call { name: "restore", version }, arrays);
    if given.has_arrays() {
        given.restore(py, head, &target.intake(), |arrays| {
            restore_from(py, target, (version, Some(held)), head, arrays)
        })?;
    }
    write.call0().map(drop)
}

/// What says what the tree of `version` is, and the rest of the checkpoint, so that it is not read
/// from a disk twice. The look is no restore: nothing is discarded after it.
fn text_of(
    py: Python<'_>,
    target: Target<'_>,
    version: i64,
    head: &Arc<Head>,
) -> PyResult<(Vec<u8>, RestoreTicket)> {
    let place = head.regions.iter().position(trees::describes);
    let bytes = place.map_or(0, |place| head.regions[place].bytes as usize);
    let mut text = vec![0; bytes];
    let held = waiting(py, Some(version), |wait| {
        let ticket = target.spool.restore(version, wait)?;
        let same = same_arrays(&ticket.head().regions, &head.regions);
        if let Some(place) = place.filter(|_| same) {
            ticket.read_into(place, &mut text)?;
        }
        Ok(same.then_some(ticket))
    })?;
    let held = held.ok_or_else(|| error(py, Class::Array, exchanged(version)))?;
    Ok((text, held))
}

/// Restores `version` into arrays that were checked against `head`.
///
/// # Errors
/// Those of the spool.
pub fn restore_into(
    py: Python<'_>,
    target: Target<'_>,
    version: i64,
    head: &Head,
    targets: Vec<TargetArray>,
) -> PyResult<()> {
    restore_from(py, target, (version, None), head, targets)
}

/// [`restore_into`], perhaps from a ticket that the caller has.
fn restore_from(
    py: Python<'_>,
    target: Target<'_>,
    (version, held): (i64, Option<RestoreTicket>),
    head: &Head,
    targets: Vec<TargetArray>,
) -> PyResult<()> {
    let (at, arrays): (Vec<usize>, Vec<Array>) =
        targets.into_iter().map(|target| (target.region, target.array)).unzip();
    let (pieces, spool) = (target.pieces(&arrays), target.spool);
    let mut refusal = None;
    let marks = waiting(py, Some(version), |wait| {
        let copies = Copies::new(spool, &pieces)?;
        let accept = |ticket: &RestoreTicket| {
            if !same_arrays(&ticket.head().regions, &head.regions) {
                refusal = Some((Class::Array, exchanged(version)));
            } else if let Some(name) = target.written.changed(version, ticket)? {
                refusal = Some((Class::Corrupt, overwritten(version, &name)));
            }
            Ok(refusal.is_none())
        };
        // A GPU has other ways to the bytes than the look at the text.
        match held.filter(|_| !copies.are_on_gpu()) {
            // SAFETY: as in `save`, and the arrays were found writable.
            Some(ticket) => unsafe { restore_held(ticket, copies, &at, accept) },
            // SAFETY: the same.
            None => unsafe { restore_pieces(spool, copies, version, &at, wait, accept) },
        }
    })?;
    if let Some((class, message)) = refusal {
        return Err(error(py, class, message));
    }
    target.release(py, arrays, marks.unwrap_or_default());
    Ok(())
}

fn exchanged(version: i64) -> String {
    format!(
        "Version {version} was discarded and saved again, with other arrays, while this call was \
         under way. Order the calls of your threads, and restore again."
    )
}

/// Whether the arrays are the same; where they lie and how they are encoded may differ.
fn same_arrays(left: &[Region], right: &[Region]) -> bool {
    let same = |(left, right): (&Region, &Region)| {
        left.name == right.name && left.dtype == right.dtype && left.shape == right.shape
    };
    left.len() == right.len() && left.iter().zip(right).all(same)
}
