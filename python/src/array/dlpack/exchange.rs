//! The C exchange table of a library: its arrays and its current stream without a call of Python.

use std::ptr::NonNull;

use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};

use super::raw::{CUDA, DlpackVersion, EXCHANGE, Exchange, MAJOR, VersionedTensor};

/// An exchange table whose version is known here.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeTable(NonNull<Exchange>);

// SAFETY: a table lives as long as the process and never changes.
unsafe impl Send for ExchangeTable {}
// SAFETY: as above.
unsafe impl Sync for ExchangeTable {}

impl ExchangeTable {
    /// The table in a capsule; `None` when it is of another kind or version.
    pub fn of(capsule: &Bound<'_, PyCapsule>) -> Option<ExchangeTable> {
        let address = capsule.pointer_checked(Some(EXCHANGE)).ok()?;
        // SAFETY: a capsule of this name holds the address of a table that lives as long as the
        // process; only the header is read before its version is known.
        let version = unsafe { address.cast::<DlpackVersion>().as_ref() };
        (version.major == MAJOR).then(|| ExchangeTable(address.cast()))
    }

    fn entries(&self) -> &Exchange {
        // SAFETY: of a version that is laid out like this, and it is never freed.
        unsafe { self.0.as_ref() }
    }

    /// The memory of `object`; `None` when the library gives none.
    pub fn export(&self, object: &Bound<'_, PyAny>) -> Option<VersionedTensor> {
        let export = self.entries().export?;
        let mut tensor = std::ptr::null_mut();
        // SAFETY: `object` is live and an instance of the class that the table belongs to.
        let status = unsafe { export(object.as_ptr().cast(), &raw mut tensor) };
        let Some(tensor) = NonNull::new(tensor).filter(|_| status == 0) else {
            // `__dlpack__` says what is wrong in better words.
            drop(PyErr::take(object.py()));
            return None;
        };
        // SAFETY: the table hands it over.
        Some(unsafe { VersionedTensor::new(tensor) })
    }

    /// The stream on which the library works on CUDA device `ordinal` at this moment; `None` when
    /// it does not say.
    pub fn current_stream(&self, ordinal: u32) -> Option<usize> {
        let current = self.entries().current_work_stream?;
        let mut stream = std::ptr::null_mut();
        // SAFETY: the entry fills `stream` and needs nothing else.
        let status = unsafe { current(CUDA, ordinal.cast_signed(), &raw mut stream) };
        if status != 0 {
            // The library may have left an exception: whoever asks falls back to another way.
            Python::attach(|py| drop(PyErr::take(py)));
            return None;
        }
        Some((stream as usize).max(super::LEGACY_STREAM))
    }
}
