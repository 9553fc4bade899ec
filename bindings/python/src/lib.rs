//! The Python bindings of Unspool.

use pyo3::prelude::*;

/// The extension module `unspool._unspool`.
#[pymodule]
fn _unspool(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))
}
