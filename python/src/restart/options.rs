//! The options of `Checkpointer(...)`, with errors that say what to write.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};
use unspool_restart::{Every, Fulls, Rule, duration};

use crate::errors::{Class, error};

fn wrong(value: &Bound<'_, PyAny>, name: &str, why: &str) -> PyErr {
    error(value.py(), Class::Option, format!("Checkpointer({name}=...): {why}."))
}

/// A duration: a text such as `"10min"`, or seconds.
///
/// # Errors
/// `OptionError`.
pub(super) fn time(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    if let Ok(text) = value.cast::<PyString>() {
        return duration(&text.to_string_lossy()).map_err(|why| wrong(value, name, &why));
    }
    let seconds = value.extract::<f64>().ok().filter(|_| !value.is_instance_of::<PyBool>());
    let seconds = seconds.filter(|seconds| *seconds > 0.0 && *seconds < 3.2e8);
    seconds.map(Duration::from_secs_f64).ok_or_else(|| {
        let shown = value.repr().map_or_else(|_| "this".to_owned(), |repr| repr.to_string());
        let why = format!("{shown} is not a duration: write \"10min\", \"1h30min\", or seconds");
        wrong(value, name, &why)
    })
}

/// Seconds of a duration written as text; a `ValueError` says what to write instead.
#[pyfunction]
pub fn duration_in_seconds(text: &str) -> PyResult<f64> {
    duration(text).map(|found| found.as_secs_f64()).map_err(PyValueError::new_err)
}

/// What `"auto"` takes: seconds between two failures of a job, share of its time for saves.
#[pyfunction]
pub fn automatic_rule(ranks: u32) -> (f64, f64) {
    let rule = Rule::of(Every::Auto, ranks);
    (rule.mtbf.as_secs_f64(), rule.share)
}

/// When a checkpoint is due, in a job of so many ranks.
///
/// # Errors
/// `OptionError`.
pub(super) fn rule(
    every: &Bound<'_, PyAny>,
    mtbf: Option<&Bound<'_, PyAny>>,
    share: f64,
    ranks: u32,
) -> PyResult<Rule> {
    let usual = Rule::of(self::every("every", every)?, ranks);
    if !(share > 0.0 && share < 1.0) {
        let why = "write the largest share of the run time that saves may take, such as 0.05";
        return Err(wrong(every, "Auto.share", why));
    }
    let mtbf = mtbf.map_or(Ok(usual.mtbf), |mtbf| time("Auto.mtbf", mtbf))?;
    Ok(Rule { mtbf, share, ..usual })
}

/// How often a checkpoint is stored in full; `None` for always.
///
/// # Errors
/// `OptionError`.
pub(super) fn increments(value: &Bound<'_, PyAny>) -> PyResult<Option<Fulls>> {
    if value.is_none() {
        return Ok(None);
    }
    if let Ok(truth) = value.cast::<PyBool>() {
        return Ok(truth.is_true().then_some(Fulls::Auto));
    }
    let every = value.extract::<u32>().ok().filter(|every| *every > 0);
    every.map(|every| Some(Fulls::OneIn(every))).ok_or_else(|| {
        let why = "write True, False, or a number: one checkpoint in so many is stored in full";
        wrong(value, "increments", why)
    })
}

/// When something is due, or what of it is copied.
///
/// # Errors
/// `OptionError`.
pub(super) fn every(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Every> {
    if value.is_none() {
        return Ok(Every::Never);
    }
    if let Ok(text) = value.cast::<PyString>() {
        return match text == "auto" {
            true => Ok(Every::Auto),
            false => time(name, value).map(Every::Time),
        };
    }
    let steps = value.extract::<u64>().ok().filter(|_| !value.is_instance_of::<PyBool>());
    steps.filter(|steps| *steps > 0).map(Every::Steps).ok_or_else(|| {
        let why =
            "write a duration such as \"10min\", a number of steps above 0, \"auto\", or None";
        wrong(value, name, why)
    })
}
