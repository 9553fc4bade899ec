//! The directory of a disk tier: whose it is, and what of dead processes is cleared away.
//!
//! A tier is alive as long as somebody holds the lock (`flock`) on its lock file; the kernel lets
//! go of it when the process dies. Who takes the lock of another tier's directory therefore knows
//! that its owner is dead, and keeps everybody else out while he removes it. A directory that was
//! just made can lose its lock to such a cleaner before its owner takes it; the owner sees that,
//! because he then cannot lock, or locks a file that is no longer there, and makes another one.
//!
//! A lock file says `process` and a number. A file of its name that says something else may not be
//! ours: it is neither written nor removed, nor is a directory removed because of it.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{self, Path, PathBuf};

use rustix::fs::OFlags;
use unspool_core::Failure;

use crate::disk::fault;
use crate::disk::medium::{PRIVATE, regular};
use crate::disk::names::{self, DURABLE_LOCK, LOCK, Tag};
use crate::error::TierError;
use unspool_cuda::Bytes;

/// How often a new directory is made when others clear it away too early.
const ATTEMPTS: u32 = 16;
/// What a lock file begins with.
const SIGNATURE: &str = "process ";

/// A directory that belongs to this process as long as its lock is held.
#[derive(Debug)]
pub(super) struct Home {
    /// Where the files are.
    pub(super) dir: PathBuf,
    /// Closing or unlocking it ends the ownership; `None` for a tier that only reads.
    pub(super) lock: Option<File>,
    pub(super) notes: Vec<String>,
}

/// A new directory in `parent`, and the tag of its slots. Directories of dead processes next to it
/// are removed.
pub(super) fn ephemeral(parent: &Path) -> Result<(Home, Tag), TierError> {
    let failed = |cause| fault::error("open", parent, cause, Failure::Permanent);
    // The process may change its working directory later.
    let parent = &path::absolute(parent).map_err(failed)?;
    create(parent)?;
    let mut notes = Vec::new();
    for _ in 0..ATTEMPTS {
        let tag = Tag::new();
        let dir = parent.join(names::directory(tag));
        if let Some(lock) = claim(&dir, &mut notes).map_err(failed)? {
            notes.extend(reclaim(parent, &dir));
            return Ok((Home { dir, lock: Some(lock), notes }, tag));
        }
    }
    Err(failed(io::Error::other("other processes keep removing the new directory")))
}

/// The directory itself, for this process alone.
pub(super) fn durable(dir: &Path, permissions: u32) -> Result<Home, TierError> {
    let failed = |cause| fault::error("open", dir, cause, Failure::Permanent);
    let dir = &path::absolute(dir).map_err(failed)?;
    if create(dir)? {
        // A crash leaves it there.
        dir.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all()).map_err(failed)?;
    }
    let path = dir.join(DURABLE_LOCK);
    let failed = |cause| fault::error("open", &path, cause, Failure::Permanent);
    let mut lock = open_lock(&path, Some(permissions)).map_err(failed)?;
    let mut notes = Vec::new();
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(in_use(dir, &mut lock)),
        Err(TryLockError::Error(cause)) => notes.push(no_locks(&cause)),
    }
    match owner(&mut lock).map_err(failed)? {
        Owner::Process(_) | Owner::Unsigned => sign(&mut lock).map_err(failed)?,
        // The lock on it is as good, and a history is not to depend on what it says.
        Owner::Foreign => notes.push(format!(
            "{DURABLE_LOCK} is not as Unspool writes it: it is locked, and left as it is."
        )),
    }
    Ok(Home { dir: dir.clone(), lock: Some(lock), notes })
}

/// The directory of a durable tier, for looking at what is in it.
pub(super) fn read_only(dir: &Path) -> Result<Home, TierError> {
    let failed = |cause| fault::error("open", dir, cause, Failure::Permanent);
    let dir = path::absolute(dir).map_err(failed)?;
    match fs::metadata(&dir) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(failed(io::ErrorKind::NotADirectory.into())),
        Err(cause) if fault::is_absent(&cause) => {
            let reason = "there is no such directory";
            let location = dir.display().to_string();
            return Err(TierError::new(Failure::Permanent, "open", location, reason)
                .with_advice("Check the spelling: what is opened for reading is not created.")
                .with_cause(cause));
        }
        Err(cause) => return Err(failed(cause)),
    }
    let note = "It is opened for reading: nothing in it is written, locked or removed.".to_owned();
    Ok(Home { dir, lock: None, notes: vec![note] })
}

/// Removes the directory of an ephemeral tier, with all slots and packs in it.
///
/// # Errors
/// When something cannot be removed; the rest is.
pub(super) fn remove(dir: &Path, tag: Tag) -> io::Result<()> {
    remove_directory(dir, tag).map(|_| ())
}

/// Creates a directory in one that exists; says whether it was not there before.
fn create(dir: &Path) -> Result<bool, TierError> {
    let cause = match fs::create_dir(dir) {
        Ok(()) => return Ok(true),
        Err(_) if dir.is_dir() => return Ok(false),
        Err(cause) => cause,
    };
    let missing = dir.parent().filter(|parent| fault::is_absent(&cause) && !parent.exists());
    let Some(parent) = missing else {
        return Err(fault::error("open", dir, cause, Failure::Permanent));
    };
    let reason = format!("{} does not exist", parent.display());
    let advice = "Check the spelling, or create it first: only the last part of a path is created.";
    Err(TierError::new(Failure::Permanent, "open", dir.display().to_string(), reason)
        .with_advice(advice)
        .with_cause(cause))
}

