//! Objects as files in a directory that other machines see as well.
//!
//! A file is written under another name, synced, renamed, and then its directory is synced: it is
//! there as a whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use unspool_core::Failure;
use unspool_tiers::TierError;

use crate::fault;
use crate::remote::Place;
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

    /// Refuses an operation below a link, which may lead anywhere.
    fn check_folders(&self, operation: &'static str, folder: &str) -> Result<(), TierError> {
        self.check(operation, folder)?;
        let ends = folder.match_indices('/').map(|(end, _)| end).chain([folder.len()]);
        for part in ends.map(|end| &folder[..end]).filter(|part| !part.is_empty()) {
            let found = fs::symlink_metadata(self.path.join(part));
            if found.is_ok_and(|found| found.is_symlink()) {
                let reason = "it is a link, and links are not followed";
                let error =
                    TierError::new(Failure::Permanent, operation, self.locate(part), reason);
                return Err(error.with_advice("Put a directory in its place."));
            }
        }
        Ok(())
    }

    /// As [`check_folders`](Self::check_folders), for the folders of an object.
    fn check_object(&self, operation: &'static str, name: &str) -> Result<(), TierError> {
        self.check_folders(operation, name.rsplit_once('/').map_or("", |(folder, _)| folder))
    }

    /// Makes the folders of a file that are not there, and removes what nobody will finish there.
    fn make_folders(&self, folder: &Path) -> io::Result<()> {
        if folder.is_dir() {
            return sweep(folder);
        }
        if let Some(parent) = folder.parent().filter(|_| folder != self.path) {
            self.make_folders(parent)?;
        }
        make(folder)
    }

    fn write(&self, name: &str, whole: &mut Whole<'_>, part: &Path) -> Result<(), Stop> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(part)?;
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
        let path = self.path.join(name);
        let folder = path.parent().unwrap_or(&self.path);
        self.make_folders(folder)?;
        let part = folder.join(unfinished(name));
        let written = self
            .write(name, whole, &part)
            .and_then(|()| Ok(fs::rename(&part, &path)?))
            .and_then(|()| Ok(sync(folder)?));
        written.inspect_err(|_| {
            // It has no name that counts; a later put removes it otherwise.
            let _ = fs::remove_file(&part);
        })
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
        let path = self.path.join(name);
        let (file, named) = (File::open(&path)?, fs::symlink_metadata(&path)?);
        let opened = file.metadata()?;
        let is_same = (opened.dev(), opened.ino()) == (named.dev(), named.ino());
        if !is_same || opened.len() != size {
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

    /// The files below `folder`, whose name is `prefix`.
    fn collect(
        &self,
        folder: &Path,
        prefix: &str,
        found: &mut Vec<(String, u64)>,
    ) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let Ok(word) = entry.file_name().into_string() else { continue };
            if word.starts_with('.') {
                continue;
            }
            let name = if prefix.is_empty() { word } else { format!("{prefix}/{word}") };
            match entry.metadata() {
                Ok(about) if about.is_dir() => {
                    gone(self.collect(&entry.path(), &name, found))?;
                }
                Ok(about) if about.is_file() => found.push((name, about.len())),
                // Neither is ours, and links are not followed.
                Ok(_) => {}
                Err(cause) => gone(Err(cause))?,
            }
        }
        Ok(())
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
        self.check_object("put", name)?;
        self.put_file(name, whole).map_err(|stop| self.failed("put", name, stop))
    }

    fn size(&self, name: &str) -> Result<u64, TierError> {
        self.check_object("get", name)?;
        let found = fs::symlink_metadata(self.path.join(name)).and_then(|found| {
            let irregular = || io::Error::new(io::ErrorKind::InvalidData, "it is not a file");
            if found.is_file() { Ok(found.len()) } else { Err(irregular()) }
        });
        found.map_err(|cause| self.failed("get", name, cause.into()))
    }

    fn read(
        &self,
        name: &str,
        size: u64,
        range: Range<u64>,
        take: &mut dyn FnMut(&[u8]) -> Result<(), TierError>,
    ) -> Result<(), TierError> {
        self.check_object("get", name)?;
        self.read_file(name, size, range, take).map_err(|stop| self.failed("get", name, stop))
    }

    fn list(&self, folder: &str) -> Result<Vec<(String, u64)>, TierError> {
        self.check_folders("list", folder)?;
        let mut found = Vec::new();
        let listed = gone(self.collect(&self.path.join(folder), folder, &mut found));
        listed.map_err(|cause| self.failed("list", folder, cause.into()))?;
        Ok(found)
    }

    fn delete(&self, name: &str) -> Result<(), TierError> {
        self.check_object("delete", name)?;
        let path = self.path.join(name);
        let removed = match fs::remove_file(&path) {
            Ok(()) => sync(path.parent().unwrap_or(&self.path)),
            Err(cause) => gone(Err(cause)),
        };
        removed.map_err(|cause| self.failed("delete", name, cause.into()))
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

/// Fine when something was not there.
fn gone(done: io::Result<()>) -> io::Result<()> {
    done.or_else(|cause| match cause.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(cause),
    })
}

/// The name under which a file is written: no other process has the same one.
fn unfinished(name: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let last = name.rsplit('/').next().unwrap_or(name);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!(".{last}.{}-{:x}-{count}{UNFINISHED}", std::process::id(), now.as_nanos())
}

/// Removes the files in a folder that nobody will finish any more.
fn sweep(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !(name.starts_with('.') && name.ends_with(UNFINISHED)) {
            continue;
        }
        let age = entry.metadata().and_then(|about| about.modified()).map(|at| at.elapsed());
        if matches!(age, Ok(Ok(age)) if age > ABANDONED) {
            gone(fs::remove_file(entry.path()))?;
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
