//! Versions as Python gives them: integers, and everything with `__index__`.

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use crate::errors::{Class, error};

/// The number of a checkpoint.
///
/// # Errors
/// `OptionError` when it is not an integer of 64 bits.
pub fn version(found: &Bound<'_, PyAny>) -> PyResult<i64> {
    found.extract().map_err(|raised: PyErr| {
        let py = found.py();
        let message = if raised.is_instance_of::<PyOverflowError>(py) {
            "version=...: a version is an integer from -2**63 to 2**63 - 1.".to_owned()
        } else {
            let class = found.get_type();
            format!("version=...: {class} is not an integer, which a version has to be.")
        };
        error(py, Class::Option, message)
    })
}
