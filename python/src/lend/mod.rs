//! Computing in the memory of the spool itself: `Spool.writing` and `Spool.reading`.
//!
//! A `with` block holds a ticket of the spool and gives out buffers, which other libraries turn
//! into arrays of theirs without a copy. The end of the block ends the ticket and the buffers. A
//! view of one that is left shows memory that is mapped, because every export keeps the arena in
//! place, but that may belong to another checkpoint.

mod block;
mod blocks;
mod device;
mod export;
mod host;
mod items;
mod memory;
mod reading;
mod streams;
mod writing;
mod written;

pub use block::Block;
pub use blocks::Blocks;
pub use device::DeviceBuffer;
pub use host::HostBuffer;
pub use items::Items;
pub use reading::Reading;
pub use writing::{Writing, described};
pub use written::{Written, overwritten};

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use unspool::gpu::{BlockMemory, Gpu, Stream};
use unspool::{Head, Spool};

use crate::trees;

/// What a block needs of its spool.
#[derive(Clone, Debug)]
pub struct InPlace {
    /// The spool.
    pub spool: Arc<Spool>,
    /// The GPU in whose memory the fastest tier is.
    pub gpu: Option<Gpu>,
    /// Checksums of what was computed in place.
    pub written: Arc<Written>,
    /// The blocks that are open.
    pub blocks: Arc<Blocks>,
}

/// What the block gives to its user: one thing, a tuple or a dictionary, as the regions of `head`
/// were given.
///
/// # Errors
/// Whatever Python raises when it makes them.
pub fn arrange<'py>(
    py: Python<'py>,
    head: &Head,
    mut things: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if !trees::is_positional(head) {
        let named = PyDict::new(py);
        let regions = head.regions.iter().zip(things);
        for (region, thing) in regions.filter(|(region, _)| !trees::describes(region)) {
            named.set_item(&region.name, thing)?;
        }
        return Ok(named.into_any());
    }
    if things.len() == 1 {
        return Ok(things.remove(0));
    }
    Ok(PyTuple::new(py, things)?.into_any())
}

/// Lets others have the memory that a block has worked in, after what is on its stream.
fn done<'a>(gpu: &Gpu, stream: &Stream, all: impl IntoIterator<Item = &'a Arc<BlockMemory>>) {
    let mut all = all.into_iter().peekable();
    if all.peek().is_none() {
        return;
    }
    // Without a fence it is freed after everything on the device.
    let Ok(fence) = gpu.fence(stream) else { return };
    all.for_each(|memory| memory.done(fence.clone()));
}

/// Makes arrays of NumPy over the memory of a block read-only: it ends.
fn close_to_writes(py: Python<'_>, arrays: &[Py<PyAny>]) -> PyResult<()> {
    let helpers = py.import(intern!(py, "unspool._arrays"))?;
    let close = helpers.getattr(intern!(py, "close_to_writes"))?;
    arrays.iter().try_for_each(|array| close.call1((array,)).map(drop))
}

/// A buffer as an array of the library `to`, over the same memory.
fn wrap<'py>(buffer: Bound<'py, PyAny>, to: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
    let Some(to) = to else { return Ok(buffer) };
    let py = buffer.py();
    let helpers = py.import(intern!(py, "unspool._arrays"))?;
    helpers.getattr(intern!(py, "adopt"))?.call1((buffer, to))
}
