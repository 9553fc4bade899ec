//! Durable frames that are missing when the directory is opened again are noticed, and no others
//! are said to be.

use std::cell::Cell;
use std::fs::{self, OpenOptions};
use std::sync::Arc;

use rustix::io::Errno;
use unspool_core::{CheckpointId, Failure};

use super::medium::{Call, TestMedium};
use super::{assert_holds, open_on, options, put, tag_of};
use crate::disk::manifest::Listing;
use crate::disk::medium::System;
use crate::disk::names::MANIFEST;
use crate::disk::recovery::{Visitor, recover};
use crate::disk::table::FrameTable;
use crate::disk::{Disk, DiskIo, DiskMode, DiskOptions, Recovery};
use crate::testing::{Scratch, bytes};
use crate::tier::Tier;

fn open(scratch: &Scratch) -> Disk {
    Disk::open(options(&scratch.0, DiskIo::Buffered, true)).unwrap()
}

fn ids(disk: &Disk) -> Vec<u64> {
    disk.list().unwrap().iter().map(|stored| stored.id.0).collect()
}

/// A directory with the durable frames 1 to 3.
fn three() -> Scratch {
    let scratch = Scratch::new();
    let disk = open(&scratch);
    (1..=3).for_each(|id| put(&disk, id, 5000).unwrap());
    disk.close().unwrap();
    scratch
}

/// What is said to be lost: ids, and whether it is missing altogether.
fn lost(recovery: &Recovery) -> Vec<(u64, Failure)> {
    recovery.lost.iter().map(|lost| (lost.id.0, lost.failure)).collect()
}

const SECOND: &str = "frame-0000000000000002-1388";

#[test]
fn a_frame_that_is_missing_or_cut_off_is_named_with_its_first_bytes() {
    let scratch = three();
    let intact = open(&scratch);
    let recovery = intact.take_recovery();
    assert!(recovery.lost.is_empty());
    assert_eq!(recovery.starts[&CheckpointId(2)], bytes(2, 5000)[..64]);
    drop(intact);
    OpenOptions::new().write(true).open(scratch.0.join(SECOND)).unwrap().set_len(4096).unwrap();
    let disk = open(&scratch);
    let recovery = disk.take_recovery();
    assert_eq!(lost(&recovery), [(2, Failure::Corrupt)]);
    assert!(recovery.lost[0].what.contains("has 4096 of 5000 bytes"), "{recovery:?}");
    drop(disk);
    fs::remove_file(scratch.0.join(SECOND)).unwrap();
    let disk = open(&scratch);
    let recovery = disk.take_recovery();
    assert_eq!(lost(&recovery), [(2, Failure::Missing)]);
    assert_eq!(recovery.lost[0].start, bytes(2, 5000)[..64]);
    assert_eq!(recovery.lost[0].file, scratch.0.join(SECOND));
    assert_eq!(ids(&disk), [1, 3]);
    assert_holds(&disk, 3, 5000);
}

#[test]
fn a_frame_that_was_deleted_is_not_missing() {
    let scratch = three();
    let disk = open(&scratch);
    disk.delete(CheckpointId(2)).unwrap();
    // What a process leaves that is killed now.
    let killed = Scratch::new();
    for name in scratch.names() {
        fs::copy(scratch.0.join(&name), killed.0.join(&name)).unwrap();
    }
    drop(disk);
    for scratch in [&killed, &scratch] {
        let disk = open(scratch);
        assert_eq!((ids(&disk), lost(&disk.take_recovery())), (vec![1, 3], vec![]));
    }
}

#[test]
fn a_removal_that_cannot_be_written_down_is_made_up_for_by_the_next_sync() {
    let scratch = Scratch::new();
    let medium = Arc::new(TestMedium::default());
    let disk = open_on(options(&scratch.0, DiskIo::Buffered, true), &medium);
    (1..=3).for_each(|id| put(&disk, id, 5000).unwrap());
    disk.sync().unwrap();
    medium.fail_every(Call::Write, Errno::NOSPC.raw_os_error());
    disk.delete(CheckpointId(2)).unwrap();
    medium.heal();
    disk.sync().unwrap();
    drop(disk);
    assert!(open(&scratch).take_recovery().lost.is_empty());
}

#[test]
fn a_manifest_that_cannot_be_written_or_synced_is_an_error_until_it_can() {
    for call in [Call::Write, Call::SyncFile] {
        let scratch = Scratch::new();
        let medium = Arc::new(TestMedium::default());
        let disk = open_on(options(&scratch.0, DiskIo::Buffered, true), &medium);
        put(&disk, 1, 5000).unwrap();
        // A write of the manifest comes after the sync of the directory, its sync after that.
        let calls = |disk: &Disk| {
            let before = medium.calls().len();
            disk.sync().unwrap();
            medium.calls()[before..].to_vec()
        };
        let sequence = calls(&disk);
        let place = sequence.iter().rposition(|&done| done == call).unwrap();
        put(&disk, 2, 5000).unwrap();
        medium.fail_after(place, Errno::IO.raw_os_error());
        let error = disk.sync().unwrap_err();
        assert!(error.location().ends_with(MANIFEST), "{error}");
        disk.sync().unwrap();
        drop(disk);
        fs::remove_file(scratch.0.join(SECOND)).unwrap();
        assert_eq!(lost(&open(&scratch).take_recovery()), [(2, Failure::Missing)]);
    }
}

