//! What calls report: a code for programs, and a sentence for people that is kept for each thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::fmt;

use unspool::{Error, ErrorKind};

use crate::panics::caught;

/// The codes that every function returns.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnspoolStatus {
    /// All went well.
    Ok = 0,
    /// An argument or an option makes no sense.
    Invalid = 1,
    /// The version is already saved.
    Duplicate = 2,
    /// The version was never saved.
    Unknown = 3,
    /// The version was saved and then discarded.
    Discarded = 4,
    /// The version is being saved by a call that has not ended.
    NotYetSaved = 5,
    /// The checkpoint is larger than every tier.
    TooLarge = 6,
    /// No room can be made in any tier.
    Full = 7,
    /// A medium failed.
    Io = 8,
    /// The bytes that came back are not those that were saved.
    Corrupt = 9,
    /// The last copy of the checkpoint is lost.
    Lost = 10,
    /// The call waited for as long as it was allowed to.
    Timeout = 11,
    /// The wait was ended from outside.
    Interrupted = 12,
    /// The history was opened for reading, and the call would change it.
    ReadOnly = 13,
    /// The spool is closed.
    Closed = 14,
    /// The spool belongs to the process that forked this one.
    Forked = 15,
    /// CUDA refused, or work on the GPU failed.
    Device = 16,
    /// An array or a stream belongs to another GPU than the spool.
    WrongDevice = 17,
    /// There is no CUDA driver, or no such GPU.
    NoDevice = 18,
    /// What a codec made is further from the values than its bound allows.
    BoundViolated = 19,
    /// A mistake in Unspool itself.
    Internal = 20,
}

/// Why a call failed.
pub(crate) struct Failure {
    status: UnspoolStatus,
    message: String,
}

impl Failure {
    /// The sentence.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Whether it is an error of one of these kinds.
    pub(crate) fn is_one_of(&self, kinds: &[ErrorKind]) -> bool {
        kinds.iter().any(|kind| status_of(*kind) == self.status)
    }

    /// An argument that makes no sense.
    pub(crate) fn invalid(message: impl Into<String>) -> Failure {
        Failure { status: UnspoolStatus::Invalid, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { status: status_of(error.kind()), message: error.to_string() }
    }
}

fn status_of(kind: ErrorKind) -> UnspoolStatus {
    match kind {
        ErrorKind::Duplicate => UnspoolStatus::Duplicate,
        ErrorKind::Unknown => UnspoolStatus::Unknown,
        ErrorKind::Discarded => UnspoolStatus::Discarded,
        ErrorKind::NotYetSaved => UnspoolStatus::NotYetSaved,
        ErrorKind::TooLarge => UnspoolStatus::TooLarge,
        ErrorKind::Full => UnspoolStatus::Full,
        ErrorKind::Io => UnspoolStatus::Io,
        ErrorKind::Corrupt => UnspoolStatus::Corrupt,
        ErrorKind::Lost => UnspoolStatus::Lost,
        ErrorKind::Timeout => UnspoolStatus::Timeout,
        ErrorKind::Interrupted => UnspoolStatus::Interrupted,
        ErrorKind::ReadOnly => UnspoolStatus::ReadOnly,
        ErrorKind::Closed => UnspoolStatus::Closed,
        ErrorKind::Forked => UnspoolStatus::Forked,
        ErrorKind::Invalid => UnspoolStatus::Invalid,
        ErrorKind::Device => UnspoolStatus::Device,
        ErrorKind::WrongDevice => UnspoolStatus::WrongDevice,
        ErrorKind::NoDevice => UnspoolStatus::NoDevice,
        ErrorKind::BoundViolated => UnspoolStatus::BoundViolated,
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of a function; its failure, or a panic in it, becomes a code, and its sentence is
/// kept for this thread.
pub(crate) fn call(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let failure = match caught(body) {
        Ok(Ok(())) => return UnspoolStatus::Ok as c_int,
        Ok(Err(failure)) => failure,
        Err(message) => Failure { status: UnspoolStatus::Internal, message },
    };
    let text = CString::new(failure.message.replace('\0', " ")).unwrap_or_default();
    // A thread that is ending has nobody to tell.
    let _ = LAST.try_with(|last| last.replace(text));
    failure.status as c_int
}

/// The sentence about the last call of this thread that failed; empty when none has. It is valid
/// until the next call of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn unspool_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The version of the interface, to be compared with `UNSPOOL_ABI`: a program that was compiled for
/// another one must not go on.
#[unsafe(no_mangle)]
pub extern "C" fn unspool_abi() -> c_int {
    UNSPOOL_ABI
}

/// The version of the interface that this header is for. It is raised when programs have to be
/// compiled again.
pub const UNSPOOL_ABI: c_int = 2;

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn unspool_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
