//! A durable directory that is opened for reading: nothing in it is changed, whoever writes it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use unspool_core::{CheckpointId, Failure};

use super::{assert_holds, get, options, put};
use crate::disk::names::MANIFEST;
use crate::disk::{Disk, DiskIo, DiskMode, DiskOptions};
use crate::testing::Scratch;
use crate::tier::Tier;

fn writer(dir: &Path) -> Disk {
    Disk::open(options(dir, DiskIo::Auto, true)).unwrap()
}

fn reader(dir: &Path) -> Disk {
    Disk::open(DiskOptions { mode: DiskMode::ReadOnly, ..DiskOptions::new(dir) }).unwrap()
}

fn ids(disk: &Disk) -> Vec<u64> {
    disk.list().unwrap().iter().map(|stored| stored.id.0).collect()
}

/// Names and contents of the files in a directory.
fn contents(scratch: &Scratch) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| (name.clone(), fs::read(scratch.0.join(name)).unwrap());
    scratch.names().into_iter().map(read).collect()
}

#[test]
fn a_directory_is_read_while_its_writer_goes_on() {
    let scratch = Scratch::new();
    let writer = writer(&scratch.0);
    (1..=3).for_each(|id| put(&writer, id, 5000 + id as usize).unwrap());
    writer.sync().unwrap();
    put(&writer, 4, 5000).unwrap();
    let reader = reader(&scratch.0);
    assert_eq!(ids(&reader), [1, 2, 3], "what is durable");
    assert_holds(&reader, 1, 5001);
    put(&writer, 5, 5000).unwrap();
    writer.sync().unwrap();
    assert_holds(&writer, 4, 5000);
    writer.delete(CheckpointId(2)).unwrap();
    assert_eq!(get(&reader, 2, 5002).unwrap_err().kind(), Failure::Missing);
    assert_holds(&reader, 3, 5003);
    drop(reader);
    assert_holds(&writer, 3, 5003);
}

#[test]
fn a_file_that_got_another_frame_while_it_was_read_is_not_believed() {
    let scratch = Scratch::new();
    let writer = writer(&scratch.0);
    put(&writer, 1, 5000).unwrap();
    writer.sync().unwrap();
    let reader = reader(&scratch.0);
    let path = scratch.0.join("frame-0000000000000001-1388");
    let file = fs::File::open(&path).unwrap();
    assert!(reader.check_name(&path, &file).is_ok());
    writer.delete(CheckpointId(1)).unwrap();
    assert!(reader.check_name(&path, &file).is_err());
    fs::write(&path, "another file of that name").unwrap();
    assert!(reader.check_name(&path, &file).is_err());
}

#[test]
fn a_manifest_that_cannot_be_read_is_no_reason_not_to_read_the_frames() {
    for content in ["of somebody else", ""] {
        let scratch = Scratch::new();
        let first = writer(&scratch.0);
        put(&first, 1, 5000).unwrap();
        drop(first);
        let path = scratch.0.join(MANIFEST);
        fs::remove_file(&path).unwrap();
        match content {
            "" => fs::create_dir(&path).unwrap(),
            content => fs::write(&path, content).unwrap(),
        }
        let reader = reader(&scratch.0);
        assert_holds(&reader, 1, 5000);
        let doubts = reader.take_recovery().doubts.join(" ");
        assert!(doubts.contains("There was no unspool.manifest in"), "{doubts}");
    }
}

#[test]
fn nothing_is_written_locked_or_removed() {
    let scratch = Scratch::new();
    let first = writer(&scratch.0);
    (1..=2).for_each(|id| put(&first, id, 5000).unwrap());
    drop(first);
    let before = contents(&scratch);
    let reader = reader(&scratch.0);
    let error = put(&reader, 9, 10).unwrap_err();
    assert_eq!(error.kind(), Failure::Permanent);
    assert!(error.to_string().contains("was opened for reading"), "{error}");
    reader.delete(CheckpointId(1)).unwrap();
    assert_eq!(ids(&reader), [2], "it is forgotten here alone");
    reader.sync().unwrap();
    // Nothing is locked.
    drop(writer(&scratch.0));
    reader.close().unwrap();
    let mut after = contents(&scratch);
    let (mut names, mut expected) = (Vec::new(), Vec::new());
    after.iter_mut().for_each(|(name, _)| names.push(name.clone()));
    before.iter().for_each(|(name, _)| expected.push(name.clone()));
    assert_eq!(names, expected);
    assert!(after == before);
}

#[test]
fn what_is_not_there_is_not_created_for_reading() {
    let scratch = Scratch::new();
    let dir = scratch.0.join("mistyped");
    let options = DiskOptions { mode: DiskMode::ReadOnly, ..DiskOptions::new(&dir) };
    let error = Disk::open(options).unwrap_err();
    assert!(error.to_string().contains("there is no such directory"), "{error}");
    assert!(!dir.exists());
    assert!(ids(&reader(&scratch.0)).is_empty(), "an empty directory holds nothing");
    assert!(scratch.names().is_empty());
}

#[test]
fn the_files_of_a_durable_tier_have_the_permissions_that_were_asked_for() {
    for permissions in [0o600, 0o640, 0o664] {
        let scratch = Scratch::new();
        let durable = options(&scratch.0, DiskIo::Auto, true);
        let disk = Disk::open(DiskOptions { permissions, ..durable }).unwrap();
        put(&disk, 1, 5000).unwrap();
        disk.close().unwrap();
        assert_eq!(scratch.names().len(), 3, "a lock, a manifest and a frame");
        for name in scratch.names() {
            let found = fs::metadata(scratch.0.join(&name)).unwrap().permissions();
            assert_eq!(found.mode() & 0o777, permissions, "{name}");
        }
    }
}
