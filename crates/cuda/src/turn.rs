//! Processes of one node take turns to register: concurrent registrations slow each other down far
//! more than one after the other would (Maurya et al., HiPC 2022, section IV-A, "Serialized
//! registration").
//!
//! The turn is a file lock, so it ends with its process however that ends. It is taken for one
//! chunk at a time, and the gaps of one process (see [`crate::Pace`]) are the turns of the others.
//! It only saves time, so a turn that cannot be had never stops anyone: after a limit, or when the
//! file cannot be opened, the registration goes on without.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

const NAME: &str = "unspool-register.lock";

/// The turns of one directory. Each value has a lock of its own, so two arenas of one process take
/// turns as well.
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
    /// The turns of `directory`, which all processes of the node see. A file that cannot be opened
    /// means no turns.
    pub(crate) fn of(directory: &Path) -> Turns {
        Turns { file: open(&directory.join(NAME)).ok() }
    }

    /// No turns: everything may go at once.
    pub(crate) fn none() -> Turns {
        Turns { file: None }
    }

    /// Whether there are turns at all.
    pub(crate) fn are_taken(&self) -> bool {
        self.file.is_some()
    }

    /// A turn, or `None` while another has it. Never waits.
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
            // It fails only for a bad descriptor, and then there is no lock.
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

/// A directory that all processes of a node share and that needs no disk.
pub(crate) fn directory_of_the_node() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() }
}

/// The file whose lock is the turn of this node, for reports of who has it.
#[must_use]
pub fn turn_lock() -> PathBuf {
    directory_of_the_node().join(NAME)
}

/// Opens the file, of whoever made it, for reading: a lock needs no more. It is not made where it
/// exists, since systems refuse that for files of other users in shared directories.
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
            let path =
                std::env::temp_dir().join(format!("unspool-turn-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Directory(path)
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
        let (a, b) = (Turns::of(&directory.0), Turns::of(&directory.0));
        assert!(a.are_taken() && b.are_taken());
        let turn = a.try_take().unwrap();
        assert!(b.try_take().is_none());
        drop(turn);
        assert!(b.try_take().is_some());
    }

    #[test]
    fn without_a_directory_everyone_may_go() {
        let turns = Turns::of(Path::new("/nonexistent/unspool"));
        assert!(!turns.are_taken());
        let first = turns.try_take();
        assert!(first.is_some() && turns.try_take().is_some());
    }

    #[test]
    fn a_link_in_the_place_of_the_lock_is_not_followed() {
        let directory = Directory::new("link");
        let target = directory.0.join("precious");
        std::fs::write(&target, "x").unwrap();
        std::os::unix::fs::symlink(&target, directory.0.join(NAME)).unwrap();
        assert!(!Turns::of(&directory.0).are_taken());
        assert_eq!(std::fs::read(&target).unwrap(), b"x");
    }
}