/// Opens a lock file; with permissions it is created when it is not there.
fn open_lock(path: &Path, create: Option<u32>) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.read(true).write(true).custom_flags(flags.bits().cast_signed());
    match (regular(path, options.open(path)), create) {
        (Err(cause), Some(permissions)) if fault::is_absent(&cause) => {
            let file = options.create_new(true).mode(permissions).open(path)?;
            if permissions != PRIVATE {
                file.set_permissions(Permissions::from_mode(permissions))?;
            }
            Ok(file)
        }
        (opened, _) => opened,
    }
}

/// What a lock file says.
#[derive(PartialEq, Eq, Debug)]
enum Owner {
    /// The process that holds it, or held it.
    Process(String),
    /// Nothing: it was just made.
    Unsigned,
    /// It is not a lock of ours.
    Foreign,
}

fn owner(lock: &mut File) -> io::Result<Owner> {
    let mut text = Vec::new();
    lock.rewind()?;
    lock.take(64).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let number = text.strip_prefix(SIGNATURE).map(str::trim_end);
    Ok(match number {
        Some(number) if number.parse::<u32>().is_ok() => Owner::Process(text.trim_end().to_owned()),
        _ if text.is_empty() => Owner::Unsigned,
        _ => Owner::Foreign,
    })
}

fn no_locks(cause: &io::Error) -> String {
    format!(
        "This file system has no file locks ({cause}): nothing stops two processes from using \
         one directory, and what a killed process leaves has to be removed by hand."
    )
}

fn in_use(dir: &Path, lock: &mut File) -> TierError {
    let own = format!("process {}", std::process::id());
    let (owner, other) = match owner(lock) {
        Ok(Owner::Process(process)) if process == own => {
            (format!("this process, {own}, itself"), "what has it open here and was not closed")
        }
        Ok(Owner::Process(process)) => (process, "what has it open there"),
        _ => ("another process".to_owned(), "what has it open there"),
    };
    let reason = format!("the directory is in use by {owner}");
    let advice = format!(
        "Close {other}, such as a spool or a checkpointer, choose another directory, or open this \
         one for reading."
    );
    TierError::new(Failure::Permanent, "open", dir.display().to_string(), reason)
        .with_advice(advice)
}

/// Writes into the lock file who holds it: for people, and as proof of whose it is.
fn sign(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    match writeln!(lock, "{SIGNATURE}{}", std::process::id()) {
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
    let lock = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(&path);
    let mut lock = match lock {
        Err(cause) if fault::is_absent(&cause) => return Ok(None),
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

/// Whether `there` is what was found under the name of the open file.
pub(super) fn is_same(there: &Metadata, file: &File) -> bool {
    file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (there.dev(), there.ino()))
}

/// Removes the directories of dead processes in `parent` and says what that gave back.
fn reclaim(parent: &Path, own: &Path) -> Option<String> {
    let (mut count, mut bytes) = (0u64, 0);
    for entry in fs::read_dir(parent).ok()?.flatten() {
        let path = entry.path();
        // A link is not followed: it is not what we made.
        let directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if directory
            && path != own
            && let Some(tag) = entry.file_name().to_str().and_then(names::directory_tag)
            && let Some(freed) = reclaim_one(&path, tag)
        {
            count += 1;
            bytes += freed;
        }
    }
    let freed = Bytes(bytes);
    (count > 0).then(|| format!("Removed what {count} dead processes left: {freed}."))
}

/// Removes `dir` if its owner is dead; says how many bytes that gave back.
fn reclaim_one(dir: &Path, tag: Tag) -> Option<u64> {
    let mut lock = match open_lock(&dir.join(LOCK), None) {
        Err(cause) if fault::is_absent(&cause) => {
            // Its owner has not come further yet, or died: in both cases it is empty or not ours.
            return fs::remove_dir(dir).ok().map(|()| 0);
        }
        lock => lock.ok()?,
    };
    lock.try_lock().ok()?;
    match owner(&mut lock).ok()? {
        Owner::Process(_) => remove_directory(dir, tag).ok(),
        // Its owner died before he wrote anything, or there was no room for it.
        Owner::Unsigned => {
            let mut entries = fs::read_dir(dir).ok()?;
            let alone = entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == LOCK));
            if alone { remove_directory(dir, tag).ok() } else { None }
        }
        Owner::Foreign => None,
    }
}

/// Removes the directory of an ephemeral tier: slots and packs first and its lock last, so that
/// what a crash leaves of it is still known as ours. Files that are not ours stay, and the
/// directory with them. Says how many bytes that gave back.
fn remove_directory(dir: &Path, tag: Tag) -> io::Result<u64> {
    let mut freed = 0;
    let mut failed = None;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let of_pack = |name| names::pack(name).is_some_and(|(its, _)| its == tag);
        if !entry.file_name().to_str().is_some_and(|name| tag.is_slot(name) || of_pack(name)) {
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
        Err(cause) if !fault::is_absent(&cause) => Err(cause),
        _ => Ok(freed),
    }
}
