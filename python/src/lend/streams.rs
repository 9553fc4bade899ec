//! The streams that a `with` block is in order with.

use pyo3::prelude::*;
use unspool::Error;
use unspool::gpu::{Gpu, Stream};

use crate::array::{LEGACY_STREAM, current_streams};
use crate::waiting::detached;

/// The stream of a block: what was given, or else the current one of the library `to`, or else that
/// of CuPy or PyTorch if they are in use, or else the legacy default stream.
pub fn of_block(py: Python<'_>, gpu: &Gpu, given: Option<usize>, to: Option<&str>) -> usize {
    let current = current_streams(py, gpu.ordinal());
    let named = current.iter().find(|(library, _)| to == Some(library));
    let found = named.or_else(|| current.first()).map(|(_, stream)| *stream);
    given.or(found).unwrap_or(LEGACY_STREAM)
}

/// Borrows a stream by its handle.
///
/// # Errors
/// `WrongDevice`, `Device`.
pub fn borrow(gpu: &Gpu, handle: usize) -> Result<Stream, Error> {
    // SAFETY: a stream that the user of a block gave, or the current one of a library.
    Ok(unsafe { Stream::borrow(gpu.context(), handle) }?)
}

/// Makes what is enqueued on `later` from now on wait for what is on `earlier` so far.
///
/// # Errors
/// `WrongDevice`, `Device`.
pub fn join(gpu: &Gpu, later: usize, earlier: usize) -> Result<(), Error> {
    if later == earlier {
        return Ok(());
    }
    let fence = gpu.fence(&borrow(gpu, earlier)?)?;
    Ok(borrow(gpu, later)?.wait_for(&fence)?)
}

/// Makes `stream` wait for the work on the current streams of the libraries: whoever leaves a block
/// without having named a stream has computed there.
///
/// # Errors
/// `DeviceError`.
pub fn gather(py: Python<'_>, gpu: &Gpu, stream: usize) -> PyResult<()> {
    let current = current_streams(py, gpu.ordinal());
    detached(py, None, || current.iter().try_for_each(|(_, current)| join(gpu, stream, *current)))
}

/// Makes the current streams of the libraries wait for what is on `stream`; whether there are any.
///
/// # Errors
/// `DeviceError`.
pub fn spread(py: Python<'_>, gpu: &Gpu, stream: usize) -> PyResult<bool> {
    let current = current_streams(py, gpu.ordinal());
    detached(py, None, || current.iter().try_for_each(|(_, current)| join(gpu, *current, stream)))?;
    Ok(!current.is_empty())
}
