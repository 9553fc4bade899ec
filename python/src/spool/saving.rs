//! What `unspool.Spool.save` does with its arguments.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::Spool;
use crate::call::{self, save_pieces};
use crate::codecs;

/// The arguments besides the arrays, as Python gives them.
#[derive(Debug)]
pub(super) struct Arguments<'a, 'py> {
    pub(super) stream: Option<&'a Bound<'py, PyAny>>,
    pub(super) codec: Option<&'a Bound<'py, PyAny>>,
    pub(super) overwrite: bool,
    pub(super) donate: bool,
}

/// Saves arrays as the arguments say.
///
/// # Errors
/// Those of `Spool.save`.
pub(super) fn save(
    slf: &Bound<'_, Spool>,
    version: i64,
    given: &Arguments<'_, '_>,
    arrays: &Bound<'_, PyTuple>,
    named: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let &Arguments { stream, codec, overwrite, donate } = given;
    let this = slf.get();
    let target = this.target(stream)?;
    let codec = codec.map(|codec| codecs::codecs(codec, "save(codec=...)")).transpose()?;
    let how = call::How { codec, overwrite, donate };
    this.call(slf.py(), version, || {
        call::save(target, version, &how, arrays, named, |copies, _, regions, wait| {
            // SAFETY: the arrays live until the copies are done.
            unsafe { save_pieces(target.spool, copies, version, regions, how.codec.as_ref(), wait) }
        })
    })
}
