//! The options of `Checkpointer(...)`, with errors that say what to write.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};
use unspool_restart::{Every, Rule, duration};

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
    let usual = Rule::of(self::every(every)?, ranks);
    if !(share > 0.0 && share < 1.0) {
        let why = "write the largest share of the run time that saves may take, such as 0.05";
        return Err(wrong(every, "share", why));
    }
    let mtbf = mtbf.map_or(Ok(usual.mtbf), |mtbf| time("mtbf", mtbf))?;
    Ok(Rule { mtbf, share, ..usual })
}

fn every(value: &Bound<'_, PyAny>) -> PyResult<Every> {
    if value.is_none() {
        return Ok(Every::Never);
    }
    if let Ok(text) = value.cast::<PyString>() {
        return match text == "auto" {
            true => Ok(Every::Auto),
            false => time("every", value).map(Every::Time),
        };
    }
    let steps = value.extract::<u64>().ok().filter(|_| !value.is_instance_of::<PyBool>());
    steps.filter(|steps| *steps > 0).map(Every::Steps).ok_or_else(|| {
        let why =
            "write a duration such as \"10min\", a number of steps above 0, \"auto\", or None";
        wrong(value, "every", why)
    })
}
