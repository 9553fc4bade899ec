//! Files in the directory that are not ours, or are not files: nothing waits for them, follows
//! them, changes them or counts them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use unspool_core::{CheckpointId, Failure};

use super::{assert_holds, get, options, put};
use crate::disk::{Disk, DiskIo, DiskOptions, names};
use crate::error::TierError;
use crate::testing::Scratch;
use crate::tier::Tier;

fn try_open(dir: &Path) -> Result<Disk, TierError> {
    Disk::open(options(dir, DiskIo::Auto, true))
}

fn open(dir: &Path) -> Disk {
    try_open(dir).unwrap()
}

/// A pipe: opening it waits for somebody at its other end, unless that is ruled out.
fn pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
}

fn ids(disk: &Disk) -> Vec<u64> {
    disk.list().unwrap().iter().map(|stored| stored.id.0).collect()
}

#[test]
fn pipes_and_links_with_our_names_are_neither_waited_for_nor_followed() {
    let link = |path: &Path| symlink("precious", path).unwrap();
    let directory = |path: &Path| fs::create_dir(path).unwrap();
    for intrude in [pipe as fn(&Path), link, directory] {
        for name in [names::DURABLE_LOCK, names::MANIFEST] {
            let scratch = Scratch::new();
            fs::write(scratch.0.join("precious"), "thesis").unwrap();
            intrude(&scratch.0.join(name));
            let error = try_open(&scratch.0).unwrap_err();
            assert!(error.location().ends_with(name), "{error}");
            assert!(error.to_string().contains("it is not a regular file"), "{error}");
            assert!(!error.advice().is_empty(), "{error}");
            assert_eq!(fs::read_to_string(scratch.0.join("precious")).unwrap(), "thesis");
        }
        let scratch = Scratch::new();
        fs::write(scratch.0.join("precious"), "thesis").unwrap();
        intrude(&scratch.0.join("frame-0000000000000001-6"));
        let disk = open(&scratch.0);
        assert!(ids(&disk).is_empty());
        let notes = disk.describe().notes.join(" ");
        assert!(notes.contains("frame-0000000000000001-6 is not a regular file"), "{notes}");
        drop(disk);
        assert!(fs::symlink_metadata(scratch.0.join("frame-0000000000000001-6")).is_ok());
    }
}

#[test]
fn a_pipe_in_place_of_a_frame_is_an_error_of_its_reader() {
    let scratch = Scratch::new();
    let disk = open(&scratch.0);
    put(&disk, 1, 5000).unwrap();
    disk.sync().unwrap();
    let file = scratch.0.join("frame-0000000000000001-1388");
    fs::remove_file(&file).unwrap();
    pipe(&file);
    let error = get(&disk, 1, 5000).unwrap_err();
    assert_eq!(error.kind(), Failure::Corrupt, "{error}");
    assert!(error.to_string().contains("not a regular file"), "{error}");
}

#[test]
fn a_pipe_in_place_of_the_lock_of_an_ephemeral_tier_is_left_alone() {
    let scratch = Scratch::new();
    let dir = scratch.0.join(names::directory(names::Tag::new()));
    fs::create_dir(&dir).unwrap();
    pipe(&dir.join(names::LOCK));
    drop(Disk::open(options(&scratch.0, DiskIo::Auto, false)).unwrap());
    assert!(fs::symlink_metadata(dir.join(names::LOCK)).is_ok());
}

#[test]
fn foreign_files_with_our_names_are_never_changed_or_counted() {
    let scratch = Scratch::new();
    let foreign = [
        ("slot-1", "not a slot"),
        ("slot-probe", "not a probe"),
        ("slot-0123456789abcdef-1", "of another history"),
        ("frame-ffffffffffffffff-0", ""),
        ("frame-8000000000000000-2", "no"),
        ("lock", "mine"),
    ];
    for (name, content) in foreign {
        fs::write(scratch.0.join(name), content).unwrap();
    }
    for _ in 0..2 {
        let disk = open(&scratch.0);
        assert!(ids(&disk).is_empty());
        assert_eq!(disk.describe().used, 0);
        let notes = disk.describe().notes.join(" ");
        assert!(notes.contains("3 files are named like unfinished frames"), "{notes}");
        put(&disk, 1, 5000).unwrap();
        disk.sync().unwrap();
        disk.delete(CheckpointId(1)).unwrap();
    }
    for (name, content) in foreign {
        assert_eq!(fs::read_to_string(scratch.0.join(name)).unwrap(), content, "{name}");
    }
}

