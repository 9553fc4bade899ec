//! Sizes in bytes as people write them, for Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

pub use unspool::sizes::{display, parse};

/// The bytes of a size that is written as text, as every option takes it. A `ValueError` says what
/// to write instead, as the end of a sentence.
#[pyfunction]
pub fn size_in_bytes(text: &str) -> PyResult<u64> {
    parse(text).map_err(PyValueError::new_err)
}
