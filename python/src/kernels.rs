//! The compiled kernels that come with the package: the file `kernels/kernels.pack`, where there
//! was one when it was built.

use pyo3::PyResult;
use pyo3::exceptions::PyImportError;

/// Nothing where it was built without.
static PACK: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.pack"));

/// Gives the library its kernels.
///
/// # Errors
/// `ImportError` when they are damaged.
pub fn ship() -> PyResult<()> {
    unspool::ship_kernels(PACK).map_err(|error| PyImportError::new_err(error.to_string()))
}
