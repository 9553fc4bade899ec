//! Memory of the spool itself, lent to be computed in: `Spool.writing` and `Spool.reading`.
//!
//! A `with` block holds a ticket of the spool and gives out buffers, which other libraries turn
//! into arrays of theirs without a copy. When the block is left the ticket is settled and the
//! buffers are lent no more. Who still has a view of one sees memory that is mapped, but whose
//! content belongs to somebody else: every export keeps the arena in place.

mod block;
mod device;
mod export;
mod host;
mod items;
mod memory;
mod reading;
mod streams;
mod writing;

pub use block::Block;
pub use device::DeviceBuffer;
pub use host::HostBuffer;
pub use items::Items;
pub use reading::Reading;
pub use writing::{Writing, described};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use unspool::Head;

use crate::regions::is_positional;

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
    if !is_positional(head) {
        let named = PyDict::new(py);
        for (region, thing) in head.regions.iter().zip(things) {
            named.set_item(&region.name, thing)?;
        }
        return Ok(named.into_any());
    }
    if things.len() == 1 {
        return Ok(things.remove(0));
    }
    Ok(PyTuple::new(py, things)?.into_any())
}

/// A buffer as an array of the library `to`, over the same memory.
fn adopt<'py>(buffer: Bound<'py, PyAny>, to: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
    let Some(to) = to else { return Ok(buffer) };
    let py = buffer.py();
    let helpers = py.import(intern!(py, "unspool._arrays"))?;
    helpers.getattr(intern!(py, "adopt"))?.call1((buffer, to))
}
