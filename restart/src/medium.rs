//! The operations on files that manifests need, so that tests can write them down and let them
//! fail.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// What a folder of manifests needs of a file system.
pub(crate) trait Medium: Debug + Send + Sync {
    /// Makes a new file for its owner alone, with these bytes, and syncs it.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Gives a file another name, in place of what had that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;

    /// Makes a folder for its owner alone, unless it is there.
    fn make_folder(&self, path: &Path) -> io::Result<()>;
}

/// The file system.
#[derive(Debug)]
pub(crate) struct Files;

impl Medium for Files {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            // A link is followed nowhere: what is in it would be somebody else's.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                match fs::symlink_metadata(path)?.is_dir() {
                    true => Ok(()),
                    false => Err(io::Error::from(io::ErrorKind::NotADirectory)),
                }
            }
            made => made,
        }
    }
}
