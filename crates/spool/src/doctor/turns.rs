//! The lock by which processes of one node take turns to pin memory.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::system::System;

/// The lock of the node's turns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turns {
    /// Where it is.
    pub path: PathBuf,
    /// Whether a process has made it already; the first one that pins memory does.
    pub exists: bool,
    /// The process that has its turn at this moment, as far as the system tells.
    pub holder: Option<u32>,
    /// Why this process cannot use it.
    pub problem: Option<String>,
}

pub(super) fn look(system: &System) -> Turns {
    at(system, &unspool_cuda::turn_lock())
}

fn at(system: &System, path: &Path) -> Turns {
    let metadata = fs::symlink_metadata(path);
    let (exists, problem) = match &metadata {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => (false, None),
        Err(cause) => (true, Some(cause.to_string())),
        // Opening it is refused then: links in shared directories may be traps.
        Ok(found) if found.is_symlink() => (true, Some("it is a symbolic link".to_owned())),
        Ok(_) => (true, File::open(path).err().map(|cause| cause.to_string())),
    };
    let holder = metadata.ok().and_then(|found| holder(system, &found));
    Turns { path: path.to_owned(), exists, holder, problem }
}

/// The process with a lock on this file, by `/proc/locks`, which names those of other containers
/// not at all. Asking does not take the lock.
pub(super) fn holder(system: &System, file: &fs::Metadata) -> Option<u32> {
    let wanted = place_of_inode(file.dev(), file.ino());
    let locks = system.text("proc/locks")?;
    locks.lines().find_map(|line| {
        // `1: FLOCK  ADVISORY  WRITE 812 00:1a:3 0 EOF`; who waits has `->` behind the number.
        let fields: Vec<&str> = line.split_whitespace().collect();
        let held = *fields.get(1)? == "FLOCK" && *fields.get(5)? == wanted;
        held.then(|| fields[4].parse().ok())?
    })
}

/// Device and inode as `/proc/locks` writes them.
fn place_of_inode(device: u64, inode: u64) -> String {
    format!("{:02x}:{:02x}:{inode}", rustix::fs::major(device), rustix::fs::minor(device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::Fake;

    #[test]
    fn a_lock_that_nobody_has_made_yet_is_no_problem() {
        let fake = Fake::new();
        let turns = at(&fake.system(), &fake.path("dev/shm/some.lock"));
        assert!(!turns.exists && turns.problem.is_none() && turns.holder.is_none());
    }

    #[test]
    fn the_process_that_holds_the_lock_is_named_and_one_that_waits_is_not() {
        let fake = Fake::new();
        fake.write("some.lock", "");
        let path = fake.path("some.lock");
        let found = fs::metadata(&path).unwrap();
        let place = place_of_inode(found.dev(), found.ino());
        let waiting = format!("1: -> FLOCK  ADVISORY  WRITE 5 {place} 0 EOF\n");
        fake.write("proc/locks", &waiting);
        assert_eq!(at(&fake.system(), &path).holder, None);
        let line = format!("{waiting}2: FLOCK  ADVISORY  WRITE 812 {place} 0 EOF\n3: POSIX\n");
        fake.write("proc/locks", &line);
        assert_eq!(at(&fake.system(), &path).holder, Some(812));
    }

    #[test]
    fn this_process_is_found_as_the_holder_of_its_own_lock() {
        let fake = Fake::new();
        fake.write("some.lock", "");
        let file = File::open(fake.path("some.lock")).unwrap();
        file.lock().unwrap();
        let holder = holder(&System::here(), &file.metadata().unwrap());
        // Some file systems number their devices in another way there; then nobody is named.
        assert!(holder.is_none_or(|pid| pid == std::process::id()), "{holder:?}");
    }

    #[test]
    fn a_link_in_its_place_is_a_problem() {
        let fake = Fake::new();
        std::os::unix::fs::symlink("/etc/passwd", fake.path("some.lock")).unwrap();
        let turns = at(&fake.system(), &fake.path("some.lock"));
        assert!(turns.problem.is_some_and(|text| text.contains("symbolic link")));
    }
}
