//! Objects as files in a directory that other machines see as well.
//!
//! A file is written under another name, synced, renamed, and then its directory is synced: it is
//! there as a whole or not at all. Folders are opened one in the other and never through a link, so
//! that nobody can lead what is done in them elsewhere.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use unspool_core::Failure;
use unspool_tiers::TierError;

use crate::fault;
use crate::place::Place;
use crate::source::Whole;

/// The bytes that are read and written at once.
const PIECE: usize = 8 << 20;

/// The end of the name of a file that is being written; no object has a name that begins with a
/// dot.
const UNFINISHED: &str = ".part";

/// After so long, nobody is writing a file of such a name any more.
const ABANDONED: Duration = Duration::from_secs(2 * 86_400);

/// A directory.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    stopped: AtomicBool,
}

/// What stops work on a file: the file system, or who it is for.
enum Stop {
    System(io::Error),
    Caller(TierError),
}

impl From<io::Error> for Stop {
    fn from(cause: io::Error) -> Stop {
        Stop::System(cause)
    }
}

impl From<Errno> for Stop {
    fn from(cause: Errno) -> Stop {
        Stop::System(cause.into())
    }
}

impl From<TierError> for Stop {
    fn from(error: TierError) -> Stop {
        Stop::Caller(error)
    }
}

impl Directory {
    pub(crate) fn open(path: &Path) -> Result<Directory, TierError> {
        let directory = Directory { path: path.to_owned(), stopped: AtomicBool::new(false) };
        let made = if path.is_dir() { Ok(()) } else { make(path) };
        made.map_err(|cause| fault::of_system("open", path.display().to_string(), cause))?;
        Ok(directory)
    }

    fn check(&self, operation: &'static str, name: &str) -> Result<(), TierError> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(fault::stopped(operation, self.locate(name)));
        }
        Ok(())
    }

    /// Opens a folder, and makes it and those that hold it where `makes` says so.
    fn folder(&self, operation: &'static str, folder: &str, makes: bool) -> Result<OwnedFd, Stop> {
        self.check(operation, folder)?;
        if makes && !self.path.is_dir() {
            make(&self.path)?;
        }
        let mut opened = rustix::fs::open(&self.path, FOLDER, Mode::empty())?;
        let ends = folder.match_indices('/').map(|(end, _)| end).chain([folder.len()]);
        for whole in ends.map(|end| &folder[..end]).filter(|whole| !whole.is_empty()) {
            let word = last(whole);
            opened = match enter(&opened, word) {
                Err(Errno::NOENT) if makes => made(&opened, word)?,
                Err(_) if is_link(&opened, word) => return Err(self.linked(operation, whole)),
                entered => entered?,
            };
        }
        Ok(opened)
    }

    /// Opens the folder that holds an object.
    fn holder(&self, operation: &'static str, name: &str, makes: bool) -> Result<OwnedFd, Stop> {
        self.folder(operation, name.rsplit_once('/').map_or("", |(folder, _)| folder), makes)
    }

    /// The error of a folder that is a link, which may lead anywhere.
    fn linked(&self, operation: &'static str, folder: &str) -> Stop {
        let reason = "it is a link, and links are not followed";
        let error = TierError::new(Failure::Permanent, operation, self.locate(folder), reason);
        error.with_advice("Put a directory in its place.").into()
    }

    fn write(&self, name: &str, whole: &mut Whole<'_>, mut file: File) -> Result<(), Stop> {
        loop {
            self.check("put", name)?;
            let piece = whole.next(PIECE)?;
            if piece.is_empty() {
                break;
            }
            file.write_all(&piece)?;
        }
        Ok(file.sync_all()?)
    }

    fn put_file(&self, name: &str, whole: &mut Whole<'_>) -> Result<(), Stop> {
        let folder = self.holder("put", name, true)?;
        sweep(&folder)?;
        let (part, last) = (unfinished(name), last(name));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&folder, &*part, flags, Mode::from_raw_mode(0o600))?;
        let written = self
            .write(name, whole, file.into())
            .and_then(|()| Ok(rustix::fs::renameat(&folder, &*part, &folder, last)?))
            .and_then(|()| Ok(rustix::fs::fsync(&folder)?));
        written.inspect_err(|_| {
            // It has no name that counts; a later put removes it otherwise.
            let _ = rustix::fs::unlinkat(&folder, &*part, AtFlags::empty());
        })
    }

    fn size_of(&self, name: &str) -> Result<u64, Stop> {
        let folder = self.holder("get", name, false)?;
        let about = rustix::fs::statat(&folder, last(name), AtFlags::SYMLINK_NOFOLLOW)?;
        let irregular = || io::Error::new(io::ErrorKind::InvalidData, "it is not a file");
        let is_file = FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
        if is_file { Ok(about.st_size.cast_unsigned()) } else { Err(irregular().into()) }
    }

    fn failed(&self, operation: &'static str, name: &str, stop: Stop) -> TierError {
        match stop {
            Stop::Caller(error) => error,
            Stop::System(cause) => fault::of_system(operation, self.locate(name), cause),
        }
    }

    fn read_file(
        &self,
        name: &str,
        size: u64,
        range: Range<u64>,
        take: &mut dyn FnMut(&[u8]) -> Result<(), TierError>,
    ) -> Result<(), Stop> {
        let folder = self.holder("get", name, false)?;
        // A pipe is not waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file: File = rustix::fs::openat(&folder, last(name), flags, Mode::empty())?.into();
        let opened = file.metadata()?;
        if !opened.is_file() || opened.len() != size {
            return Err(fault::damaged("get", self.locate(name), "it has changed").into());
        }
        let mut at = range.start;
        let longest = (range.end - range.start).min(PIECE as u64) as usize;
        let mut piece = vec![0; longest];
        while at < range.end {
            self.check("get", name)?;
            let len = (range.end - at).min(longest as u64) as usize;
            file.read_exact_at(&mut piece[..len], at)?;
            take(&piece[..len])?;
            at += len as u64;
        }
        Ok(())
    }

    /// Removes an object, if it is there.
    fn remove(&self, name: &str) -> Result<(), Stop> {
        let folder = self.holder("delete", name, false)?;
        rustix::fs::unlinkat(&folder, last(name), AtFlags::empty())?;
        Ok(rustix::fs::fsync(&folder)?)
    }
}

