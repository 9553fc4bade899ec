//! Arrays that are given away: the spool takes their memory, and keeps alive what it belongs to.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use pyo3::prelude::*;
use unspool::gpu::GivenArray;
use unspool::{Error, RegionSpec, Wait};

use crate::array::{Array, Owner};
use crate::errors::{Class, error};
use crate::gpu::{AfterCopy, DevicePiece};
use crate::target::Target;
use crate::waiting::waiting;

/// What keeps a given array alive, and the stream in whose order it is let go of.
#[derive(Debug)]
pub struct Donor(ManuallyDrop<(Owner, Option<Py<PyAny>>)>);

// SAFETY: as for arrays that are kept for copies under way: an owner is made and dropped while
// Python is attached, which `Drop` sees to, on whichever thread. What lends memory of a GPU is a
// reference to a Python object, or a tensor of DLPack, whose deleter may be called on any thread.
unsafe impl Send for Donor {}
// SAFETY: nothing can be done with a shared one.
unsafe impl Sync for Donor {}

impl Donor {
    /// What owns the memory of `array`; `stream` stays alive with it.
    pub fn of(array: Array, stream: Option<Py<PyAny>>) -> Donor {
        Donor(ManuallyDrop::new((array.into_owner(), stream)))
    }
}

impl Drop for Donor {
    /// Python objects go only with Python attached; at the end of the interpreter they stay.
    fn drop(&mut self) {
        // SAFETY: this is the only place that drops it, and it is not used after that.
        let _ = Python::try_attach(|_py| unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}

/// Saves one array that the spool takes, whose memory belongs to `donor`.
///
/// # Errors
/// Those of the spool.
pub fn save(
    py: Python<'_>,
    target: Target<'_>,
    version: i64,
    (region, piece, donor): (RegionSpec, &DevicePiece, Donor),
) -> PyResult<()> {
    let spool = target.spool;
    let save = |wait: &Wait<'_>| -> Result<(), Error> {
        let (gpu, stream) = (spool.gpu_of(piece.array().ordinal())?, piece.stream(spool)?);
        let wait = Wait { stream: Some(&stream), ..*wait };
        let span = piece.array().span(gpu.context());
        // Its library hands memory out again in the order of that stream, where it names one.
        let waits = piece.after() == AfterCopy::Nothing;
        let given = GivenArray::new(span, piece.stream(spool)?, waits, Arc::new(donor));
        spool.save_given(version, region, (piece.array(), given), &wait)
    };
    let saved = waiting(py, Some(version), |wait| {
        target.blocks.unless_stuck((spool, version), wait, save)
    })?;
    saved.map_err(|refusal| error(py, Class::Capacity, refusal))
}
