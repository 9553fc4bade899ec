//! Errors as Python exceptions.
//!
//! The classes are defined in `python/unspool/errors.py`, where a class can be both an
//! `unspool.Error` and what Python programs already catch (`KeyError`, `TimeoutError`, ...).

use std::error::Error as StdError;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyType;
use unspool::ErrorKind;

/// The classes that this crate raises by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// An option does not exist, or its value makes no sense.
    Option,
    /// The arrays of a call are not those that it needs.
    Array,
    /// The checkpoint does not fit where it is needed.
    Capacity,
    /// The array lies on another device than the spool.
    Device,
    /// A list of actions breaks a rule, or a schedule cannot be made.
    Schedule,
    /// Something is wrong in Unspool itself.
    Internal,
    /// Bytes are not those that were made.
    Corrupt,
}

impl Class {
    fn name(self) -> &'static str {
        match self {
            Class::Option => "OptionError",
            Class::Array => "ArrayError",
            Class::Capacity => "CapacityError",
            Class::Device => "DeviceError",
            Class::Schedule => "ScheduleError",
            Class::Internal => "Error",
            Class::Corrupt => "CorruptCheckpointError",
        }
    }
}

/// An exception of `class` that says `message`.
pub fn error(py: Python<'_>, class: Class, message: impl Into<String>) -> PyErr {
    exception(py, class.name(), &message.into())
}

/// What the core says in words without a capital and a full stop, as a sentence.
pub(crate) fn sentence(py: Python<'_>, class: Class, why: &impl std::fmt::Display) -> PyErr {
    let mut text = format!("{why}.");
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    error(py, class, text)
}

/// An error of the spool as an exception, with the version that the call named.
pub fn from_spool(py: Python<'_>, error: &unspool::Error, version: Option<i64>) -> PyErr {
    let raised = exception(py, class_of(error.kind(), version), error.message());
    // An attribute that cannot be set is no reason to hide the error itself.
    let _ = decorate(py, &raised, error, version);
    raised
}

fn class_of(kind: ErrorKind, version: Option<i64>) -> &'static str {
    match kind {
        ErrorKind::Duplicate => "VersionExistsError",
        ErrorKind::Unknown | ErrorKind::Discarded | ErrorKind::NotYetSaved => "UnknownVersionError",
        ErrorKind::TooLarge | ErrorKind::Full => "CapacityError",
        ErrorKind::Io => "StorageError",
        ErrorKind::Corrupt | ErrorKind::BoundViolated => "CorruptCheckpointError",
        ErrorKind::Lost => "LostCheckpointError",
        ErrorKind::Timeout => "WaitTimeoutError",
        // Python's own exception takes its place before this.
        ErrorKind::Interrupted => "Error",
        ErrorKind::Closed | ErrorKind::Forked => "ClosedError",
        ErrorKind::Device | ErrorKind::WrongDevice | ErrorKind::NoDevice => "DeviceError",
        // What a call about a version got wrong are its arrays.
        ErrorKind::Invalid if version.is_some() => "ArrayError",
        ErrorKind::Invalid => "OptionError",
    }
}

fn exception(py: Python<'_>, class: &str, message: &str) -> PyErr {
    let built = py
        .import("unspool.errors")
        .and_then(|module| module.getattr(class))
        .and_then(|found| Ok(found.cast_into::<PyType>()?));
    match built {
        Ok(class) => PyErr::from_type(class, (message.to_owned(),)),
        Err(broken) => broken,
    }
}

fn decorate(
    py: Python<'_>,
    raised: &PyErr,
    error: &unspool::Error,
    version: Option<i64>,
) -> PyResult<()> {
    let value = raised.value(py);
    value.setattr("version", version)?;
    value.setattr("retryable", error.is_retryable())?;
    if !error.unsaved().is_empty() {
        let unsaved: Vec<i64> = error.unsaved().iter().map(|(version, _)| *version).collect();
        value.setattr("unsaved", unsaved)?;
    }
    if error.kind() == ErrorKind::Io
        && let Some(code) = os_error(error)
    {
        value.setattr("errno", code)?;
    }
    Ok(())
}

/// The number of the operating system's error at the root of `error`.
fn os_error(error: &unspool::Error) -> Option<i32> {
    let mut cause = error.source();
    while let Some(current) = cause {
        if let Some(io) = current.downcast_ref::<std::io::Error>() {
            return io.raw_os_error();
        }
        cause = current.source();
    }
    None
}

/// The exception of a wait that Ctrl-C ended when Python gave none of its own.
pub fn interrupted() -> PyErr {
    PyKeyboardInterrupt::new_err(())
}
