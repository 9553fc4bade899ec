//! What an error of a place means: to who asked, and to a person.

use std::io;

use unspool_core::Failure;
use unspool_tiers::TierError;

/// Bytes that are not those that were put.
pub(crate) fn damaged(operation: &'static str, place: String, why: &str) -> TierError {
    TierError::new(Failure::Corrupt, operation, place, why)
        .with_advice("It is not used; another copy is needed.")
}

/// The error of a call that was stopped.
pub(crate) fn stopped(operation: &'static str, place: String) -> TierError {
    TierError::new(Failure::Io, operation, place, "it was given up")
        .with_advice("What was sent of it can be gone on with.")
}

/// The error of a file system.
pub(crate) fn of_system(operation: &'static str, place: String, cause: io::Error) -> TierError {
    // ENOSPC and EDQUOT; EPERM, EACCES, EROFS, ENOTDIR and ENAMETOOLONG on Linux.
    let (failure, reason, advice) = match cause.raw_os_error() {
        Some(28 | 122) => {
            (Failure::NoSpace, "there is no room", "Free space there, or raise the quota.")
        }
        Some(1 | 13 | 30) => {
            (Failure::Permanent, "access is refused", "Ask for the right to write there.")
        }
        Some(20 | 36) => (Failure::Permanent, "it cannot have this name", "Choose another path."),
        _ => match cause.kind() {
            io::ErrorKind::NotFound => (
                Failure::Missing,
                "it is not there",
                "Something else has removed it, or the directory that is to hold it is not there.",
            ),
            _ => (Failure::Io, "the file system reported an error", "Look at its state."),
        },
    };
    TierError::new(failure, operation, place, reason).with_advice(advice).with_cause(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_file_system_mean_what_the_caller_can_act_on() {
        let system = |code| of_system("put", String::new(), io::Error::from_raw_os_error(code));
        for (code, kind) in [
            (28, Failure::NoSpace),
            (13, Failure::Permanent),
            (2, Failure::Missing),
            (5, Failure::Io),
            (36, Failure::Permanent),
        ] {
            assert_eq!(system(code).kind(), kind, "{code}");
        }
    }
}
