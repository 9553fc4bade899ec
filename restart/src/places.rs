//! Paths and addresses that programs give: what they mean now, and whether two are the same.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{self, Path, PathBuf};

use unspool::{Error, ErrorKind};
use unspool_remote::{Failure, TierError};

/// The path that is meant now, whatever the working directory becomes. Links are left as they are.
///
/// # Errors
/// `Io` when it is empty, or relative and the working directory is gone.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Error> {
    path::absolute(path).map_err(|cause| {
        let message = format!(
            "{path:?} leads nowhere: {cause}. Write a path, and an absolute one where the working \
             directory is gone."
        );
        Error::new(ErrorKind::Io, message).caused_by(cause)
    })
}

/// A remote place that stays what it is: an address, or the directory that is meant now.
///
/// # Errors
/// `Io` as for [`absolute`]; `Invalid` when the path of the directory is not Unicode.
pub(crate) fn settled(place: &str) -> Result<String, Error> {
    if place.contains("://") {
        return Ok(place.to_owned());
    }
    absolute(Path::new(place))?.into_os_string().into_string().map_err(|path| {
        let message = format!("{path:?} cannot be a remote place: its names are not Unicode.");
        Error::new(ErrorKind::Invalid, message)
    })
}

/// Refuses the folder of a run as its own remote place, by whatever name.
///
/// # Errors
/// `Invalid`.
pub(crate) fn check_apart(run: &Path, place: &str) -> Result<(), Error> {
    if place.contains("://") || !is_same(run, Path::new(place)) {
        return Ok(());
    }
    let message = format!("{place} is the folder of the run itself: choose another remote place.");
    Err(Error::new(ErrorKind::Invalid, message))
}

/// Whether two paths lead to the same folder, also by links and mounts, and before it is made.
fn is_same(one: &Path, other: &Path) -> bool {
    let found = |path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    match (found(one), found(other)) {
        (None, None) => real(one, MOST_LINKS).is_some_and(|real_one| {
            real(other, MOST_LINKS).is_some_and(|real_other| real_one == real_other)
        }),
        (one, other) => one == other,
    }
}

/// The most links that lead to a folder, as on Linux.
const MOST_LINKS: u32 = 40;

/// Where a path leads that has nothing at its end.
fn real(path: &Path, links: u32) -> Option<PathBuf> {
    let (holder, name) = (path.parent()?, path.file_name()?);
    match fs::read_link(path) {
        Ok(target) => real(&holder.join(target), links.checked_sub(1)?),
        Err(_) => Some(fs::canonicalize(holder).ok()?.join(name)),
    }
}

/// An error of a remote place.
pub(crate) fn failed(cause: TierError) -> Error {
    let kind = match cause.kind() {
        Failure::NoSpace => ErrorKind::Full,
        Failure::Corrupt => ErrorKind::Corrupt,
        Failure::Missing => ErrorKind::Lost,
        Failure::Io | Failure::Permanent => ErrorKind::Io,
    };
    Error::new(kind, cause.to_string()).caused_by(cause)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use unspool_testkit::Scratch;

    use super::*;

    #[test]
    fn a_folder_is_the_same_by_every_name_also_before_it_is_made() {
        let scratch = Scratch::new();
        let at = |name: &str| scratch.path().join(name);
        fs::create_dir(at("beside")).unwrap();
        symlink("run", at("link")).unwrap();
        symlink(at("link"), at("again")).unwrap();
        symlink("round", at("round")).unwrap();
        for is_there in [false, true] {
            for name in ["run", "link", "again", "beside/../run", "./run"] {
                assert!(is_same(&at("run"), &at(name)), "{name}");
            }
            for name in ["other", "run/below", "round", "nowhere/run"] {
                assert!(!is_same(&at("run"), &at(name)), "{name}");
            }
            if !is_there {
                fs::create_dir(at("run")).unwrap();
            }
        }
    }

    #[test]
    fn an_address_is_no_path() {
        assert_eq!(settled("s3://bucket/run").unwrap(), "s3://bucket/run");
        assert!(Path::new(&settled("run").unwrap()).is_absolute());
        assert!(absolute(Path::new("")).is_err());
        check_apart(Path::new("s3://bucket/run"), "s3://bucket/run").unwrap();
    }
}
