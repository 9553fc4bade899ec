//! One rank's folder: `data/` with the frames of its spool, and a manifest for each step that is
//! complete.
//!
//! A manifest is written to another name, synced, renamed, and then the folder is synced: it is
//! there as a whole or not at all. It is removed, and that made durable, before its frame is.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unspool::{Error, ErrorKind};

use crate::manifest::{MOST_BYTES, Manifest};
use crate::medium::{Files, Medium};
use crate::names;

/// One rank's folder.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    rank: u32,
    size: u32,
    medium: Arc<dyn Medium>,
}

/// A manifest that does not count, with what is wrong with it; its text is a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damaged {
    /// The file.
    pub path: PathBuf,
    /// What is wrong, as the end of a sentence.
    pub why: String,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} makes no checkpoint count: {}.", self.path.display(), self.why)
    }
}

/// The manifests in a folder.
#[derive(Debug, Default)]
pub struct Manifests {
    /// Those that are whole, by step.
    pub whole: Vec<Manifest>,
    /// The others.
    pub damaged: Vec<Damaged>,
}

impl Folder {
    /// The folder of a rank in `root`, which is there.
    #[must_use]
    pub fn at(root: &Path, rank: u32, size: u32) -> Folder {
        Folder::on(root, rank, size, Arc::new(Files))
    }

    fn on(root: &Path, rank: u32, size: u32, medium: Arc<dyn Medium>) -> Folder {
        Folder { path: root.join(names::rank_folder(rank, size)), rank, size, medium }
    }

    /// Makes the folder of a rank in `root`, of which only the last part is made as well. What is
    /// there is not touched: another process may have it open.
    ///
    /// # Errors
    /// `Io`, `Full`.
    pub fn make(root: &Path, rank: u32, size: u32) -> Result<Folder, Error> {
        Folder::make_on(root, rank, size, Arc::new(Files))
    }

    pub(crate) fn make_on(
        root: &Path,
        rank: u32,
        size: u32,
        medium: Arc<dyn Medium>,
    ) -> Result<Folder, Error> {
        let folder = Folder::on(root, rank, size, medium);
        folder.make_all(root).map_err(|cause| failed("made", &folder.path, cause))?;
        Ok(folder)
    }

    fn make_all(&self, root: &Path) -> io::Result<()> {
        // A link to a folder of the user's is the user's own.
        if !root.is_dir() {
            self.medium.make_folder(root)?;
            let parent = root.parent().filter(|parent| !parent.as_os_str().is_empty());
            self.medium.sync_folder(parent.unwrap_or(Path::new(".")))?;
        }
        self.medium.make_folder(&self.path)?;
        self.medium.make_folder(&self.data())?;
        self.medium.sync_folder(&self.path)?;
        self.medium.sync_folder(root)
    }

    /// Removes what an earlier process has not finished. The caller holds the lock of
    /// [`data`](Self::data), so that nobody is at work on it.
    ///
    /// # Errors
    /// `Io`.
    pub fn remove_unfinished(&self) -> Result<(), Error> {
        let remove = || {
            let steps = steps(&self.path, names::UNFINISHED)?.into_iter();
            let mut paths = steps.map(|step| self.path.join(names::file(step, names::UNFINISHED)));
            paths.try_for_each(|path| gone(self.medium.remove(&path)))
        };
        remove().map_err(|cause| failed("removed from", &self.path, cause))
    }

    /// The directory of the spool.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// The folder itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The manifests of this rank.
    ///
    /// # Errors
    /// `Io`.
    pub fn manifests(&self) -> Result<Manifests, Error> {
        manifests(&self.path, self.rank, self.size)
    }

    /// Makes a step count: its manifest is durable afterwards.
    ///
    /// # Errors
    /// `Io`, `Full`.
    pub fn write(&self, manifest: &Manifest) -> Result<(), Error> {
        let path = self.path.join(names::file(manifest.step, names::MANIFEST));
        self.put(&path, &manifest.render())
    }

    /// Gives a file these bytes, all or none, durable afterwards. Until then it has another name.
    fn put(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let part = &path.with_extension("part");
        let write = || {
            // What an earlier try has left.
            gone(self.medium.remove(part))?;
            self.medium.write(part, bytes)?;
            self.medium.rename(part, path)?;
            self.medium.sync_folder(&self.path)
        };
        write().map_err(|cause| {
            // It has no name that counts; the next opening removes it otherwise.
            let _ = self.medium.remove(part);
            failed("written", path, cause)
        })
    }

