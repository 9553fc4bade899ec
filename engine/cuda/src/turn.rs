//! Turns of the processes of a node to register memory for one GPU: concurrent registrations slow
//! each other down far more than one after the other would (Maurya et al., HiPC 2022, section IV-A,
//! "Serialized registration"). Registrations for different GPUs do not.
//!
//! The turn is a file lock, so it ends with its process, however that ends. It is taken for one
//! chunk at a time, and the gaps of one process (see [`crate::Pace`]) are the turns of the others.
//! It only saves time, so it never blocks a registration for good: after a limit, or when the file
//! cannot be used, registration goes on without it.
//!
//! The file lies in a folder that only this user can write, below one that everybody can. What
//! others may have put in the place of either is recognised, and neither opened nor waited for.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::fs::{flock, fstat, mkdir, open as open_path, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// The name of the file with the lock of `whose`.
fn name(whose: &str) -> String {
    format!("{whose}.lock")
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
    /// Turns by the lock file of `whose` in this user's folder in `directory`, which all processes
    /// of the node see. Without turns if that is not a file of this user, or cannot be opened.
    pub(crate) fn of(directory: &Path, whose: &str) -> Turns {
        Turns { file: open(&folder_in(directory), &name(whose)).ok() }
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
            Err(Errno::WOULDBLOCK) => None,
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

/// The folder of this user in `directory`.
fn folder_in(directory: &Path) -> PathBuf {
    directory.join(format!("unspool-{}", geteuid().as_raw()))
}

/// The lock files of this node's GPUs, as a pattern of the shell, for reports of who can use them.
#[must_use]
pub fn turn_locks() -> PathBuf {
    folder_in(&directory_of_the_node()).join(name(&of_gpu("*")))
}

/// Opens a file of this user, made if it is missing, in a folder that is made so as well. Neither
/// is followed if it is a link, and opening a pipe does not wait for its other end.
fn open(folder: &Path, name: &str) -> io::Result<File> {
    let folder = own_folder(folder)?;
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = openat(&folder, name, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
    check(&fstat(&file)?, FileType::RegularFile)?;
    Ok(File::from(file))
}

/// The folder, if nobody else can write to it.
fn own_folder(path: &Path) -> io::Result<OwnedFd> {
    match mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(cause) => return Err(cause.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let folder = open_path(path, flags | OFlags::CLOEXEC, Mode::empty())?;
    check(&fstat(folder.as_fd())?, FileType::Directory)?;
    Ok(folder)
}

/// Refuses what is not of this kind, belongs to another user, or can be written by others.
fn check(found: &Stat, kind: FileType) -> io::Result<()> {
    let is_own = found.st_uid == geteuid().as_raw();
    let is_private = !Mode::from_raw_mode(found.st_mode).intersects(Mode::WGRP | Mode::WOTH);
    if FileType::from_raw_mode(found.st_mode) == kind && is_own && is_private {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use rustix::fs::{CWD, mknodat};

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

    /// Something else at `place`, which is not touched and does not hold anybody up.
    fn is_left_alone(name: &str, make: impl Fn(&Path), in_folder: bool) {
        let directory = Directory::new(name);
        let folder = folder_in(&directory.0);
        let place = if in_folder { folder.join(super::name("x")) } else { folder.clone() };
        if in_folder {
            mkdir(&folder, Mode::RWXU).unwrap();
        }
        make(&place);
        let before = std::fs::symlink_metadata(&place).unwrap();
        assert!(!Turns::of(&directory.0, "x").are_taken(), "{name}");
        assert!(Turns::of(&directory.0, "x").try_take().is_some(), "{name}");
        let after = std::fs::symlink_metadata(&place).unwrap();
        assert_eq!(before.modified().unwrap(), after.modified().unwrap(), "{name}");
    }

    #[test]
    fn links_pipes_and_folders_of_others_are_neither_followed_nor_waited_for() {
        let fifo = |place: &Path| mknodat(CWD, place, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let link = |place: &Path| {
            let target = place.with_extension("target");
            std::fs::create_dir(&target).unwrap();
            std::os::unix::fs::symlink(&target, place).unwrap();
        };
        let open_to_all = |place: &Path| {
            std::fs::create_dir(place).unwrap();
            std::fs::set_permissions(place, Permissions::from_mode(0o777)).unwrap();
        };
        for in_folder in [false, true] {
            is_left_alone("fifo", fifo, in_folder);
            is_left_alone("link", link, in_folder);
            is_left_alone("folder", open_to_all, in_folder);
        }
        is_left_alone("file", |place| std::fs::write(place, "x").unwrap(), false);
    }

    #[test]
    fn the_folder_and_the_file_are_private() {
        let directory = Directory::new("private");
        assert!(Turns::of(&directory.0, "x").are_taken());
        let folder = folder_in(&directory.0);
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join(name("x")))), (0o700, 0o600));
    }
}
