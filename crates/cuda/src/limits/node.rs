//! The account of a node: what each process of this user has promised to its arenas and not written
//! yet, which nothing else on the machine shows, so that processes that open spools together do not
//! promise the same memory twice.
//!
//! Each process has a file in a directory in memory, mapped by it alone for writing and locked for
//! as long as it lives: a file without a lock is what a killed process has left, and the next one
//! that reads it removes it. Files of other users are not believed.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, flock};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::process::getuid;

use crate::turn::{self, Turn, Turns};

const PREFIX: &str = "unspool-memory-";
/// The end of the name of a file whose process has not locked it yet.
const NEW: &str = ".new";
const MAGIC: u64 = u64::from_le_bytes(*b"unspool1");

/// How long a promise waits for those of other processes: one that was stopped in between must not
/// stop the others.
const LIMIT: Duration = Duration::from_millis(100);
const POLL: Duration = Duration::from_micros(200);
/// A file that nobody has locked after this long will not be locked any more.
const STALE: Duration = Duration::from_secs(60);

/// What one process says of itself, in native byte order: only this machine reads it.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Record {
    magic: u64,
    /// The control group that limits its memory, by the number of that group's file; 0 for none.
    group: u64,
    /// Bytes that are promised to arenas and not yet written.
    pub(super) promised: AtomicU64,
    /// Bytes of arenas that are written.
    pub(super) written: AtomicU64,
}

const LEN: usize = size_of::<Record>();

impl Record {
    pub(super) const fn of(group: u64) -> Record {
        let (promised, written) = (AtomicU64::new(0), AtomicU64::new(0));
        Record { magic: MAGIC, group, promised, written }
    }
}

/// What the other processes of this user have, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Others {
    /// Promised and not yet written.
    pub(super) promised: u64,
    /// The same, of processes in the control group of this one.
    pub(super) promised_in_group: u64,
    /// Written, in arenas that have not ended.
    pub(super) written: u64,
}

/// The record of this process, in its file or, where there can be none, in its own memory. A forked
/// child has one of its own.
pub(super) fn own(group: u64) -> &'static Record {
    static OWNER: AtomicU32 = AtomicU32::new(0);
    static OWN: AtomicPtr<Record> = AtomicPtr::new(ptr::null_mut());
    let here = std::process::id();
    if OWNER.load(Ordering::Acquire) == here {
        // SAFETY: a record that lives as long as the process; it was stored before its owner.
        return unsafe { &*OWN.load(Ordering::Acquire) };
    }
    // Of two threads that do this together, one leaves a record in which nothing ever counts.
    let record = publish(&turn::directory_of_the_node(), group).map_or_else(
        |_| &*Box::leak(Box::new(Record::of(group))),
        |(record, path)| {
            remove_at_exit(path);
            record
        },
    );
    OWN.store(ptr::from_ref(record).cast_mut(), Ordering::Release);
    OWNER.store(here, Ordering::Release);
    record
}

/// The number by which processes of one control group know each other.
pub(super) fn number_of(group_file: Option<&Path>) -> u64 {
    group_file.and_then(|file| file.metadata().ok()).map_or(0, |found| found.ino())
}

/// What the other processes of the node have at this moment; `group` is the control group of this
/// one.
pub(super) fn others(group: u64) -> Others {
    if cfg!(miri) {
        return Others::default();
    }
    others_in(&turn::directory_of_the_node(), group, std::process::id())
}

/// The turn of this process to look at what is promised and to promise more, until it is dropped.
pub(super) fn with_turn<T>(act: impl FnOnce() -> T) -> T {
    if cfg!(miri) {
        return act();
    }
    let (turns, begin) = (Turns::of(&turn::directory_of_the_node(), "memory"), Instant::now());
    let mut turn: Option<Turn<'_>> = turns.try_take();
    while turn.is_none() && begin.elapsed() < LIMIT {
        std::thread::sleep(POLL);
        turn = turns.try_take();
    }
    act()
}

