//! What a call reports when it cannot do its work: a kind for programs, sentences for people.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use unspool_cuda::{DeviceError, DeviceErrorKind};
use unspool_tiers::TierError;

/// Why a call failed, coarse enough to decide by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ErrorKind {
    /// The version is already saved.
    Duplicate,
    /// The version was never saved.
    Unknown,
    /// The version was saved and then discarded.
    Discarded,
    /// The version is being saved by a call that has not finished.
    NotYetSaved,
    /// The checkpoint is larger than every tier.
    TooLarge,
    /// No room can be made in any tier.
    Full,
    /// A medium failed.
    Io,
    /// The bytes that came back are not those that were saved.
    Corrupt,
    /// The last copy of the checkpoint is lost.
    Lost,
    /// The call waited for as long as it was allowed to.
    Timeout,
    /// The caller's own check asked to stop waiting.
    Interrupted,
    /// The history was opened for reading, and the call would change it.
    ReadOnly,
    /// The spool is closed.
    Closed,
    /// The spool belongs to the process that forked this one.
    Forked,
    /// An argument or a setting makes no sense.
    Invalid,
    /// CUDA refused, or work on the GPU failed.
    Device,
    /// An array, stream or event belongs to another GPU than the spool.
    WrongDevice,
    /// There is no CUDA driver, or no such GPU.
    NoDevice,
    /// What a codec made is further from the values than its bound allows.
    BoundViolated,
}

/// What a call reports when it cannot do its work. `Display` gives full sentences: what failed,
/// why, and what to do about it.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    unsaved: Vec<(i64, ErrorKind)>,
    /// Another try is no use, whatever the kind.
    is_final: bool,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of this kind that says `message`, for what is built on a spool.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let (unsaved, is_final) = (Vec::new(), false);
        Error { kind, message: message.into(), unsaved, is_final, source: None }
    }

    /// The same, with what it comes from.
    #[must_use]
    pub fn caused_by(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// The same in other words.
    pub(crate) fn saying(mut self, message: String) -> Self {
        self.message = message;
        self
    }

    /// The same, after which another try is no use.
    pub(crate) fn finally(mut self) -> Self {
        self.is_final = true;
        self
    }

    /// The same for another checkpoint of a call.
    pub(crate) fn again(&self) -> Self {
        Error::new(self.kind, self.message.clone())
    }

    /// The same, for a call that was about these checkpoints.
    pub(crate) fn about(mut self, unsaved: Vec<(i64, ErrorKind)>) -> Self {
        self.unsaved = unsaved;
        self
    }

    /// The same, with what went wrong besides.
    #[must_use]
    pub fn besides(mut self, other: &Error) -> Self {
        let message = format!("{} {}", self.message, other.message);
        self.unsaved.extend_from_slice(&other.unsaved);
        self.saying(message)
    }

    /// Why the call failed, for programs.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Why the call failed and what to do, in full sentences.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The checkpoints that a call for several did not save, or that a close did not make durable,
    /// each with its reason; empty for every other call.
    #[must_use]
    pub fn unsaved(&self) -> &[(i64, ErrorKind)] {
        &self.unsaved
    }

    /// The file or directory, or the memory in words, at which a medium failed.
    #[must_use]
    pub fn location(&self) -> Option<&str> {
        let mut causes = std::iter::successors(StdError::source(self), |cause| (*cause).source());
        causes.find_map(|cause| cause.downcast_ref::<TierError>().map(TierError::location))
    }

    /// The number of the operating system's error at the root of it (`errno`).
    #[must_use]
    pub fn os_error(&self) -> Option<i32> {
        let mut causes = std::iter::successors(StdError::source(self), |cause| (*cause).source());
        causes.find_map(|cause| cause.downcast_ref::<io::Error>())?.raw_os_error()
    }

    /// Whether the same call may succeed later without any change of the settings: after a
    /// discard, a restore, or when the medium works again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable() && !self.is_final && !self.os_error().is_some_and(stays)
    }
}

/// Whether the operating system would say the same again: a path or a permission is wrong.
fn stays(code: i32) -> bool {
    // EPERM, ENOENT, EACCES, EEXIST, ENOTDIR, EISDIR, EINVAL, EROFS, ENAMETOOLONG, ELOOP on Linux.
    [1, 2, 13, 17, 20, 21, 22, 30, 36, 40].contains(&code)
}

impl ErrorKind {
    pub(crate) fn is_retryable(self) -> bool {
        use ErrorKind::{Full, Interrupted, Io, NotYetSaved, Timeout};
        matches!(self, NotYetSaved | Full | Io | Timeout | Interrupted)
    }
}

impl From<DeviceError> for Error {
    fn from(cause: DeviceError) -> Error {
        let kind = match cause.kind() {
            DeviceErrorKind::WrongDevice => ErrorKind::WrongDevice,
            DeviceErrorKind::Missing => ErrorKind::NoDevice,
            DeviceErrorKind::TimedOut => ErrorKind::Timeout,
            _ => ErrorKind::Device,
        };
        let text = cause.to_string();
        let mut letters = text.chars();
        let first = letters.next().map(char::to_uppercase).into_iter().flatten();
        Error::new(kind, first.chain(letters).collect::<String>()).caused_by(cause)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as &(dyn StdError + 'static))
    }
}