#[test]
fn a_directory_without_a_manifest_gets_one_and_says_what_was_not_noticed() {
    let scratch = three();
    fs::remove_file(scratch.0.join(MANIFEST)).unwrap();
    fs::remove_file(scratch.0.join(SECOND)).unwrap();
    let disk = open(&scratch);
    let recovery = disk.take_recovery();
    assert!(recovery.lost.is_empty());
    assert!(recovery.doubts[0].contains("There was no unspool.manifest"), "{recovery:?}");
    assert_eq!(ids(&disk), [1, 3]);
    drop(disk);
    fs::remove_file(scratch.0.join("frame-0000000000000003-1388")).unwrap();
    let recovery = open(&scratch).take_recovery();
    assert_eq!(lost(&recovery), [(3, Failure::Missing)]);
    assert_eq!(recovery.lost[0].start, bytes(3, 5000)[..64], "read from its file");
}

#[test]
fn a_damaged_record_is_said_and_costs_nothing_but_its_own_frame() {
    let scratch = three();
    let path = scratch.0.join(MANIFEST);
    let mut manifest = fs::read(&path).unwrap();
    manifest[2 * 96 + 30] ^= 1;
    fs::write(&path, manifest).unwrap();
    fs::remove_file(scratch.0.join(SECOND)).unwrap();
    fs::remove_file(scratch.0.join("frame-0000000000000003-1388")).unwrap();
    let disk = open(&scratch);
    let recovery = disk.take_recovery();
    assert_eq!(lost(&recovery), [(3, Failure::Missing)]);
    assert!(recovery.doubts[0].contains("1 records of unspool.manifest in"), "{recovery:?}");
    assert_eq!(ids(&disk), [1]);
}

#[test]
fn a_file_of_the_same_id_does_not_stand_for_one_that_is_lost() {
    let scratch = three();
    fs::rename(scratch.0.join(SECOND), scratch.0.join("frame-0000000000000002-10")).unwrap();
    let disk = open(&scratch);
    assert_eq!(lost(&disk.take_recovery()), [(2, Failure::Missing)]);
    assert_eq!(ids(&disk), [1, 3]);
    let notes = disk.describe().notes.join(" ");
    assert!(notes.contains("frame-0000000000000002-10 is left alone"), "{notes}");
}

#[test]
fn a_frame_whose_deletion_failed_is_listed_again() {
    let scratch = Scratch::new();
    let medium = Arc::new(TestMedium::default());
    let disk = open_on(options(&scratch.0, DiskIo::Buffered, true), &medium);
    (1..=2).for_each(|id| put(&disk, id, 5000).unwrap());
    disk.sync().unwrap();
    medium.fail_every(Call::Rename, Errno::IO.raw_os_error());
    assert!(disk.delete(CheckpointId(2)).is_err());
    medium.heal();
    disk.close().unwrap();
    fs::remove_file(scratch.0.join(SECOND)).unwrap();
    let recovery = open(&scratch).take_recovery();
    assert_eq!(lost(&recovery), [(2, Failure::Missing)]);
    assert_eq!(recovery.lost[0].start, bytes(2, 5000)[..64]);
}

#[test]
fn a_reader_does_not_miss_what_a_writer_removes_meanwhile() {
    let scratch = three();
    fs::remove_file(scratch.0.join(SECOND)).unwrap();
    let listed = || Listing::read(&scratch.0, &System).unwrap().unwrap();
    for (removed, expected) in [(false, vec![(2, Failure::Missing)]), (true, vec![])] {
        let looks = Cell::new(0);
        let listing = || {
            looks.set(looks.get() + 1);
            let mut listing = listed();
            if removed && looks.get() > 1 {
                listing.frames.remove(&CheckpointId(2));
            }
            listing
        };
        let mut table = FrameTable::new(u64::MAX, 0);
        let visitor = (Visitor::Reader, tag_of(&scratch.0));
        let found = recover(&scratch.0, visitor, &System, &mut table, listing);
        assert_eq!(lost(&found.unwrap().0), expected);
        assert_eq!(table.list().len(), 2);
    }
}

#[test]
fn a_reader_notices_the_same_and_writes_nothing() {
    let scratch = three();
    fs::remove_file(scratch.0.join(SECOND)).unwrap();
    let before = scratch.names();
    let manifest = fs::read(scratch.0.join(MANIFEST)).unwrap();
    let options = DiskOptions { mode: DiskMode::ReadOnly, ..DiskOptions::new(&scratch.0) };
    let disk = Disk::open(options).unwrap();
    assert_eq!(lost(&disk.take_recovery()), [(2, Failure::Missing)]);
    disk.close().unwrap();
    assert_eq!(scratch.names(), before);
    assert_eq!(fs::read(scratch.0.join(MANIFEST)).unwrap(), manifest);
}
