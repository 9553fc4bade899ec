//! The value class `unspool.Debug`: what a spool does for those who look for a fault.

use std::path::PathBuf;

use pyo3::prelude::*;
use unspool::PolicyKind;

use crate::errors::{Class, error};
use crate::options;

/// Options of `unspool.Debug`, read.
#[derive(Default)]
pub struct Debug {
    pub check_order: bool,
    pub order_trace: Option<PathBuf>,
    pub check_codec: bool,
    pub record: Option<PathBuf>,
    pub policy: PolicyKind,
    pub trace: bool,
}

impl Debug {
    /// Reads the argument `debug` of a spool.
    ///
    /// # Errors
    /// `OptionError` when it is not a `Debug`, or one of its values makes no sense.
    pub fn of(given: &Bound<'_, PyAny>) -> PyResult<Debug> {
        let py = given.py();
        let class = py.import("unspool._types")?.getattr("Debug")?;
        if !given.is_instance(&class)? {
            let message = "debug=... takes an unspool.Debug, such as Debug(check_order=True).";
            return Err(error(py, Class::Option, message));
        }
        let path = |name: &str| {
            let value = given.getattr(name)?;
            if value.is_none() { Ok(None) } else { options::path(name, &value).map(Some) }
        };
        Ok(Debug {
            check_order: truth(given, "check_order")?,
            order_trace: path("order_trace")?,
            check_codec: truth(given, "check_codec")?,
            record: path("record")?,
            policy: options::policy(py, &text(given, "policy")?)?,
            trace: truth(given, "trace")?,
        })
    }
}

fn truth(given: &Bound<'_, PyAny>, name: &str) -> PyResult<bool> {
    let value = given.getattr(name)?;
    value.extract().map_err(|_| {
        let message = format!("Debug({name}={value}): give True or False.");
        error(given.py(), Class::Option, message)
    })
}

fn text(given: &Bound<'_, PyAny>, name: &str) -> PyResult<String> {
    let value = given.getattr(name)?;
    value.extract().map_err(|_| {
        let message = format!("Debug({name}={value}): give a string.");
        error(given.py(), Class::Option, message)
    })
}
