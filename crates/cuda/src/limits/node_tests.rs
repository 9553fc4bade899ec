//! The files of processes: what they say to others, and what becomes of those of killed ones.

use std::os::unix::fs::symlink;
use std::sync::atomic::Ordering;

use super::*;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        Directory(tempfile::Builder::new().prefix(name).tempdir().unwrap().keep())
    }

    fn files(&self) -> usize {
        std::fs::read_dir(&self.0).unwrap().count()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// No process has this number: files of this one count as those of another.
const NOBODY: u32 = u32::MAX;

#[test]
fn what_living_processes_say_is_added_up() {
    let directory = Directory::new("living");
    for (group, promised, written) in [(7, 100, 1), (7, 20, 2), (8, 3, 4)] {
        let (record, path) = publish(&directory.0, group).unwrap();
        assert!(path.exists() && directory.files() > 0);
        record.promised.store(promised, Ordering::Relaxed);
        record.written.store(written, Ordering::Relaxed);
    }
    let found = others_in(&directory.0, 7, NOBODY);
    assert_eq!(found, Others { promised: 123, promised_in_group: 120, written: 7 });
    assert_eq!(others_in(&directory.0, 0, NOBODY).promised_in_group, 0, "without a group");
    let own = others_in(&directory.0, 7, std::process::id());
    assert_eq!(own, Others::default(), "its own file does not count");
}

#[test]
fn what_a_killed_process_has_left_is_removed_and_does_not_count() {
    let directory = Directory::new("killed");
    let words = [MAGIC, 0, 5 << 30, 0].map(u64::to_ne_bytes).concat();
    std::fs::write(directory.0.join(format!("{PREFIX}1-0")), words).unwrap();
    std::fs::write(directory.0.join(format!("{PREFIX}1-1{NEW}")), "").unwrap();
    std::fs::write(directory.0.join("other"), "").unwrap();
    assert_eq!(others_in(&directory.0, 0, NOBODY), Others::default());
    assert_eq!(directory.files(), 2, "the one that is being made, and what is not ours");
}

#[test]
fn foreign_files_links_and_pipes_are_neither_followed_nor_believed() {
    let directory = Directory::new("foreign");
    let name = |index: u32| directory.0.join(format!("{PREFIX}1-{index}"));
    symlink("/etc/passwd", name(0)).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        name(1),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    std::fs::create_dir(name(2)).unwrap();
    let short = File::create(name(3)).unwrap();
    let mut junk = File::create(name(4)).unwrap();
    io::Write::write_all(&mut junk, &[9; 64]).unwrap();
    flock(&short, FlockOperation::NonBlockingLockExclusive).unwrap();
    flock(&junk, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_eq!(others_in(&directory.0, 0, NOBODY), Others::default());
    assert_eq!(directory.files(), 5);
}

#[test]
fn a_directory_that_is_not_there_has_nobody_in_it() {
    let nowhere = Path::new("/nonexistent/unspool");
    assert!(publish(nowhere, 0).is_err());
    assert_eq!(others_in(nowhere, 0, NOBODY), Others::default());
}
