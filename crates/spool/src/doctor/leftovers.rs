//! What spools have in a directory: those that are open, and those of processes that died.

use std::fs::{self, DirEntry, File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The directory of an ephemeral spool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leftover {
    /// Where it is.
    pub path: PathBuf,
    /// Bytes that its files take on the disk.
    pub bytes: u64,
    /// Whether somebody still needs it.
    pub owner: Owner,
    /// The process in its name.
    pub pid: u32,
}

/// Whose a directory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A process that has it open.
    Alive,
    /// A process that died; the next spool that is opened beside it removes it.
    Dead,
    /// It cannot be told, as with directories of other users.
    Unknown,
}

impl Owner {
    /// In one word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Owner::Alive => "alive",
            Owner::Dead => "dead",
            Owner::Unknown => "unknown",
        }
    }
}

/// The directories of ephemeral spools in `dir`, in the order of their names.
pub(super) fn list(dir: &Path) -> Vec<Leftover> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<Leftover> = entries.filter_map(|entry| describe(&entry)).collect();
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn describe(entry: &DirEntry) -> Option<Leftover> {
    let pid = process(entry.file_name().to_str()?)?;
    let path = entry.path();
    // A link is not what we made.
    let is_ours = entry.file_type().ok()?.is_dir();
    is_ours.then(|| Leftover { bytes: bytes(&path), owner: owner(&path), pid, path })
}

/// The process in a name such as `unspool-812-00112233445566aa`, as the disk tier writes it.
fn process(name: &str) -> Option<u32> {
    let (pid, random) = name.strip_prefix("unspool-")?.split_once('-')?;
    let random = random.len() == 16 && random.bytes().all(|digit| digit.is_ascii_hexdigit());
    random.then(|| pid.parse().ok())?
}

/// Who holds the lock in it is alive. It is asked for in the shared mode and given back at once;
/// owners and cleaners both bear that.
fn owner(dir: &Path) -> Owner {
    let Ok(lock) = File::open(dir.join("lock")) else { return Owner::Unknown };
    match lock.try_lock_shared() {
        Ok(()) => Owner::Dead,
        Err(TryLockError::WouldBlock) => Owner::Alive,
        Err(TryLockError::Error(_)) => Owner::Unknown,
    }
}

fn bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|data| data.blocks() * 512).sum()
}

#[cfg(test)]
mod tests {
    use unspool_core::CheckpointId;
    use unspool_testkit::Scratch;
    use unspool_tiers::{Disk, DiskOptions, Tier};

    use super::*;

    #[test]
    fn the_directory_of_an_open_spool_is_alive_and_its_bytes_are_counted() {
        let scratch = Scratch::new();
        let disk = Disk::open(DiskOptions::new(scratch.path())).unwrap();
        disk.put(CheckpointId(1), 0, &[&[7; 8192]]).unwrap();
        let found = list(scratch.path());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].owner, found[0].pid), (Owner::Alive, std::process::id()));
        assert!(found[0].bytes >= 8192, "{found:?}");
        disk.close().unwrap();
        assert_eq!(list(scratch.path()), []);
    }

    #[test]
    fn a_directory_whose_lock_nobody_holds_is_dead_and_stays() {
        let scratch = Scratch::new();
        let dead = scratch.path().join("unspool-4000000-0123456789abcdef");
        fs::create_dir(&dead).unwrap();
        assert_eq!(list(scratch.path())[0].owner, Owner::Unknown, "one without a lock");
        fs::write(dead.join("lock"), "process 4000000\n").unwrap();
        let found = list(scratch.path());
        assert_eq!((found[0].owner, found[0].pid), (Owner::Dead, 4_000_000));
        assert!(dead.join("lock").exists(), "looking removes nothing");
    }

    #[test]
    fn what_only_looks_like_one_is_left_out() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path().join("unspool-results")).unwrap();
        fs::create_dir(scratch.path().join("unspool-12-short")).unwrap();
        fs::write(scratch.path().join("unspool-12-0123456789abcdef"), "a file").unwrap();
        assert_eq!(list(scratch.path()), []);
        assert_eq!(list(&scratch.path().join("nothing")), []);
    }
}
