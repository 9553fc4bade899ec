//! What an error of the operating system means: to the core, and to a person.

use std::io;
use std::path::Path;

use rustix::io::Errno;
use unspool_core::Failure;

use crate::error::TierError;

/// An operation that stopped, and how many bytes it had moved.
#[derive(Debug)]
pub(super) struct Stop {
    pub(super) done: u64,
    pub(super) cause: io::Error,
}

impl From<io::Error> for Stop {
    fn from(cause: io::Error) -> Stop {
        Stop { done: 0, cause }
    }
}

/// The error of `operation` at `path`. A file that is not there means `absent`.
pub(super) fn error(
    operation: &'static str,
    path: &Path,
    cause: io::Error,
    absent: Failure,
) -> TierError {
    let (kind, reason, advice) = classify(&cause, absent);
    TierError::new(kind, operation, path.display().to_string(), reason)
        .with_advice(advice)
        .with_cause(cause)
}

/// As `error`, with the bytes asked for and done.
pub(super) fn stopped(
    operation: &'static str,
    path: &Path,
    asked: u64,
    stop: Stop,
    absent: Failure,
) -> TierError {
    error(operation, path, stop.cause, absent).with_progress(asked, stop.done)
}

/// Whether the medium has no room.
pub(super) fn is_full(cause: &io::Error) -> bool {
    matches!(Errno::from_io_error(cause), Some(Errno::NOSPC | Errno::DQUOT))
}

/// Whether the file is not there.
pub(super) fn is_absent(cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::NotFound
}

fn classify(cause: &io::Error, absent: Failure) -> (Failure, &'static str, &'static str) {
    use Failure::{Corrupt, Io, NoSpace, Permanent};
    match Errno::from_io_error(cause) {
        Some(Errno::NOSPC) => (
            NoSpace,
            "the file system is full",
            "Free space on it, or give the disk tier a `capacity` or another directory.",
        ),
        Some(Errno::DQUOT) => (
            NoSpace,
            "the quota on this file system is used up",
            "Free space under the quota, or choose a directory that it does not cover.",
        ),
        Some(Errno::FBIG) => (
            Permanent,
            "the file is larger than the system allows",
            "Raise the limit on file sizes (`ulimit -f`), or use a file system without that limit.",
        ),
        Some(Errno::IO | Errno::TIMEDOUT | Errno::REMOTEIO | Errno::STALE) => (
            Io,
            "the device reported an error",
            "Look at the kernel's log and the state of the device; other copies are not affected.",
        ),
        Some(Errno::BADMSG | Errno::UCLEAN) => {
            (Corrupt, "the file system found damaged data", "Check the file system.")
        }
        Some(Errno::ROFS) => (
            Permanent,
            "the file system is read-only",
            "Choose a directory that can be written, or open a durable one for reading; a kernel \
             may make a file system read-only after an error, which its log then shows.",
        ),
        Some(Errno::ACCESS | Errno::PERM) => (
            Permanent,
            "permission is denied",
            "Choose a directory that this user can write, change its permissions, or open a \
             durable one for reading.",
        ),
        Some(Errno::NOTDIR) => {
            (Permanent, "a part of the path is not a directory", "Choose a directory, not a file.")
        }
        Some(Errno::EXIST) => (
            Permanent,
            "a file of that name is in the way",
            "Remove it, or choose another directory.",
        ),
        Some(Errno::NAMETOOLONG) => {
            (Permanent, "the path is too long", "Choose a directory with a shorter path.")
        }
        Some(Errno::NOMEM) => (
            Io,
            "the system has no memory left for it",
            "Give back memory, or raise the limit of this process.",
        ),
        Some(Errno::NOENT) => (
            absent,
            "it is not there",
            "Something else removed it: only this process may change files in this directory.",
        ),
        Some(Errno::MFILE | Errno::NFILE) => (
            Io,
            "too many files are open",
            "Raise the limit on open files (`ulimit -n`), or close what is not used.",
        ),
        Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => (
            Permanent,
            "the file system or the system does not support this",
            "Choose `buffered` input and output, or another directory.",
        ),
        _ => unnamed(cause),
    }
}

/// Errors that have no number of the system, and numbers that need no remedy of their own.
fn unnamed(cause: &io::Error) -> (Failure, &'static str, &'static str) {
    match cause.kind() {
        io::ErrorKind::UnexpectedEof => (
            Failure::Corrupt,
            "the file ends too early",
            "Something else changed it: only this process may change files in this directory.",
        ),
        io::ErrorKind::InvalidData => (
            Failure::Corrupt,
            "something else has its name",
            "Remove it: only files are kept in this directory.",
        ),
        io::ErrorKind::AlreadyExists => (
            Failure::Permanent,
            "the name of a file of ours is taken",
            "Nothing was changed: move that file away, or choose another directory.",
        ),
        io::ErrorKind::Unsupported => (
            Failure::Permanent,
            "a newer Unspool wrote it",
            "Open it with the version of Unspool that wrote it.",
        ),
        io::ErrorKind::WriteZero => (
            Failure::Io,
            "the system wrote less than it was given",
            "Look at the kernel's log and the free space of the file system.",
        ),
        _ => (Failure::Io, "the system reported an error", "Look at the kernel's log."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(errno: Errno) -> TierError {
        let stop = Stop { done: 3, cause: errno.into() };
        stopped("put", Path::new("/scratch/x"), 10, stop, Failure::Missing)
    }

    #[test]
    fn every_errno_means_what_the_core_can_act_on() {
        for (errno, failure) in [
            (Errno::NOSPC, Failure::NoSpace),
            (Errno::DQUOT, Failure::NoSpace),
            (Errno::IO, Failure::Io),
            (Errno::MFILE, Failure::Io),
            (Errno::ROFS, Failure::Permanent),
            (Errno::ACCESS, Failure::Permanent),
            (Errno::NOTDIR, Failure::Permanent),
            (Errno::NAMETOOLONG, Failure::Permanent),
            (Errno::FBIG, Failure::Permanent),
            (Errno::NOENT, Failure::Missing),
            (Errno::BADMSG, Failure::Corrupt),
            (Errno::NXIO, Failure::Io),
            (Errno::NOMEM, Failure::Io),
        ] {
            assert_eq!(of(errno).kind(), failure, "{errno:?}");
            assert!(!of(errno).advice().is_empty(), "{errno:?}");
        }
    }

    #[test]
    fn the_text_has_path_numbers_cause_and_remedy() {
        let text = of(Errno::NOSPC).to_string();
        assert_eq!(
            text,
            "put failed at /scratch/x after 3 of 10 bytes: the file system is full (No space left \
             on device (os error 28)). Free space on it, or give the disk tier a `capacity` or \
             another directory."
        );
    }
}
