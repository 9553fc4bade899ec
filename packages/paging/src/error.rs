//! What can go wrong where an answer can be given: everywhere but in a page fault.

use std::fmt;

use unspool_codec::CodecError;

/// What kind of error it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum PagingErrorKind {
    /// An option does not fit the array or the machine.
    Invalid,
    /// The kernel does not let this process answer page faults.
    Refused,
    /// There is no memory for it.
    NoMemory,
    /// Bytes that were put aside cannot be had now.
    Io,
    /// Bytes that were put aside are not what they were.
    Corrupt,
    /// A wait took too long.
    Timeout,
    /// The process is a child of the one that made the array.
    Forked,
}

/// An error of paging. Its text says what, why, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PagingError {
    kind: PagingErrorKind,
    message: String,
}

impl PagingError {
    pub(crate) fn new(kind: PagingErrorKind, message: impl Into<String>) -> PagingError {
        PagingError { kind, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> PagingError {
        PagingError::new(PagingErrorKind::Invalid, message)
    }

    /// What kind of error it is.
    #[must_use]
    pub fn kind(&self) -> PagingErrorKind {
        self.kind
    }
}

impl From<CodecError> for PagingError {
    /// What cannot be decoded is not what was put aside.
    fn from(error: CodecError) -> PagingError {
        PagingError::new(PagingErrorKind::Corrupt, error.to_string())
    }
}

impl fmt::Display for PagingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for PagingError {}