#[test]
fn a_foreign_file_in_place_of_the_manifest_is_a_reason_not_to_open() {
    let scratch = Scratch::new();
    let path = scratch.0.join(names::MANIFEST);
    fs::write(&path, "energies of the run\n").unwrap();
    let error = try_open(&scratch.0).unwrap_err();
    assert_eq!(error.kind(), Failure::Permanent, "{error}");
    assert!(error.location().ends_with(names::MANIFEST), "{error}");
    assert!(error.advice().contains("move that file away"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "energies of the run\n");
}

#[test]
fn a_foreign_or_damaged_lock_is_locked_and_left_as_it_is() {
    for text in ["energies of the run\n", "qrocess 17\n", "process seventeen\n"] {
        let scratch = Scratch::new();
        let path = scratch.0.join(names::DURABLE_LOCK);
        fs::write(&path, text).unwrap();
        let disk = open(&scratch.0);
        let notes = disk.describe().notes.join(" ");
        assert!(notes.contains("it is locked, and left as it is"), "{notes}");
        let error = try_open(&scratch.0).unwrap_err();
        assert!(error.to_string().contains("in use by another process"), "{error}");
        put(&disk, 1, 5000).unwrap();
        disk.close().unwrap();
        assert_holds(&open(&scratch.0), 1, 5000);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn a_directory_whose_lock_is_not_ours_is_not_one_of_a_dead_process() {
    let scratch = Scratch::new();
    let tag = names::Tag::new();
    let slot = tag.slot(names::SlotFile(1));
    for lock in ["pid 17", "", "process of elimination"] {
        let dir = scratch.0.join(names::directory(tag));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("lock"), lock).unwrap();
        fs::write(dir.join(&slot), "precious").unwrap();
        drop(Disk::open(options(&scratch.0, DiskIo::Auto, false)).unwrap());
        assert_eq!(fs::read_to_string(dir.join(&slot)).unwrap(), "precious", "{lock:?}");
        fs::remove_dir_all(&dir).unwrap();
    }
}

#[test]
fn a_file_that_stands_where_a_frame_is_to_be_named_is_not_overwritten() {
    let scratch = Scratch::new();
    let disk = open(&scratch.0);
    put(&disk, 1, 5000).unwrap();
    let path = scratch.0.join("frame-0000000000000001-1388");
    fs::write(&path, "precious").unwrap();
    let error = disk.sync().unwrap_err();
    assert!(error.location().ends_with("frame-0000000000000001-1388"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    fs::remove_file(&path).unwrap();
    disk.sync().unwrap();
    assert_holds(&disk, 1, 5000);
}

#[test]
fn a_file_that_is_disowned_is_left_where_it_is_and_takes_no_room() {
    let scratch = Scratch::new();
    let path = scratch.0.join("frame-0000000000000005-4");
    fs::write(&path, "mine").unwrap();
    let disk = open(&scratch.0);
    assert_eq!(ids(&disk), [5]);
    assert_eq!(disk.disown(CheckpointId(5)), Some(path.clone()));
    assert_eq!((ids(&disk).len(), disk.describe().used), (0, 0));
    disk.close().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    assert!(open(&scratch.0).take_recovery().starts.is_empty(), "it is not listed");
}

/// Descriptors of this process that name something under `dir`.
fn open_files(dir: &Path) -> usize {
    let entries = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let named = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    named.filter(|path| path.starts_with(dir)).count()
}

#[test]
fn a_closed_tier_has_no_file_open() {
    for (durable, packed_up_to) in [(false, 0), (true, 0), (false, 65_535), (true, 65_535)] {
        let scratch = Scratch::new();
        let options = options(&scratch.0, DiskIo::Auto, durable);
        let disk = Disk::open(DiskOptions { packed_up_to, ..options }).unwrap();
        put(&disk, 1, 5000).unwrap();
        disk.sync().unwrap();
        assert_holds(&disk, 1, 5000);
        assert!(open_files(&scratch.0) > 0);
        disk.close().unwrap();
        assert_eq!(open_files(&scratch.0), 0);
    }
}
