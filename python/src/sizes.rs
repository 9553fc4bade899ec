//! Sizes in bytes as people write them, for Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

pub use unspool::sizes::{display, parse};

/// The bytes of a size as text. A `ValueError` ends a sentence that says what to write.
#[pyfunction]
pub fn size_in_bytes(text: &str) -> PyResult<u64> {
    parse(text).map_err(PyValueError::new_err)
}
