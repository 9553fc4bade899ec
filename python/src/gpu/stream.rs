//! The argument `stream=` of a call.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::array::LEGACY_STREAM;
use crate::errors::{Class, error};

/// The handle of a stream: an integer, a stream of CuPy or PyTorch, or anything that speaks
/// `__cuda_stream__`; `None` for `None`.
///
/// # Errors
/// `OptionError` when it is not a stream.
pub fn handle(stream: Option<&Bound<'_, PyAny>>) -> PyResult<Option<usize>> {
    let Some(stream) = stream.filter(|stream| !stream.is_none()) else { return Ok(None) };
    match number(stream) {
        // 0 is the legacy default stream, which the array libraries call 1.
        Some(found) => Ok(Some(found.max(LEGACY_STREAM))),
        None => Err(refused(stream)),
    }
}

fn number(stream: &Bound<'_, PyAny>) -> Option<usize> {
    let py = stream.py();
    if stream.is_instance_of::<PyBool>() {
        return None;
    }
    if let Ok(number) = stream.extract() {
        return Some(number);
    }
    for name in [intern!(py, "ptr"), intern!(py, "cuda_stream")] {
        if let Ok(Some(found)) = stream.getattr_opt(name) {
            return found.extract().ok();
        }
    }
    let Ok(Some(protocol)) = stream.getattr_opt(intern!(py, "__cuda_stream__")) else {
        return of_numba(stream);
    };
    let answer = if protocol.is_callable() { protocol.call0().ok()? } else { protocol };
    let (version, handle): (i64, usize) = answer.extract().ok()?;
    (version == 0).then_some(handle)
}

/// The handle of a stream of Numba, which older versions of it show as a number of `ctypes`.
fn of_numba(stream: &Bound<'_, PyAny>) -> Option<usize> {
    let handle = stream.getattr_opt(intern!(stream.py(), "handle")).ok()??;
    handle.extract().or_else(|_| handle.getattr("value")?.extract()).ok()
}

fn refused(stream: &Bound<'_, PyAny>) -> PyErr {
    let class = stream.get_type().name().map_or_else(|_| "this".to_owned(), |n| n.to_string());
    let message = format!(
        "stream=...: an object of the class {class} is not a CUDA stream. Give a stream of CuPy or \
         PyTorch, an object with __cuda_stream__, or the handle as an integer; an array that is \
         called \"stream\" has to be given by position or by another name."
    );
    error(stream.py(), Class::Option, message)
}
