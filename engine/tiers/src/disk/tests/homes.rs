//! Whose directory it is, what is cleared away, and what is left alone.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use unspool_core::{CheckpointId, Failure};

use super::tag_of;
use super::{assert_holds, options, put};
use crate::disk::{Disk, DiskIo, names};
use crate::testing::Scratch;
use crate::tier::Tier;

fn open(scratch: &Scratch, durable: bool) -> Disk {
    Disk::open(options(&scratch.0, DiskIo::Auto, durable)).unwrap()
}

/// The name of a directory of an ephemeral tier.
fn directory() -> String {
    names::directory(names::Tag::new())
}

/// The names of the slots in a directory.
fn slots(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let found = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    found.filter(|name| names::is_like_slot(name)).collect()
}

/// What a killed process leaves: a directory with a lock that nobody holds and a slot.
fn dead_directory(scratch: &Scratch) -> PathBuf {
    let tag = names::Tag::new();
    let dir = scratch.0.join(names::directory(tag));
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("lock"), "process 1\n").unwrap();
    fs::write(dir.join(tag.slot(names::SlotFile(1))), vec![1; 100_000]).unwrap();
    dir
}

#[test]
fn an_ephemeral_tier_removes_its_directory_when_it_is_closed_or_dropped() {
    let scratch = Scratch::new();
    let disk = open(&scratch, false);
    put(&disk, 1, 5000).unwrap();
    assert_eq!(scratch.names().len(), 1);
    disk.close().unwrap();
    assert!(scratch.names().is_empty());
    disk.close().unwrap();
    drop(disk);
    drop(open(&scratch, false));
    assert!(scratch.names().is_empty());
}

#[test]
fn calls_on_a_closed_tier_fail() {
    let scratch = Scratch::new();
    let disk = open(&scratch, false);
    disk.close().unwrap();
    let error = put(&disk, 1, 10).unwrap_err();
    assert_eq!(error.kind(), Failure::Permanent);
    assert!(error.to_string().contains("the tier is closed"), "{error}");
    assert!(disk.delete(CheckpointId(1)).is_err() && disk.list().is_err() && disk.sync().is_err());
}

#[test]
fn directories_of_dead_processes_are_removed_and_it_is_said() {
    let scratch = Scratch::new();
    let (one, two) = (dead_directory(&scratch), dead_directory(&scratch));
    let disk = open(&scratch, false);
    assert!(!one.exists() && !two.exists());
    let notes = disk.describe().notes.join(" ");
    assert!(notes.contains("Removed what 2 dead processes left: "), "{notes}");
    assert!(notes.contains("KiB"), "{notes}");
}

#[test]
fn a_living_tier_next_to_it_is_left_alone() {
    let scratch = Scratch::new();
    let first = open(&scratch, false);
    put(&first, 1, 5000).unwrap();
    let second = open(&scratch, false);
    assert_holds(&first, 1, 5000);
    assert_eq!(scratch.names().len(), 2);
    drop(second);
    assert_holds(&first, 1, 5000);
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.0.join("unspool-results")).unwrap();
    fs::write(scratch.0.join("unspool-results/lock"), "").unwrap();
    let file = directory();
    fs::write(scratch.0.join(&file), "a file with the name of a directory").unwrap();
    let mixed = dead_directory(&scratch);
    fs::write(mixed.join("thesis.tex"), "precious").unwrap();
    drop(open(&scratch, false));
    assert!(scratch.0.join("unspool-results/lock").exists());
    assert!(scratch.0.join(&file).exists());
    assert_eq!(fs::read_to_string(mixed.join("thesis.tex")).unwrap(), "precious");
    assert!(slots(&mixed).is_empty());
}

#[test]
fn a_directory_that_was_only_just_made_is_not_mistaken_for_a_dead_one_with_content() {
    let scratch = Scratch::new();
    let fresh = scratch.0.join(directory());
    fs::create_dir(&fresh).unwrap();
    let foreign = scratch.0.join(directory());
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("data"), "x").unwrap();
    drop(open(&scratch, false));
    assert!(!fresh.exists(), "empty and without a lock: its owner makes another one");
    assert!(foreign.join("data").exists());
}

#[test]
fn a_removal_that_was_interrupted_is_finished_by_the_next_opener() {
    let scratch = Scratch::new();
    let dir = dead_directory(&scratch);
    fs::remove_file(dir.join(&slots(&dir)[0])).unwrap();
    drop(open(&scratch, false));
    assert!(scratch.names().is_empty());
}

#[test]
fn many_openers_at_once_do_not_disturb_each_other() {
    let scratch = Scratch::new();
    (0..50).for_each(|_| drop(dead_directory(&scratch)));
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let scratch = &scratch;
            scope.spawn(move || {
                for round in 0..15 {
                    let disk = open(scratch, false);
                    put(&disk, thread * 100 + round, 5000).unwrap();
                    assert_holds(&disk, thread * 100 + round, 5000);
                }
            });
        }
    });
    assert!(scratch.names().is_empty());
}

