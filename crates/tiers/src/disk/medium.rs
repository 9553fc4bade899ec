//! The file operations that the disk tier is made of, one method each, so that a test can make any
//! of them fail and can write down their order. The default bodies are the real thing.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::{preadv, pwritev};

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mode {
    /// Past the page cache.
    pub(super) direct: bool,
    /// For writing; else for reading.
    pub(super) write: bool,
    /// It must not exist yet; else it must exist.
    pub(super) create: bool,
}

pub(super) trait Medium: fmt::Debug + Send + Sync {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<File> {
        let direct = if mode.direct { OFlags::DIRECT } else { OFlags::empty() };
        let flags = direct | OFlags::NOFOLLOW;
        OpenOptions::new()
            .read(true)
            .write(mode.write)
            .create_new(mode.create)
            .mode(0o600)
            .custom_flags(flags.bits().cast_signed())
            .open(path)
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

/// The operating system.
#[derive(Debug)]
pub(super) struct System;

impl Medium for System {}
