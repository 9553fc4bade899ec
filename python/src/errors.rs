//! Errors as Python exceptions.
//!
//! The classes are defined in `package/unspool/errors.py`, where a class can be both an
//! `unspool.Error` and what Python programs already catch (`KeyError`, `TimeoutError`, ...).

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
    /// A medium fails.
    Storage,
    /// A wait was too long.
    Timeout,
    /// The object is not there any more, or not in this process.
    Closed,
    /// The machine does not let this process do it.
    Refused,
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
            Class::Storage => "StorageError",
            Class::Timeout => "WaitTimeoutError",
            Class::Closed => "ClosedError",
            Class::Refused => "RefusedError",
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
    // The error matters more than an attribute that cannot be set.
    let _ = decorate(py, &raised, error, version);
    raised
}

/// The exception of a call about `version`, made where that was not known.
pub fn about(py: Python<'_>, raised: PyErr, version: Option<i64>) -> PyErr {
    let value = raised.value(py);
    let ours = exception_class(py, "Error").and_then(|base| value.is_instance(&base));
    if matches!(ours, Ok(true)) && value.getattr("version").is_ok_and(|known| known.is_none()) {
        // The error matters more than an attribute that cannot be set.
        let _ = value.setattr("version", version);
    }
    raised
}

/// The same exception with another text, for a call that would fail again.
pub fn saying(py: Python<'_>, raised: PyErr, message: &str) -> PyErr {
    let value = raised.value(py);
    let _ = value.setattr("args", (message,));
    let _ = value.setattr("retryable", false);
    raised
}

fn class_of(kind: ErrorKind, version: Option<i64>) -> &'static str {
    match kind {
        ErrorKind::Duplicate => "VersionExistsError",
        ErrorKind::Unknown | ErrorKind::Discarded | ErrorKind::NotYetSaved => "UnknownVersionError",
        ErrorKind::TooLarge | ErrorKind::Full => "CapacityError",
        ErrorKind::Io | ErrorKind::ReadOnly => "StorageError",
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
    match exception_class(py, class) {
        Ok(class) => PyErr::from_type(class, (message.to_owned(),)),
        Err(broken) => broken,
    }
}

fn exception_class<'py>(py: Python<'py>, class: &str) -> PyResult<Bound<'py, PyType>> {
    Ok(py.import("unspool.errors")?.getattr(class)?.cast_into::<PyType>()?)
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
    if let Some(code) = error.os_error() {
        value.setattr("errno", code)?;
    }
    if let Some(location) = error.location().filter(|location| location.starts_with('/')) {
        value.setattr("filename", location)?;
    }
    Ok(())
}

/// The exception of a wait that Ctrl-C ended when Python gave none of its own.
pub fn interrupted() -> PyErr {
    PyKeyboardInterrupt::new_err(())
}
