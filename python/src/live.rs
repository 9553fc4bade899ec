//! The spools that are open, so that the interpreter closes them when it exits.

use std::ffi::CString;
use std::sync::{Arc, Mutex, Weak};

use pyo3::exceptions::PyRuntimeWarning;
use pyo3::prelude::*;

use crate::front::Front;
use crate::panics::guarded;
use crate::waiting::waiting;

static LIVE: Mutex<Vec<Weak<Front>>> = Mutex::new(Vec::new());

/// Remembers an open spool for as long as it lives.
pub fn remember(spool: &Arc<Front>) {
    // The lock is only ever held while Python is attached, so that nobody holds it here; should
    // it be lost all the same, the spool is closed when it is dropped.
    if let Ok(mut live) = LIVE.try_lock() {
        live.retain(|known| known.strong_count() > 0);
        live.push(Arc::downgrade(spool));
    }
}

/// Closes every spool that is still open, and warns of what could not be made durable.
#[pyfunction]
pub fn close_all(py: Python<'_>) -> PyResult<()> {
    let known = LIVE.try_lock().map(|mut live| std::mem::take(&mut *live)).unwrap_or_default();
    let open: Vec<Arc<Front>> = known.iter().filter_map(Weak::upgrade).collect();
    open.into_iter().try_for_each(|spool| close_last(py, &spool))
}

/// Gives back host memory that closed spools of this process have left; returns its bytes.
///
/// Host memory for a GPU is touched and registered with the driver, which takes long. That of a
/// closed spool is kept for the next one: for at most a minute, never more than the machine has
/// free memory left, and only until another spool needs the room.
#[pyfunction]
pub fn trim(py: Python<'_>) -> PyResult<u64> {
    guarded(py, || Ok(py.detach(unspool::trim)))
}

/// Closes a spool that is not used any more, and warns of what could not be made durable.
///
/// # Errors
/// What a signal handler raised, or a filter of warnings.
pub fn close_last(py: Python<'_>, spool: &Front) -> PyResult<()> {
    if spool.spool().is_closed() {
        return Ok(());
    }
    let mut failure = None;
    waiting(py, None, |wait| {
        failure = spool.close_last(wait).err();
        Ok(())
    })?;
    failure.map_or(Ok(()), |error| warn(py, error.message()))
}

/// Warns of what a closed spool has not made durable.
///
/// # Errors
/// What a filter of warnings raised.
pub fn warn(py: Python<'_>, failure: &str) -> PyResult<()> {
    let text = CString::new(failure.replace('\0', " "))?;
    PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1)
}