impl Place for Directory {
    fn locate(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    fn put(
        &self,
        name: &str,
        whole: &mut Whole<'_>,
        _journal: Option<&Path>,
    ) -> Result<(), TierError> {
        self.put_file(name, whole).map_err(|stop| self.failed("put", name, stop))
    }

    fn size(&self, name: &str) -> Result<u64, TierError> {
        self.size_of(name).map_err(|stop| self.failed("get", name, stop))
    }

    fn read(
        &self,
        name: &str,
        size: u64,
        range: Range<u64>,
        take: &mut dyn FnMut(&[u8]) -> Result<(), TierError>,
    ) -> Result<(), TierError> {
        self.read_file(name, size, range, take).map_err(|stop| self.failed("get", name, stop))
    }

    fn list(&self, begin: &str) -> Result<Vec<(String, u64)>, TierError> {
        let (folder, word) = begin.rsplit_once('/').unwrap_or(("", begin));
        let prefix = &begin[..begin.len() - word.len()];
        let mut found = Vec::new();
        let opened = self.folder("list", folder, false);
        let listed = opened.and_then(|folder| Ok(collect(&folder, (prefix, word), &mut found)?));
        gone(listed).map_err(|stop| self.failed("list", folder, stop))?;
        Ok(found)
    }

    fn delete(&self, name: &str) -> Result<(), TierError> {
        gone(self.remove(name)).map_err(|stop| self.failed("delete", name, stop))
    }

    fn identity(&self) -> Result<String, TierError> {
        let found =
            fs::metadata(&self.path).map_err(|cause| self.failed("open", "", cause.into()))?;
        Ok(format!("inode {}", found.ino()))
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// How a folder is opened.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens a folder in another one that is no link.
fn enter(holder: &OwnedFd, word: &str) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(holder, word, FOLDER | OFlags::NOFOLLOW, Mode::empty())
}

/// Makes a folder for its owner alone, and its name durable, and opens it.
fn made(holder: &OwnedFd, word: &str) -> rustix::io::Result<OwnedFd> {
    match rustix::fs::mkdirat(holder, word, Mode::from_raw_mode(0o700)) {
        // Another rank was faster.
        Err(Errno::EXIST) => {}
        made => made?,
    }
    rustix::fs::fsync(holder)?;
    enter(holder, word)
}

fn is_link(holder: &OwnedFd, word: &str) -> bool {
    let found = rustix::fs::statat(holder, word, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink)
}

/// The last word of a name.
fn last(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Adds the files below a folder whose names begin with `word`, with `prefix` before them.
fn collect(
    folder: &OwnedFd,
    (prefix, word): (&str, &str),
    found: &mut Vec<(String, u64)>,
) -> rustix::io::Result<()> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name.starts_with('.') || !name.starts_with(word) {
            continue;
        }
        let about = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            about => about?,
        };
        match FileType::from_raw_mode(about.st_mode) {
            FileType::Directory => match enter(folder, name) {
                // It is not there any more, or a link is.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                below => collect(&below?, (&format!("{prefix}{name}/"), ""), found)?,
            },
            FileType::RegularFile => {
                found.push((format!("{prefix}{name}"), about.st_size.cast_unsigned()));
            }
            // Neither is ours, and links are not followed.
            _ => {}
        }
    }
    Ok(())
}

/// Fine when something was not there.
fn gone(done: Result<(), Stop>) -> Result<(), Stop> {
    match done {
        Err(Stop::System(cause)) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// The name under which a file is written: no other process has the same one.
fn unfinished(name: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let last = last(name);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!(".{last}.{}-{:x}-{count}{UNFINISHED}", std::process::id(), now.as_nanos())
}

/// Removes the files in a folder that nobody will finish any more.
fn sweep(folder: &OwnedFd) -> rustix::io::Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let long_ago = now.saturating_sub(ABANDONED).as_secs();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let text = name.to_string_lossy();
        if !(text.starts_with('.') && text.ends_with(UNFINISHED)) {
            continue;
        }
        let about = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
        if about.is_ok_and(|about| about.st_mtime.cast_unsigned() < long_ago) {
            match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
                Err(Errno::NOENT) => {}
                removed => removed?,
            }
        }
    }
    Ok(())
}

/// Makes a directory for its owner alone, and makes its name durable.
fn make(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        // Another rank was faster.
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    sync(parent.unwrap_or(Path::new(".")))
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
