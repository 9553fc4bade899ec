//! The core's interpreter, for the driver and for schedules that are written in Python.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use unspool_schedule::{Counts, Fault, Interpreter, Limits};

use super::words;
use crate::errors::{Class, error};
use crate::panics::guarded;

/// Follows a schedule action by action and refuses the first one that breaks a rule.
#[pyclass(frozen, name = "Interpreter", module = "unspool._unspool")]
pub(crate) struct PyInterpreter {
    inner: Mutex<Interpreter>,
}

impl PyInterpreter {
    fn inner(&self) -> MutexGuard<'_, Interpreter> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyInterpreter {
    #[new]
    #[pyo3(signature = (steps=None, slots=None))]
    fn new(steps: Option<u64>, slots: Option<u64>) -> PyInterpreter {
        let slots = slots.unwrap_or(u64::MAX);
        let limits = Limits { steps, slots, ..Limits::none() };
        PyInterpreter { inner: Mutex::new(Interpreter::new(limits)) }
    }

    /// Follows these actions as far as they keep the rules: how many did, and what is wrong with
    /// the next one, or None.
    fn see(&self, words: &Bound<'_, PyAny>) -> PyResult<(usize, Option<String>)> {
        let actions = words::actions(words)?;
        guarded(words.py(), || {
            let mut inner = self.inner();
            for (count, action) in actions.iter().enumerate() {
                if let Err(fault) = inner.see(action) {
                    return Ok((count, Some(text(&fault))));
                }
            }
            Ok((actions.len(), None))
        })
    }

    /// The `Forward` that was seen last went to state `steps` and no further: the forward pass has
    /// ended.
    fn stopped_at(&self, py: Python<'_>, steps: u64) -> PyResult<()> {
        let stopped = || self.inner().stopped_at(steps);
        guarded(py, || stopped().map_err(|fault| refused(py, &fault)))
    }

    /// Whether the schedule ended as it must.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let finish = || self.inner().finish();
        guarded(py, || finish().map_err(|fault| refused(py, &fault)).map(|_| ()))
    }

    /// What was counted until now: the fields of `unspool.schedules.Counts`.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = self.inner().counts();
        counted(py, &counts)
    }
}

/// The fields of `unspool.schedules.Counts`.
pub(crate) fn counted<'py>(py: Python<'py>, counts: &Counts) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    for (name, value) in [
        ("steps", counts.steps),
        ("advances", counts.advances),
        ("saves", counts.saves),
        ("restores", counts.restores),
        ("reverses", counts.reverses),
        ("discards", counts.discards),
        ("peak", counts.peak),
    ] {
        fields.set_item(name, value)?;
    }
    let tiers = PyDict::new(py);
    for tier in words::tiers().filter(|&tier| counts.peak_of(tier) > 0) {
        tiers.set_item(tier.name(), counts.peak_of(tier))?;
    }
    fields.set_item("tiers", tiers)?;
    Ok(fields)
}

/// The fault with its action as Python writes it.
pub(crate) fn text(fault: &Fault) -> String {
    match fault.action {
        Some(action) => {
            format!("action {}, {}: {}", fault.place, words::spelled(action), fault.rule)
        }
        None => format!("after {} actions: {}", fault.place, fault.rule),
    }
}

/// The fault as a `ScheduleError`.
pub(crate) fn refused(py: Python<'_>, fault: &Fault) -> PyErr {
    error(py, Class::Schedule, format!("This is not a valid schedule: {}.", text(fault)))
}
