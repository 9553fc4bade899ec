//! Schedules for Python: what they say (`words`), drawing their actions in batches (`core`),
//! checking actions (`interpreter`), and what a dry run tells the driver (`ahead`, `uses`).

mod ahead;
mod core;
mod interpreter;
mod uses;
mod words;

use pyo3::prelude::*;

pub(crate) use self::core::ScheduleCore;
pub(crate) use self::interpreter::counted;

/// How many actions are followed between two looks at Python's signals.
const AT_ONCE: usize = 1 << 20;

/// Adds the classes to the extension module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<ScheduleCore>()?;
    m.add_class::<interpreter::PyInterpreter>()?;
    m.add_class::<ahead::Ahead>()?;
    m.add_class::<uses::Uses>()?;
    m.add_function(wrap_pyfunction!(core::trace_text, m)?)
}
