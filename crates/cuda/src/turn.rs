//! Turns of the processes of a node to register memory for one GPU: concurrent registrations slow
//! each other down far more than one after the other would (Maurya et al., HiPC 2022, section IV-A,
//! "Serialized registration"). Registrations for different GPUs do not.
//!
//! The turn is a file lock, so it ends with its process, however that ends. It is taken for one
//! chunk at a time, and the gaps of one process (see [`crate::Pace`]) are the turns of the others.
//! It only saves time, so it never blocks a registration for good: after a limit, or when the file
//! cannot be opened, registration goes on without it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// The name of the file with the lock of `whose`.
fn name(whose: &str) -> String {
    format!("unspool-{whose}.lock")
}

/// The turns of one directory. Each value has its own lock, so two arenas of one process take turns
/// as well.
#[derive(Debug)]
pub(crate) struct Turns {
    file: Option<File>,
}

/// A turn; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    file: Option<&'a File>,
}

impl Turns {
    /// Turns by the lock file of `whose` in `directory`, which all processes of the node see.
    /// Without turns if the file cannot be opened.
    pub(crate) fn of(directory: &Path, whose: &str) -> Turns {
        Turns { file: open(&directory.join(name(whose))).ok() }
    }

    /// Without turns: registration never waits.
    pub(crate) fn none() -> Turns {
        Turns { file: None }
    }

    /// Whether the lock file is in use.
    pub(crate) fn are_taken(&self) -> bool {
        self.file.is_some()
    }

    /// Takes the turn, or returns `None` while another process has it. Never waits.
    pub(crate) fn try_take(&self) -> Option<Turn<'_>> {
        let Some(file) = &self.file else { return Some(Turn { file: None }) };
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Some(Turn { file: Some(file) }),
            Err(rustix::io::Errno::WOULDBLOCK) => None,
            // A file system without locks.
            Err(_) => Some(Turn { file: None }),
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.file {
            // An error means a bad descriptor, which holds no lock.
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

/// A directory in memory that all processes of a node share.
pub(crate) fn directory_of_the_node() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() }
}

/// Whose turns those of the GPU with this address are.
pub(crate) fn of_gpu(pci: &str) -> String {
    format!("register-{}", pci.to_ascii_lowercase())
}

/// The lock files of this node's GPUs, as a pattern of the shell, for reports of who can use them.
#[must_use]
pub fn turn_locks() -> PathBuf {
    directory_of_the_node().join(name(&of_gpu("*")))
}

/// Opens the file, whichever user made it, for reading, which is enough for a lock. An existing
/// file is not opened for creation, because systems refuse that for files of other users in shared
/// directories.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            options.write(true).create(true).mode(0o644).open(path)
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Directory {
            Directory(tempfile::Builder::new().prefix(name).tempdir().unwrap().keep())
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn one_has_the_turn_until_it_is_dropped() {
        let directory = Directory::new("one");
        let (a, b) = (Turns::of(&directory.0, "x"), Turns::of(&directory.0, "x"));
        assert!(a.are_taken() && b.are_taken());
        let turn = a.try_take().unwrap();
        assert!(b.try_take().is_none());
        drop(turn);
        assert!(b.try_take().is_some());
    }

    #[test]
    fn without_a_directory_everyone_may_go() {
        let turns = Turns::of(Path::new("/nonexistent/unspool"), "x");
        assert!(!turns.are_taken());
        let first = turns.try_take();
        assert!(first.is_some() && turns.try_take().is_some());
    }

    #[test]
    fn a_link_in_the_place_of_the_lock_is_not_followed() {
        let directory = Directory::new("link");
        let target = directory.0.join("precious");
        std::fs::write(&target, "x").unwrap();
        std::os::unix::fs::symlink(&target, directory.0.join(name("x"))).unwrap();
        assert!(!Turns::of(&directory.0, "x").are_taken());
        assert_eq!(std::fs::read(&target).unwrap(), b"x");
    }
}
