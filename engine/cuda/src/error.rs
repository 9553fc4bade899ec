//! Errors of the device: exact for one driver call, and for callers of this crate a sentence with a
//! remedy.

use std::error::Error;
use std::fmt;
use std::io;

/// A driver call that failed, or that could not be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CudaError {
    /// Name of the call, such as `cuMemCreate`, or `load` when the driver itself is missing.
    pub call: &'static str,
    /// The driver's error code; 0 when no call was made.
    pub code: u32,
    /// The driver's name for the code, such as `CUDA_ERROR_OUT_OF_MEMORY`.
    pub name: String,
    /// What the code means; for errors of loading also what to do.
    pub text: String,
}

/// `CUDA_ERROR_INVALID_VALUE`.
pub(crate) const INVALID_VALUE: u32 = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: u32 = 2;
/// `CUDA_ERROR_INVALID_CONTEXT`: none is current.
pub(crate) const INVALID_CONTEXT: u32 = 201;
/// `CUDA_ERROR_NOT_READY`: an event or a stream has unfinished work.
pub(crate) const NOT_READY: u32 = 600;
/// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`: use of the legacy default stream during a capture.
pub(crate) const STREAM_CAPTURE_IMPLICIT: u32 = 906;

impl CudaError {
    /// An error that no driver call reported.
    pub(crate) fn before_any_call(name: &str, text: impl Into<String>) -> CudaError {
        CudaError { call: "load", code: 0, name: name.to_owned(), text: text.into() }
    }

    /// Whether no context survives what the driver reports: uncorrectable memory errors of the
    /// device, and work that ended in a fault. Every later call in that context fails.
    fn ends_context(&self) -> bool {
        matches!(self.code, 214 | 220 | 700 | 702 | 709 | 710 | 714..=719)
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.code == 0 {
            return write!(f, "{}: {}", self.name, self.text);
        }
        write!(f, "{} failed with {} ({}): {}", self.call, self.name, self.code, self.text)
    }
}

impl Error for CudaError {}

/// The kind of an error, for code that has to choose what to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceErrorKind {
    /// The driver, a device or the compiler is missing.
    Missing,
    /// Not enough device memory.
    OutOfMemory,
    /// Host memory could not be pinned.
    PinLimit,
    /// A range outside of the memory, or not mapped yet.
    OutOfRange,
    /// Memory, stream or event of another device.
    WrongDevice,
    /// The arena is closed.
    Closed,
    /// The limit of a wait has passed.
    TimedOut,
    /// The driver refused for another reason.
    Driver,
    /// A kernel that does not compile, or takes other parameters.
    Kernel,
    /// Encoded bytes that cannot be decoded.
    Damaged,
    /// The operating system refused.
    System,
}

/// An error of the safe layer: a full sentence, a remedy, and the driver call that failed.
#[derive(Clone, Debug)]
pub struct DeviceError(Box<Details>);

#[derive(Clone, Debug)]
struct Details {
    kind: DeviceErrorKind,
    message: String,
    advice: String,
    cause: Option<CudaError>,
    leaves_work: bool,
}

impl DeviceError {
    /// An error of `kind`; `message` says what and why.
    pub fn new(kind: DeviceErrorKind, message: impl Into<String>) -> DeviceError {
        let (message, advice) = (message.into(), String::new());
        DeviceError(Box::new(Details { kind, message, advice, cause: None, leaves_work: false }))
    }

    /// Adds what a person can do about it.
    pub fn with_advice(mut self, advice: impl Into<String>) -> DeviceError {
        self.0.advice = advice.into();
        self
    }

    /// Adds the driver call that failed.
    pub(crate) fn with_cause(mut self, cause: CudaError) -> DeviceError {
        self.0.cause = Some(cause);
        self
    }

    /// The same, after work was enqueued that may still be under way.
    #[must_use]
    pub fn with_work_left(mut self) -> DeviceError {
        self.0.leaves_work = true;
        self
    }

    /// Whether work may be under way that was enqueued before the call that failed.
    #[must_use]
    pub fn leaves_work(&self) -> bool {
        self.0.leaves_work
    }

    /// Whether its driver call says that the context is lost, with all memory of the device in it.
    #[must_use]
    pub fn ends_context(&self) -> bool {
        self.cause().is_some_and(CudaError::ends_context)
    }

    /// An error of the operating system during `what`.
    pub(crate) fn system(what: &str, error: &io::Error) -> DeviceError {
        DeviceError::new(DeviceErrorKind::System, format!("{what}: {error}"))
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> DeviceErrorKind {
        self.0.kind
    }

    /// The driver call that failed, if one did.
    #[must_use]
    pub fn cause(&self) -> Option<&CudaError> {
        self.0.cause.as_ref()
    }
}

impl From<CudaError> for DeviceError {
    fn from(cause: CudaError) -> DeviceError {
        let kind = match cause.code {
            0 => DeviceErrorKind::Missing,
            OUT_OF_MEMORY => DeviceErrorKind::OutOfMemory,
            _ => DeviceErrorKind::Driver,
        };
        DeviceError::new(kind, "the CUDA driver refused").with_cause(cause)
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if let Some(cause) = &self.0.cause {
            write!(f, ": {cause}")?;
        }
        f.write_str(".")?;
        if !self.0.advice.is_empty() {
            write!(f, " {}", self.0.advice)?;
        }
        Ok(())
    }
}

impl Error for DeviceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.cause.as_ref().map(|cause| cause as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_as_what_why_and_what_to_do() {
        let cause = CudaError {
            call: "cuMemCreate",
            code: OUT_OF_MEMORY,
            name: "CUDA_ERROR_OUT_OF_MEMORY".into(),
            text: "out of memory".into(),
        };
        let error = DeviceError::new(DeviceErrorKind::OutOfMemory, "asked 3 GiB, free 1 GiB")
            .with_cause(cause)
            .with_advice("Set `device_memory` to less.");
        assert_eq!(
            error.to_string(),
            "asked 3 GiB, free 1 GiB: cuMemCreate failed with CUDA_ERROR_OUT_OF_MEMORY (2): \
             out of memory. Set `device_memory` to less."
        );
    }
}