    /// Writes down to which remote place this rank copies its parts, so that who removes one here
    /// finds its copy.
    ///
    /// # Errors
    /// `Io`, `Full`.
    pub(crate) fn note_place(&self, place: &str) -> Result<(), Error> {
        if self.place()?.as_deref() == Some(place) {
            return Ok(());
        }
        self.put(&self.path.join("remote"), place.as_bytes())
    }

    /// The remote place that was written down.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn place(&self) -> Result<Option<String>, Error> {
        let path = self.path.join("remote");
        match read(&path) {
            Ok(bytes) => Ok(String::from_utf8(bytes).ok().filter(|place| !place.is_empty())),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(failed("read", &path, cause)),
        }
    }

    /// Makes steps count no more, whatever their manifests hold.
    ///
    /// # Errors
    /// `Io`.
    pub fn remove(&self, wanted: impl Fn(u64) -> bool) -> Result<(), Error> {
        let remove = || {
            let mut steps = steps(&self.path, names::MANIFEST)?;
            steps.retain(|step| wanted(*step));
            // An increment goes before what it builds on: who is killed here leaves none alone.
            for step in steps.iter().rev() {
                gone(self.medium.remove(&self.path.join(names::file(*step, names::MANIFEST))))?;
            }
            if steps.is_empty() { Ok(()) } else { self.medium.sync_folder(&self.path) }
        };
        remove().map_err(|cause| failed("removed from", &self.path, cause))
    }
}

/// Fine when there was nothing to remove.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

/// The names in a folder; what is not text is somebody else's.
pub(crate) fn entries(path: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
    names.filter_map(io::Result::transpose).collect()
}

/// The steps of the files in a folder whose names end so, in order.
fn steps(path: &Path, end: &str) -> io::Result<BTreeSet<u64>> {
    Ok(entries(path)?.iter().filter_map(|name| names::step_of(name, end)).collect())
}

/// The manifests of a rank in its folder.
pub(crate) fn manifests(folder: &Path, rank: u32, size: u32) -> Result<Manifests, Error> {
    let mut found = Manifests::default();
    let steps = steps(folder, names::MANIFEST);
    for step in steps.map_err(|cause| failed("read in", folder, cause))? {
        let path = folder.join(names::file(step, names::MANIFEST));
        match read(&path) {
            // Its owner has removed it meanwhile.
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => return Err(failed("read", &path, cause)),
            Ok(bytes) => match Manifest::parse(&bytes) {
                Ok(whole) if (whole.step, whole.rank, whole.ranks) == (step, rank, size) => {
                    found.whole.push(whole);
                }
                Ok(_) => {
                    let why = "it is that of another step or rank".to_owned();
                    found.damaged.push(Damaged { path, why });
                }
                Err(why) => found.damaged.push(Damaged { path, why: why.to_string() }),
            },
        }
    }
    Ok(found)
}

/// The bytes of a file that is not a link, and not many more than a manifest may have.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Ok(Vec::new());
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn failed(what: &str, path: &Path, cause: io::Error) -> Error {
    let message = format!("{} cannot be {what}: {cause}.{}", path.display(), advice(&cause));
    let kind = match cause.raw_os_error() {
        Some(28 | 122) => ErrorKind::Full,
        _ => ErrorKind::Io,
    };
    Error::new(kind, message).caused_by(cause)
}

/// What to do about an error of a file system.
fn advice(cause: &io::Error) -> &'static str {
    match cause.raw_os_error() {
        // ENOSPC, EDQUOT, EROFS, EACCES and EPERM, ENOENT, ESTALE on Linux.
        Some(28) => " Free space on that file system, or lower `keep`.",
        Some(122) => " Free space within the quota, or lower `keep`.",
        Some(30) => " The file system is read-only.",
        Some(1 | 13) => " Ask for permission, or choose another path.",
        Some(2) => " Only the last part of a path is made: make the one that is to hold it.",
        Some(116) => " The network file system has lost the file: mount it again.",
        _ => "",
    }
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
