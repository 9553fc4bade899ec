//! Calls that may wait: without Python attached, and ended early by Ctrl-C.
//!
//! Even the smallest copy lets go of the interpreter, because the call around it may wait. It
//! costs little: a restore of 8 doubles takes 3 microseconds alone and 8 beside a thread that
//! computes in Python, because the interpreter is back before that thread has woken up.

use std::sync::Mutex;
use std::time::Duration;

use pyo3::prelude::*;
use unspool::{Error, ErrorKind, Wait};

use crate::errors::{from_spool, interrupted};

/// Runs `work` while other Python threads run, and turns its error into an exception.
///
/// While the spool waits it asks, several times a second, whether to go on; signal handlers of
/// Python run then, and what one of them raises (`KeyboardInterrupt`) ends the wait. What the wait
/// was for is added to that as a note.
pub fn waiting<T: Send>(
    py: Python<'_>,
    version: Option<i64>,
    work: impl FnOnce(&Wait<'_>) -> Result<T, Error> + Send,
) -> PyResult<T> {
    waiting_for(py, version, None, work)
}

/// As [`waiting`], at most `timeout` if one is given.
pub fn waiting_for<T: Send>(
    py: Python<'_>,
    version: Option<i64>,
    timeout: Option<Duration>,
    work: impl FnOnce(&Wait<'_>) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let raised: Mutex<Option<PyErr>> = Mutex::new(None);
    let outcome = py.detach(|| {
        let interrupted = || signalled(&raised);
        work(&Wait { timeout, interrupted: &interrupted, ..Wait::default() })
    });
    let handler = raised.into_inner().unwrap_or_default();
    match (outcome, handler) {
        (Ok(done), None) => Ok(done),
        // Whatever became of the call: what a signal handler raises is never dropped.
        (Ok(_), Some(raised)) => Err(raised),
        (Err(error), Some(raised)) => {
            let _ = raised.value(py).call_method1("add_note", (error.message(),));
            Err(raised)
        }
        (Err(error), None) if error.kind() == ErrorKind::Interrupted => Err(interrupted()),
        (Err(error), None) => Err(from_spool(py, &error, version)),
    }
}

/// Runs the signal handlers of Python; whether one of them raised, or Python is going away.
fn signalled(raised: &Mutex<Option<PyErr>>) -> bool {
    let Some(outcome) = Python::try_attach(|py| py.check_signals()) else {
        return true;
    };
    let Err(exception) = outcome else {
        return false;
    };
    if let Ok(mut slot) = raised.lock() {
        *slot = Some(exception);
    }
    true
}

/// Runs `work` while other Python threads run; it does not wait for anything but locks and media.
pub fn detached<T: Send>(
    py: Python<'_>,
    version: Option<i64>,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> PyResult<T> {
    py.detach(work).map_err(|error| from_spool(py, &error, version))
}
