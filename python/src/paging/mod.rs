//! Arrays larger than memory, for Python: the memory that an array is made over, and its pins.
//!
//! The memory lives as long as any array or view of it: Python counts them, and gives it back after
//! the last one. What is done to it meanwhile goes through `unspool_paging`, without Python.

mod options;

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use unspool_paging::{OrderSource, Paged, PagingError, PagingErrorKind, Pinned};

use crate::errors::{Class, error};

/// Memory of which a part is in main memory at a time, for `unspool.paged`.
#[pyclass(module = "unspool", frozen, weakref)]
#[derive(Debug)]
pub struct PagedMemory(Paged);

/// Chunks that stay in main memory until they are released.
#[pyclass(module = "unspool", frozen)]
#[derive(Debug)]
pub struct PagedPin {
    memory: Py<PagedMemory>,
    pinned: Mutex<Option<Pinned>>,
}

#[pymethods]
impl PagedMemory {
    #[new]
    #[pyo3(signature = (nbytes, dtype, resident, **options))]
    fn new(
        py: Python<'_>,
        nbytes: usize,
        dtype: &str,
        resident: u64,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PagedMemory> {
        let options = options::read(py, dtype, resident, options)?;
        let paged = py.detach(|| Paged::new(nbytes, &options));
        paged.map(PagedMemory).map_err(|why| raised(py, &why))
    }

    /// The address of the first byte.
    #[getter]
    fn address(&self) -> usize {
        self.0.start() as usize
    }

    /// Takes the order of accesses: parts of the memory, as the bytes where they begin and end.
    fn expect(&self, py: Python<'_>, order: Option<Vec<(usize, usize)>>) -> PyResult<()> {
        let parts: Option<Vec<Range<usize>>> =
            order.map(|parts| parts.into_iter().map(|(start, end)| start..end).collect());
        let taken = py.detach(|| self.0.expect(parts.as_deref()));
        taken.map_err(|why| raised(py, &why))
    }

    /// Keeps some bytes in main memory, until the pin is released.
    fn pin(slf: &Bound<'_, Self>, start: usize, end: usize, writes: bool) -> PyResult<PagedPin> {
        let py = slf.py();
        let paged = &slf.get().0;
        let pinned = py.detach(|| paged.pin(start..end, writes));
        let pinned = pinned.map_err(|why| raised(py, &why))?;
        Ok(PagedPin { memory: slf.clone().unbind(), pinned: Mutex::new(Some(pinned)) })
    }

    /// What was done so far, by name.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = py.detach(|| self.0.stats()).map_err(|why| raised(py, &why))?;
        let resident = py.detach(|| self.0.resident_bytes()).map_err(|why| raised(py, &why))?;
        let order = match stats.order {
            OrderSource::Given => Some("given"),
            OrderSource::Detected => Some("detected"),
            OrderSource::None => None,
        };
        let all = PyDict::new(py);
        let figures = [
            ("bytes", stats.bytes),
            ("resident_limit", stats.resident_limit),
            ("resident", resident),
            ("chunk_bytes", stats.chunk_bytes),
            ("faults", stats.faults),
            ("write_faults", stats.write_faults),
            ("late", stats.late),
            ("loads", stats.loads),
            ("loads_ahead", stats.loads_ahead),
            ("ahead_hits", stats.ahead_hits),
            ("evictions", stats.evictions),
            ("dropped_clean", stats.dropped_clean),
            ("refusals", stats.refusals),
            ("lost", stats.lost),
            ("bytes_encoded", stats.bytes_encoded),
            ("bytes_stored", stats.bytes_stored),
            ("bytes_decoded", stats.bytes_decoded),
            ("lossy_most", stats.lossy_most),
            ("stored_in_memory", stats.stored_in_memory),
            ("stored_on_disk", stats.stored_on_disk),
        ];
        for (name, figure) in figures {
            all.set_item(name, figure)?;
        }
        all.set_item("wait_seconds", stats.wait_ns as f64 * 1e-9)?;
        all.set_item("kernel_faults", stats.kernel_faults)?;
        all.set_item("order", order)?;
        all.set_item("last_refusal", stats.last_refusal)?;
        Ok(all)
    }

    /// # Safety
    /// Called by Python with a view to be filled, or null.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no view to be filled"));
        }
        let paged = &slf.get().0;
        let (address, len) = (paged.start().cast::<c_void>(), paged.len() as ffi::Py_ssize_t);
        // SAFETY: `view` is not null and Python's to be filled, and gets a reference to `slf`. The
        // bytes belong to that, and stay where they are as long as it lives.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address, len, 0, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

#[pymethods]
impl PagedPin {
    /// Ends it. A second time does nothing.
    fn release(&self, py: Python<'_>) {
        let pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(pinned) = pinned {
            let paged = &self.memory.get().0;
            py.detach(|| paged.unpin(pinned));
        }
    }
}

impl Drop for PagedPin {
    fn drop(&mut self) {
        let pinned = self.pinned.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(pinned) = pinned {
            self.memory.get().0.unpin(pinned);
        }
    }
}

fn raised(py: Python<'_>, why: &PagingError) -> PyErr {
    let class = match why.kind() {
        PagingErrorKind::Invalid => Class::Option,
        PagingErrorKind::Refused => Class::Refused,
        PagingErrorKind::NoMemory => Class::Capacity,
        PagingErrorKind::Io => Class::Storage,
        PagingErrorKind::Corrupt => Class::Corrupt,
        PagingErrorKind::Timeout => Class::Timeout,
        PagingErrorKind::Forked => Class::Closed,
        _ => Class::Internal,
    };
    error(py, class, why.to_string())
}
