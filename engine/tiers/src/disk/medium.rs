//! The file operations that the disk tier is made of, one method each, so that a test can make any
//! of them fail and can write down their order. The default bodies are the real thing.

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::{preadv, pwritev};

/// Permissions of a file that nobody but its owner may use.
pub(super) const PRIVATE: u32 = 0o600;

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mode {
    /// Past the page cache.
    pub(super) direct: bool,
    /// For writing; else for reading.
    pub(super) write: bool,
    /// It must not exist yet, and gets these permissions; `None`: it must exist.
    pub(super) create: Option<u32>,
}

impl Mode {
    /// An existing file, for reading through the page cache.
    pub(super) const READ: Mode = Mode { direct: false, write: false, create: None };
    /// An existing file, for writing through the page cache.
    pub(super) const WRITE: Mode = Mode { direct: false, write: true, create: None };

    /// A new file, for writing through the page cache.
    pub(super) fn create(permissions: u32) -> Mode {
        Mode { create: Some(permissions), ..Mode::WRITE }
    }
}

pub(super) trait Medium: fmt::Debug + Send + Sync {
    /// Opens a regular file. Another kind of file of that name is an error: a link is not followed,
    /// and a pipe is not waited for.
    fn open(&self, path: &Path, mode: Mode) -> io::Result<File> {
        let direct = if mode.direct { OFlags::DIRECT } else { OFlags::empty() };
        let flags = direct | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut options = OpenOptions::new();
        options.read(true).write(mode.write).custom_flags(flags.bits().cast_signed());
        if let Some(permissions) = mode.create {
            options.create_new(true).mode(permissions);
        }
        let file = regular(path, options.open(path))?;
        match mode.create {
            // What the process masks (`umask`) was asked for by name here.
            Some(permissions) if permissions != PRIVATE => {
                file.set_permissions(Permissions::from_mode(permissions))?;
            }
            _ => {}
        }
        Ok(file)
    }

    /// Writes at most all of `bytes` at `at`; says how many.
    fn write(&self, file: &File, at: u64, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(pwritev(file, bytes, at)?)
    }

    /// Fills at most all of `bytes` from `at` on; says how many.
    fn read(&self, file: &File, at: u64, bytes: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Ok(preadv(file, bytes, at)?)
    }

    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    /// The content of the file survives a crash.
    fn sync_file(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    /// The names in the directory survive a crash.
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

/// Writes all of `bytes` at `at`. A short write is continued.
pub(super) fn write_all(medium: &dyn Medium, file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match medium.write(file, at + done as u64, &[IoSlice::new(&bytes[done..])]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(moved) => done += moved,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

/// Fills `bytes` from `at` on as far as the file goes; says how far. A short read is continued.
pub(super) fn read_all(
    medium: &dyn Medium,
    file: &File,
    at: u64,
    bytes: &mut [u8],
) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match medium.read(file, at + done as u64, &mut [IoSliceMut::new(&mut bytes[done..])]) {
            Ok(0) => break,
            Ok(moved) => done += moved,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(done)
}

/// What was opened without following a link or waiting for a pipe, when it is a regular file.
pub(super) fn regular(path: &Path, opened: io::Result<File>) -> io::Result<File> {
    let irregular = || io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file");
    match opened {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Ok(_) => Err(irregular()),
        // What a link, a pipe or a directory is refused with depends on how it was opened.
        Err(_) if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) => {
            Err(irregular())
        }
        Err(cause) => Err(cause),
    }
}

/// The operating system.
#[derive(Debug)]
pub(super) struct System;

impl Medium for System {}
