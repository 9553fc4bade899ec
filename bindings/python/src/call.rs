//! Save and restore: from Python's arrays to the spool's memory and back.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use unspool::{Error, Head, RestoreTicket, SaveTicket, Spool};

use crate::array::Array;
use crate::errors::{Class, error};
use crate::regions::{Call, Given, Piece, specs};
use crate::waiting::{detached, waiting};

/// Saves the arrays of a call under `version`.
///
/// # Errors
/// Those of taking the arrays in, and those of the spool.
pub fn save(
    spool: &Spool,
    version: i64,
    positional: &Bound<'_, PyTuple>,
    named: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let py = positional.py();
    let given = Given::collect(Call { name: "save", version }, positional, named)?;
    let arrays = given.sources()?;
    let regions = specs(&given, &arrays);
    let pieces: Vec<Piece> = arrays.iter().map(Piece::of).collect();
    waiting(py, Some(version), |wait| {
        let ticket = spool.save(version, regions, wait)?;
        // SAFETY: `arrays` lives until this closure has returned.
        unsafe { fill(ticket, &pieces) }
    })
}

/// # Safety
/// The arrays of `pieces` are still borrowed.
unsafe fn fill(mut ticket: SaveTicket, pieces: &[Piece]) -> Result<(), Error> {
    for (index, piece) in pieces.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { piece.gather(ticket.region_mut(index)) };
    }
    ticket.commit()
}

/// The regions of a saved checkpoint.
///
/// # Errors
/// Those of the spool, when there is no such checkpoint.
pub fn head(py: Python<'_>, spool: &Spool, version: i64) -> PyResult<std::sync::Arc<Head>> {
    detached(py, Some(version), || spool.regions(version))
}

/// Restores `version` into the arrays of a call.
///
/// # Errors
/// Those of taking the arrays in, and those of the spool.
pub fn restore(
    spool: &Spool,
    version: i64,
    positional: &Bound<'_, PyTuple>,
    named: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let py = positional.py();
    let given = Given::collect(Call { name: "restore", version }, positional, named)?;
    let head = head(py, spool, version)?;
    let targets = given.targets(&head)?;
    restore_into(py, spool, version, &head, &targets)
}

/// Restores `version` into arrays that were checked against `head`.
///
/// # Errors
/// Those of the spool.
pub fn restore_into(
    py: Python<'_>,
    spool: &Spool,
    version: i64,
    head: &Head,
    targets: &[Array],
) -> PyResult<()> {
    let pieces: Vec<Piece> = targets.iter().map(Piece::of).collect();
    let same = waiting(py, Some(version), |wait| {
        let ticket = spool.restore(version, wait)?;
        if ticket.head().regions != head.regions {
            return Ok(false);
        }
        // SAFETY: `targets` lives until this closure has returned, and was found writable.
        unsafe { empty(ticket, &pieces) }.map(|()| true)
    })?;
    if same {
        return Ok(());
    }
    let message = format!(
        "Version {version} was discarded and saved again, with other arrays, while this call was \
         under way. Order the calls of your threads, and restore again."
    );
    Err(error(py, Class::RegionMismatch, message))
}

/// # Safety
/// The arrays of `pieces` are still borrowed, and may be written.
unsafe fn empty(ticket: RestoreTicket, pieces: &[Piece]) -> Result<(), Error> {
    for (index, piece) in pieces.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { piece.scatter(ticket.region(index)) };
    }
    ticket.finish()
}