#[test]
fn a_durable_tier_is_opened_again_with_all_that_was_put() {
    let scratch = Scratch::new();
    let disk = open(&scratch, true);
    put(&disk, 1, 5000).unwrap();
    put(&disk, 2, 0).unwrap();
    put(&disk, 3, 4096).unwrap();
    disk.sync().unwrap();
    put(&disk, 4, 10_001).unwrap();
    disk.delete(CheckpointId(3)).unwrap();
    drop(disk);
    let again = open(&scratch, true);
    let listed: Vec<_> = again.list().unwrap().iter().map(|s| (s.id.0, s.bytes)).collect();
    assert_eq!(listed, [(1, 5000), (2, 0), (4, 10_001)]);
    assert_eq!(again.describe().used, 8192 + 12_288);
    assert_holds(&again, 1, 5000);
    assert_holds(&again, 4, 10_001);
    again.delete(CheckpointId(1)).unwrap();
    put(&again, 1, 6000).unwrap();
    assert_holds(&again, 1, 6000);
}

#[test]
fn a_durable_directory_has_one_user_at_a_time() {
    let scratch = Scratch::new();
    let first = open(&scratch, true);
    let error = Disk::open(options(&scratch.0, DiskIo::Auto, true)).unwrap_err();
    assert_eq!(error.kind(), Failure::Permanent);
    let owner = format!("in use by this process, process {}", std::process::id());
    assert!(error.to_string().contains(&owner), "{error}");
    drop(first);
    drop(open(&scratch, true));
}

#[test]
fn a_durable_tier_removes_unfinished_files_and_refuses_cut_ones() {
    let scratch = Scratch::new();
    drop(open(&scratch, true));
    let tag = tag_of(&scratch.0);
    let slot = scratch.0.join(tag.slot(names::SlotFile(7)));
    fs::write(&slot, "half of a frame").unwrap();
    fs::write(scratch.0.join("frame-0000000000000001-1388"), vec![0; 4096]).unwrap();
    fs::write(scratch.0.join("frame-0000000000000002-5"), "whole").unwrap();
    fs::write(scratch.0.join("frame-0000000000000002-3"), "two").unwrap();
    fs::write(scratch.0.join("notes.txt"), "of the user").unwrap();
    let disk = open(&scratch, true);
    let ids: Vec<_> = disk.list().unwrap().iter().map(|stored| stored.id.0).collect();
    assert_eq!(ids, [2]);
    let doubts = disk.take_recovery().doubts.join(" ");
    assert!(doubts.contains("frame-0000000000000001-1388 (4096 bytes) is cut off"), "{doubts}");
    let notes = disk.describe().notes.join(" ");
    assert!(notes.contains("another file is named for the same id"), "{notes}");
    drop(disk);
    assert!(!slot.exists());
    assert!(scratch.0.join("notes.txt").exists());
    assert!(scratch.0.join("frame-0000000000000001-1388").exists());
}

#[test]
fn a_new_directory_is_made_in_one_that_exists_and_a_mistyped_path_is_refused() {
    let scratch = Scratch::new();
    let dir = scratch.0.join("a");
    let disk = Disk::open(options(&dir, DiskIo::Auto, true)).unwrap();
    put(&disk, 1, 10).unwrap();
    disk.sync().unwrap();
    assert!(dir.join("frame-0000000000000001-a").exists());
    for durable in [false, true] {
        let dir = scratch.0.join("mistyped/run");
        let error = Disk::open(options(&dir, DiskIo::Auto, durable)).unwrap_err();
        assert_eq!(error.kind(), Failure::Permanent, "{error}");
        let parent = scratch.0.join("mistyped").display().to_string();
        assert!(error.to_string().contains(&format!("{parent} does not exist")), "{error}");
        assert!(error.advice().contains("only the last part"), "{error}");
        assert!(!scratch.0.join("mistyped").exists());
    }
}

#[test]
fn a_place_that_cannot_be_a_directory_is_refused_with_the_reason() {
    let scratch = Scratch::new();
    let file = scratch.0.join("file");
    File::create(&file).unwrap();
    let long = scratch.0.join("x".repeat(300));
    for durable in [false, true] {
        for (dir, reason) in [
            (file.clone(), "in the way"),
            (file.join("below"), "not a directory"),
            (long.clone(), "the path is too long"),
        ] {
            let error = Disk::open(options(&dir, DiskIo::Auto, durable)).unwrap_err();
            assert_eq!(error.kind(), Failure::Permanent, "{error}");
            assert!(error.to_string().contains(reason), "{error}");
            assert!(error.location().contains(dir.to_str().unwrap()), "{error}");
        }
    }
}

#[test]
fn a_directory_that_is_removed_under_a_tier_is_an_error_that_names_it() {
    let scratch = Scratch::new();
    let disk = open(&scratch, false);
    fs::remove_dir_all(&disk.dir).unwrap();
    let error = put(&disk, 1, 10).unwrap_err();
    assert_eq!(error.kind(), Failure::Permanent, "{error}");
    assert!(error.to_string().contains("Something else removed it"), "{error}");
    assert!(disk.close().is_err());
}
