//! Why a frame is refused.

use std::fmt;

use unspool_core::Failure;

/// A frame that cannot be read, or arrays that cannot be laid out as one.
///
/// Its text says what is wrong, where, and what can be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameError {
    kind: FrameErrorKind,
    at: Option<u64>,
    what: String,
}

/// The kinds of refusal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FrameErrorKind {
    /// The bytes do not begin like a frame.
    Foreign,
    /// The bytes end too early.
    Truncated,
    /// A newer version of Unspool wrote it, with something that this one does not know.
    Newer,
    /// A checksum does not match: bytes have changed since they were written.
    Damaged,
    /// The checksum matches but the content breaks the rules of the format: a faulty writer.
    Malformed,
    /// The arrays exceed a limit of the format.
    Limit,
    /// The arrays contradict themselves: two have the same name, or a stored length is impossible.
    Invalid,
    /// The system has no memory for what is to be made of it now.
    NoMemory,
}

impl FrameError {
    pub(crate) fn new(kind: FrameErrorKind, what: impl Into<String>) -> FrameError {
        FrameError { kind, at: None, what: what.into() }
    }

    /// The same error, found at byte `at` of the head.
    pub(crate) fn at(self, at: usize) -> FrameError {
        FrameError { at: Some(at as u64), ..self }
    }

    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// What kind of refusal it is.
    #[must_use]
    pub fn kind(&self) -> FrameErrorKind {
        self.kind
    }

    /// The byte of the head at which the problem was found, where there is one.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        self.at
    }

    /// The failure to report to the core when a stored frame is refused. A frame of a newer version
    /// is intact and must be kept, so it does not count as corrupt.
    #[must_use]
    pub fn failure(&self) -> Failure {
        match self.kind {
            FrameErrorKind::Newer
            | FrameErrorKind::Limit
            | FrameErrorKind::Invalid
            | FrameErrorKind::NoMemory => Failure::Permanent,
            _ => Failure::Corrupt,
        }
    }

    fn remedy(&self) -> &'static str {
        match self.kind {
            FrameErrorKind::Foreign => "Check the path: this is not a frame of Unspool.",
            FrameErrorKind::Truncated => "Save it again; the rest of this frame is lost.",
            FrameErrorKind::Newer => "Read it with the version of Unspool that wrote it.",
            FrameErrorKind::NoMemory => "Free memory, and try again.",
            FrameErrorKind::Damaged => {
                "Save it again, and check the storage: its bytes have changed."
            }
            FrameErrorKind::Malformed => "Save it again with another writer; this one is faulty.",
            FrameErrorKind::Limit => {
                "Split or reshape the array, shorten its name, or use several versions."
            }
            FrameErrorKind::Invalid => {
                "Give every array of a checkpoint a name of its own, and the length of its stream."
            }
        }
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        if let Some(at) = self.at {
            write!(f, " (byte {at} of the head)")?;
        }
        write!(f, ". {}", self.remedy())
    }
}

impl std::error::Error for FrameError {}
