//! The directory of a disk tier: whose it is, and what of dead processes is cleared away.
//!
//! A tier is alive as long as somebody holds the lock (`flock`) on its lock file; the kernel lets
//! go of it when the process dies. Who takes the lock of another tier's directory therefore knows
//! that its owner is dead, and keeps everybody else out while he removes it. A directory that was
//! just made can lose its lock to such a cleaner before its owner takes it; the owner sees that,
//! because he then cannot lock, or locks a file that is no longer there, and makes another one.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{self, Path, PathBuf};

use unspool_core::Failure;

use crate::disk::fault;
use crate::disk::names::{self, DURABLE_LOCK, LOCK};
use crate::error::TierError;
use crate::text::Bytes;

/// How often a new directory is made when others clear it away too early.
const ATTEMPTS: u32 = 16;

/// A directory that belongs to this process while the value lives.
#[derive(Debug)]
pub(super) struct Home {
    /// Where the files are.
    pub(super) dir: PathBuf,
    /// Closing or unlocking it ends the ownership.
    lock: File,
    pub(super) notes: Vec<String>,
}

impl Home {
    /// A new directory in `parent`. Directories of dead processes next to it are removed.
    pub(super) fn ephemeral(parent: &Path) -> Result<Home, TierError> {
        let failed = |cause| fault::error("open", parent, cause, Failure::Permanent);
        // The process may change its working directory later.
        let parent = &path::absolute(parent).map_err(failed)?;
        fs::create_dir_all(parent).map_err(failed)?;
        let mut notes = Vec::new();
        for _ in 0..ATTEMPTS {
            let dir = parent.join(names::new_directory());
            if let Some(lock) = claim(&dir, &mut notes).map_err(failed)? {
                notes.extend(reclaim(parent, &dir));
                return Ok(Home { dir, lock, notes });
            }
        }
        Err(failed(io::Error::other("other processes keep removing the new directory")))
    }

    /// The directory itself, for this process alone.
    pub(super) fn durable(dir: &Path) -> Result<Home, TierError> {
        let failed = |cause| fault::error("open", dir, cause, Failure::Permanent);
        let dir = &path::absolute(dir).map_err(failed)?;
        create_durably(dir).map_err(failed)?;
        let path = dir.join(DURABLE_LOCK);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut lock = options.open(&path).map_err(failed)?;
        let mut notes = Vec::new();
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(dir, &mut lock)),
            Err(TryLockError::Error(cause)) => notes.push(no_locks(&cause)),
        }
        sign(&mut lock).map_err(failed)?;
        Ok(Home { dir: dir.to_owned(), lock, notes })
    }

    /// Ends the ownership: another tier may open the directory from now on, also in this process.
    pub(super) fn leave(&self) {
        // Where files have no locks, nothing is to be let go of.
        let _ = self.lock.unlock();
    }

    /// Removes the directory of an ephemeral tier, with all slots in it.
    ///
    /// # Errors
    /// When something cannot be removed; the rest is.
    pub(super) fn remove(&self) -> io::Result<()> {
        remove_directory(&self.dir).map(|_| ())
    }
}

/// Creates a directory with its parents so that a crash leaves it there.
fn create_durably(dir: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
    fs::create_dir_all(dir)?;
    for parent in missing.iter().filter_map(|dir| dir.parent()) {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

fn no_locks(cause: &io::Error) -> String {
    format!(
        "This file system has no file locks ({cause}): nothing stops two processes from using \
         one directory, and what a killed process leaves behind has to be removed by hand."
    )
}

fn in_use(dir: &Path, lock: &mut File) -> TierError {
    let mut owner = String::new();
    let _ = lock.read_to_string(&mut owner);
    let owner = owner.trim();
    let owner = if owner.is_empty() { "another process" } else { owner };
    let reason = format!("the directory is in use by {owner}");
    TierError::new(Failure::Permanent, "open", dir.display().to_string(), reason)
        .with_advice("Close the other spool first, or choose another directory.")
}

/// Writes into the lock file who holds it, for people.
fn sign(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    match writeln!(lock, "process {}", std::process::id()) {
        // On a full medium the tier can still give back what it holds.
        Err(cause) if fault::is_full(&cause) => Ok(()),
        result => result,
    }
}

/// Makes `dir` and takes its lock; `None` when somebody was faster.
fn claim(dir: &Path, notes: &mut Vec<String>) -> io::Result<Option<File>> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
        result => result?,
    }
    let path = dir.join(LOCK);
    let lock = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let mut lock = match lock {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        result => result?,
    };
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(cause)) => notes.push(no_locks(&cause)),
    }
    let kept = fs::metadata(&path).is_ok_and(|there| is_same(&there, &lock));
    if kept {
        sign(&mut lock)?;
    }
    Ok(kept.then_some(lock))
}

fn is_same(there: &fs::Metadata, file: &File) -> bool {
    file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (there.dev(), there.ino()))
}

/// Removes the directories of dead processes in `parent` and says what that gave back.
fn reclaim(parent: &Path, own: &Path) -> Option<String> {
    let (mut count, mut bytes) = (0u64, 0);
    for entry in fs::read_dir(parent).ok()?.flatten() {
        let path = entry.path();
        let ours = entry.file_name().to_str().is_some_and(names::is_directory);
        // A link is not followed: it is not what we made.
        let directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if ours
            && directory
            && path != own
            && let Some(freed) = reclaim_one(&path)
        {
            count += 1;
            bytes += freed;
        }
    }
    let freed = Bytes(bytes);
    (count > 0).then(|| format!("Removed what {count} dead processes left behind: {freed}."))
}

/// Removes `dir` if its owner is dead; says how many bytes that gave back.
fn reclaim_one(dir: &Path) -> Option<u64> {
    let lock = match File::open(dir.join(LOCK)) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            // Its owner has not come further yet, or died: in both cases it is empty or not ours.
            return fs::remove_dir(dir).ok().map(|()| 0);
        }
        lock => lock.ok()?,
    };
    lock.try_lock().ok()?;
    remove_directory(dir).ok()
}

/// Removes the directory of an ephemeral tier: slots first and its lock last, so that what a
/// crash leaves of it is still known as ours. Files that are not ours stay, and the directory with
/// them. Says how many bytes that gave back.
fn remove_directory(dir: &Path) -> io::Result<u64> {
    let mut freed = 0;
    let mut failed = None;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if !entry.file_name().to_str().is_some_and(names::is_slot) {
            continue;
        }
        let bytes = entry.metadata().map_or(0, |data| data.blocks() * 512);
        match fs::remove_file(entry.path()) {
            Ok(()) => freed += bytes,
            Err(cause) => failed = Some(cause),
        }
    }
    if let Some(cause) = failed {
        return Err(cause);
    }
    fs::remove_file(dir.join(LOCK))?;
    match fs::remove_dir(dir) {
        // Empty and without a lock, it may have been cleared away by another opener already.
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(cause),
        _ => Ok(freed),
    }
}
