//! The ends of `unspool.Spool`: `close`, a `with` block, and the last reference.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyException, PyKeyboardInterrupt};
use pyo3::prelude::*;
use unspool::Unflushed;

use super::Spool;
use crate::live;
use crate::panics::guarded;
use crate::waiting::waiting_for;

/// Closes a spool with what belongs to it.
///
/// # Errors
/// Those of `Spool.close`.
pub(super) fn close(
    slf: &Bound<'_, Spool>,
    timeout: Option<Duration>,
    unflushed: Unflushed,
) -> PyResult<()> {
    let (py, this) = (slf.py(), slf.get());
    guarded(py, || {
        this.kept.finish(py);
        let closed = waiting_for(py, None, timeout, |wait| this.spool().close_as(unflushed, wait));
        closed.inspect_err(|raised| {
            if raised.is_instance_of::<PyKeyboardInterrupt>(py) {
                this.front.note_interrupted();
            }
        })
    })?;
    this.order.forget();
    if let Some(text) = this.unseen.warning() {
        live::warn(py, &text)?;
    }
    Ok(())
}

/// Closes a spool and gives up what it cannot write, with a warning that names it.
///
/// # Errors
/// What else goes wrong, and what a filter of warnings raised.
pub(super) fn close_and_discard(slf: &Bound<'_, Spool>, timeout: Option<Duration>) -> PyResult<()> {
    let py = slf.py();
    let given_up = |failure: &PyErr| {
        let unsaved = failure.value(py).getattr("unsaved");
        let named = unsaved.and_then(|versions| versions.is_truthy()).unwrap_or(false);
        failure.is_instance_of::<PyException>(py) && named
    };
    match close(slf, timeout, Unflushed::Discard) {
        Err(failure) if given_up(&failure) => live::warn(py, &failure.value(py).to_string()),
        closed => closed,
    }
}

/// Closes a spool at the end of a `with` block that `raised` an exception, or None.
///
/// # Errors
/// Those of [`close`]; after an exception of the block they are a note of it.
pub(super) fn exit(slf: &Bound<'_, Spool>, raised: &Bound<'_, PyAny>) -> PyResult<()> {
    if raised.is_none() {
        return close(slf, None, Unflushed::Keep);
    }
    match close(slf, None, Unflushed::Discard) {
        // What a signal handler raised, such as `KeyboardInterrupt`, is never hidden.
        Err(failure) if failure.is_instance_of::<PyException>(slf.py()) => {
            let why = failure.value(slf.py());
            let note = format!("Closing the spool failed as well: {why}");
            raised.call_method1("add_note", (note,)).map(drop)
        }
        closed => closed,
    }
}

impl Drop for Spool {
    /// Closes the spool without holding up other Python threads.
    fn drop(&mut self) {
        // Python objects go only with Python attached; without it they stay.
        if Python::try_attach(|py| self.kept.finish(py)).is_none() {
            std::mem::forget(std::mem::take(&mut self.kept));
        }
        if Arc::strong_count(self.spool()) > 1 || self.spool().is_closed() {
            return;
        }
        // The spool closes itself if Python could not be attached.
        Python::try_attach(|py| {
            // An exception on its way may be what drops the spool: it goes on afterwards.
            let pending = PyErr::take(py);
            self.warn_of_drop(py);
            if let Err(raised) = live::close_last(py, &self.front) {
                raised.write_unraisable(py, None);
            }
            if let Some(pending) = pending {
                pending.restore(py);
            }
        });
    }
}