/// Makes the file of this process, which is locked before it gets its name.
fn publish(directory: &Path, group: u64) -> io::Result<(&'static Record, PathBuf)> {
    if cfg!(miri) {
        return Err(ErrorKind::Unsupported.into());
    }
    let noise = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.subsec_nanos());
    let path = directory.join(format!("{PREFIX}{}-{noise:08x}", std::process::id()));
    let new = path.with_extension(&NEW[1..]);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).open(&new)?;
    let made = lock_and_map(&file, group).and_then(|record| {
        std::fs::rename(&new, &path)?;
        Ok((record, path))
    });
    if made.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    // The lock lasts as long as the file is open: until the process ends.
    std::mem::forget(file);
    made
}

fn lock_and_map(file: &File, group: u64) -> io::Result<&'static Record> {
    flock(file, FlockOperation::NonBlockingLockExclusive)?;
    file.set_len(LEN as u64)?;
    let (read_write, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping at an address that the system chooses.
    let place = unsafe { mmap(ptr::null_mut(), LEN, read_write, shared, file, 0) }?;
    let record = place.cast::<Record>();
    // SAFETY: page-aligned memory of this length, which is never unmapped; others only read the
    // file, and nobody makes it shorter, as it belongs to this user alone.
    unsafe {
        record.write(Record::of(group));
        Ok(&*record)
    }
}

fn others_in(directory: &Path, group: u64, own: u32) -> Others {
    let mut sum = Others::default();
    let own = format!("{PREFIX}{own}-");
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
        if name.starts_with(&own) {
            continue;
        }
        let Ok(Some(record)) = record_in(&entry.path(), name.ends_with(NEW)) else { continue };
        let promised = record.promised.into_inner();
        sum.promised = sum.promised.saturating_add(promised);
        sum.written = sum.written.saturating_add(record.written.into_inner());
        if group != 0 && record.group == group {
            sum.promised_in_group = sum.promised_in_group.saturating_add(promised);
        }
    }
    sum
}

/// What a living process says in its file. What a dead one has left is removed.
fn record_in(path: &Path, is_new: bool) -> io::Result<Option<Record>> {
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != getuid().as_raw() {
        return Ok(None);
    }
    let age = found.modified().ok().and_then(|time| time.elapsed().ok());
    if is_new && age.is_none_or(|age| age < STALE) {
        return Ok(None);
    }
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            std::fs::remove_file(path)?;
            return Ok(None);
        }
        Err(error) if error == rustix::io::Errno::WOULDBLOCK => {}
        Err(error) => return Err(error.into()),
    }
    let mut words = [0u64; LEN / 8];
    for (index, word) in words.iter_mut().enumerate() {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, index as u64 * 8)?;
        *word = u64::from_ne_bytes(bytes);
    }
    let [magic, group, promised, written] = words;
    if magic != MAGIC {
        return Err(ErrorKind::InvalidData.into());
    }
    let (promised, written) = (AtomicU64::new(promised), AtomicU64::new(written));
    Ok(Some(Record { magic, group, promised, written }))
}

/// Removes the file when the process exits; what a killed one leaves, others remove.
fn remove_at_exit(path: PathBuf) {
    static FILE: OnceLock<(u32, PathBuf)> = OnceLock::new();
    extern "C" fn remove() {
        // A forked child has the handlers of its parent.
        if let Some((_, path)) = FILE.get().filter(|(pid, _)| *pid == std::process::id()) {
            let _ = std::fs::remove_file(path);
        }
    }
    if FILE.set((std::process::id(), path)).is_ok() {
        // SAFETY: the handler is a static function that touches nothing of others.
        unsafe { libc::atexit(remove) };
    }
}

#[cfg(test)]
#[cfg(not(miri))]
#[path = "node_tests.rs"]
mod tests;
