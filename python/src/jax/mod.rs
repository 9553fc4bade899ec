//! Loops of JAX: functions that XLA calls in the middle of a compiled program, to save a state into
//! a spool and to restore it.
//!
//! XLA's interface (`ffi`) is looked at in one place (`frame`). What a program has is the number of
//! a loop (`loops`) and, in an array that it carries along, the number of a history (`histories`).
//! The calls themselves (`handlers`) end in the same saves and restores as those of Python. What a
//! failed execution leaves is found by `leftovers`.

mod ffi;
mod frame;
mod handlers;
mod histories;
pub mod leftovers;
mod loops;

use std::sync::Arc;

use pyo3::prelude::*;

use crate::codecs;
use crate::errors;
use crate::panics::guarded;
use crate::spool::Spool;

/// Adds what `unspool.jax` needs.
///
/// # Errors
/// What Python says.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(jax_handlers, m)?)?;
    m.add_function(wrap_pyfunction!(jax_loop, m)?)?;
    m.add_function(wrap_pyfunction!(jax_may_join, m)?)?;
    m.add_function(wrap_pyfunction!(jax_forget, m)?)?;
    m.add_function(wrap_pyfunction!(leftovers::jax_tidied_by, m)?)?;
    m.add_function(wrap_pyfunction!(leftovers::jax_tidy, m)?)?;
    m.add_function(wrap_pyfunction!(jax_give_up, m)?)?;
    m.add_function(wrap_pyfunction!(jax_drop, m)?)
}

/// The functions for XLA: the name of each, and its address for the host and for a GPU.
#[pyfunction]
pub fn jax_handlers() -> Vec<(&'static str, usize, usize)> {
    handlers::all()
}

/// Remembers where a loop keeps its states: one spool, or one for each GPU. Its number.
#[pyfunction]
#[pyo3(signature = (spools, codec=None))]
pub fn jax_loop(spools: Vec<Bound<'_, Spool>>, codec: Option<&Bound<'_, PyAny>>) -> PyResult<i64> {
    let codec = codec.map(|codec| codecs::codecs(codec, "unspool.jax(codec=...)")).transpose()?;
    let fronts: Vec<Arc<_>> = spools.iter().map(|spool| spool.get().shared_front()).collect();
    Ok(loops::remember(&fronts, codec))
}

/// Whether states of a loop may be saved as one array: no codec of the loop does to a value what
/// depends on the rest of its array.
#[pyfunction]
pub fn jax_may_join(py: Python<'_>, number: i64) -> PyResult<bool> {
    let found = loops::find(number).map_err(|error| errors::from_spool(py, &error, None))?;
    Ok(!found.depends_on_states())
}

/// Discards what forward passes have saved and no backward pass has begun to read, in one spool or
/// in all; of how many passes.
#[pyfunction]
#[pyo3(signature = (spool=None))]
pub fn jax_forget(py: Python<'_>, spool: Option<Bound<'_, Spool>>) -> PyResult<usize> {
    let front = spool.map(|spool| spool.get().shared_front());
    guarded(py, || Ok(py.detach(|| histories::forget(front.as_deref()))))
}

/// Discards what one forward pass has saved, by the number in its token, unless a backward pass
/// reads it or has read it.
#[pyfunction]
pub fn jax_drop(py: Python<'_>, number: u64) -> PyResult<()> {
    guarded(py, || {
        py.detach(|| histories::drop_kept(number));
        Ok(())
    })
}

/// Discards what one pass has saved or was to read, by the number in its token: it has failed.
#[pyfunction]
pub fn jax_give_up(py: Python<'_>, number: u64) -> PyResult<()> {
    guarded(py, || {
        py.detach(|| histories::give_up(number));
        Ok(())
    })
}
