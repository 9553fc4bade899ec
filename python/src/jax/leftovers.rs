//! Checkpoints in a spool of calls that ended without reading them: XLA does not say when the
//! execution of a program fails, so that it is found out afterwards.
//!
//! Who holds a token, and which threads are at work, only Python knows: `unspool.jax` says how to
//! ask (`jax_tidied_by`).

use std::collections::HashSet;
use std::mem;
use std::sync::{Mutex, PoisonError};
use std::thread;

use pyo3::prelude::*;

use super::histories::{self, Execution};

/// `tidy(of_python, run)`, which ends in `jax_tidy`.
static ASKED: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

/// Whether this is a thread of Python, and not one of XLA's.
pub fn is_of_python() -> bool {
    // SAFETY: it looks at this thread alone.
    unsafe { !pyo3::ffi::PyGILState_GetThisThreadState().is_null() }
}

/// Gives up what ended calls have left, before somebody looks at a spool.
///
/// # Errors
/// What Python says.
pub fn tidy(py: Python<'_>) -> PyResult<()> {
    if histories::any() { ask(py, true, None) } else { Ok(()) }
}

/// Gives up what ended calls have left, when another one begins.
pub fn tidy_within(execution: Execution) {
    let asked = |py: Python<'_>| ask(py, execution.thread.is_some(), execution.run);
    // What is left then stays until it is asked again.
    let _ = Python::try_attach(asked);
}

fn ask(py: Python<'_>, of_python: bool, run: Option<i64>) -> PyResult<()> {
    // Not while the lock is held: another thread of Python would wait for it, and what is called
    // lets such a thread go on.
    let asked = {
        let known = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().map(|asked| asked.clone_ref(py))
    };
    asked.map_or(Ok(()), |asked| asked.call1(py, (of_python, run)).map(drop))
}

/// Says whom to ask, or that nobody is asked; who was asked before.
#[pyfunction]
#[pyo3(signature = (asked))]
pub fn jax_tidied_by(asked: Option<Py<PyAny>>) -> Option<Py<PyAny>> {
    mem::replace(&mut *ASKED.lock().unwrap_or_else(PoisonError::into_inner), asked)
}

/// Gives up the histories that `histories::tidy` says.
#[pyfunction]
pub fn jax_tidy(
    py: Python<'_>,
    live: HashSet<u64>,
    of_python: bool,
    alone: bool,
    run: Option<i64>,
) {
    let thread = of_python.then(|| thread::current().id());
    py.detach(|| histories::tidy(&live, thread, alone, run));
}
