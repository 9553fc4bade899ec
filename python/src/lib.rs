//! The Python bindings of Unspool: the extension module `unspool._unspool`.
//!
//! Python's arrays are taken in (`array`), matched with the regions of a checkpoint (`regions`),
//! and copied straight to and from the spool's memory (`strided`, `call`) while other Python
//! threads run (`waiting`); copies of arrays on a GPU are only enqueued (`gpu`). Numbers and texts
//! beside them are a region more (`trees`). The spool's own memory can be computed in (`lend`).
//! Schedules give their actions in batches (`schedule`) and are forecast (`forecast`). Long jobs go
//! on from checkpoints that all ranks have (`restart`). Arrays may be larger than memory
//! (`paging`), and those of a GPU may be messages (`messages`). Programs of JAX save and restore
//! from within (`jax`). Errors become exceptions (`errors`), panics end here (`panics`).

mod accumulate;
mod array;
mod batched;
mod call;
mod codecs;
mod copies;
mod debug;
mod doctor;
mod donate;
mod energy;
mod errors;
mod forecast;
mod front;
mod given;
mod gpu;
#[path = "../../engine/codec/hidden.rs"]
mod hidden;
mod hints;
mod jax;
mod kernels;
mod lend;
mod live;
mod load;
mod many;
mod messages;
mod opening;
mod options;
mod paging;
mod panics;
mod piece;
mod regions;
mod restart;
mod schedule;
mod sizes;
mod spool;
mod stats;
mod strided;
mod target;
mod trees;
mod version;
mod waiting;

use pyo3::prelude::*;

/// The extension module `unspool._unspool`.
#[pymodule]
fn _unspool(m: &Bound<'_, PyModule>) -> PyResult<()> {
    panics::keep_quiet();
    kernels::ship()?;
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<spool::Spool>()?;
    m.add_class::<batched::BatchCore>()?;
    m.add_class::<array::Exporter>()?;
    m.add_class::<lend::HostBuffer>()?;
    m.add_class::<lend::DeviceBuffer>()?;
    m.add_class::<lend::Writing>()?;
    m.add_class::<lend::Reading>()?;
    m.add_function(wrap_pyfunction!(live::close_all, m)?)?;
    m.add_function(wrap_pyfunction!(live::trim, m)?)?;
    m.add_function(wrap_pyfunction!(doctor::examine, m)?)?;
    m.add_function(wrap_pyfunction!(sizes::size_in_bytes, m)?)?;
    codecs::register(m)?;
    schedule::register(m)?;
    m.add_class::<restart::RestartCore>()?;
    m.add_function(wrap_pyfunction!(restart::options::duration_in_seconds, m)?)?;
    m.add_function(wrap_pyfunction!(restart::options::automatic_rule, m)?)?;
    m.add_class::<paging::PagedMemory>()?;
    m.add_class::<paging::PagedPin>()?;
    m.add_class::<messages::MessageDevices>()?;
    jax::register(m)?;
    m.add_function(wrap_pyfunction!(forecast::run_forecast, m)?)?;
    m.add_function(wrap_pyfunction!(accumulate::run_plan, m)?)?;
    m.add_function(wrap_pyfunction!(accumulate::run_follow, m)?)?;
    Ok(())
}
