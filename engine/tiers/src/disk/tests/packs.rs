//! Small frames in common files: how little they take, what damage costs, and how room comes back.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::io::Errno;
use unspool_core::{CheckpointId, Failure};

use super::medium::{Call, TestMedium};
use super::{assert_holds, get, open_on, packed, put, tag_of};
use crate::disk::manifest::Listing;
use crate::disk::medium::System;
use crate::disk::names::{MANIFEST, PackFile};
use crate::disk::{Disk, DiskMode, DiskOptions, FrameStart};
use crate::testing::{Random, Scratch, bytes};
use crate::tier::Tier;

fn open(scratch: &Scratch) -> Disk {
    Disk::open(packed(&scratch.0, true)).unwrap()
}

fn ephemeral(scratch: &Scratch, capacity: Option<u64>) -> Disk {
    Disk::open(DiskOptions { capacity, ..packed(&scratch.0, false) }).unwrap()
}

fn reader(scratch: &Scratch) -> Disk {
    Disk::open(DiskOptions { mode: DiskMode::ReadOnly, ..DiskOptions::new(&scratch.0) }).unwrap()
}

fn ids(disk: &Disk) -> Vec<u64> {
    disk.list().unwrap().iter().map(|stored| stored.id.0).collect()
}

fn delete(disk: &Disk, ids: impl IntoIterator<Item = u64>) {
    ids.into_iter().for_each(|id| disk.delete(CheckpointId(id)).unwrap());
}

/// The packs in a directory.
fn packs(dir: &Scratch) -> Vec<PathBuf> {
    let names = dir.names().into_iter().filter(|name| name.starts_with("pack-"));
    names.map(|name| dir.0.join(name)).collect()
}

/// A closed directory with the durable frames 1 to `last`, of 700 bytes.
fn history(last: u64) -> Scratch {
    let scratch = Scratch::new();
    let disk = open(&scratch);
    (1..=last).for_each(|id| put(&disk, id, 700).unwrap());
    disk.close().unwrap();
    scratch
}

/// Changes a byte of the record of a frame.
fn damage(scratch: &Scratch, id: u64, at: usize) {
    let listing = Listing::read(&scratch.0, &System).unwrap().unwrap();
    let place = listing.frames[&CheckpointId(id)].place.unwrap();
    let path = scratch.0.join(listing.tag.unwrap().pack(place.pack));
    let mut content = fs::read(&path).unwrap();
    content[place.offset as usize + at] ^= 1;
    fs::write(path, content).unwrap();
}

/// A frame as a spool puts it: a head that is mostly padding, and 32 bytes.
fn checkpoint(id: u64) -> (Vec<u8>, Vec<u8>) {
    let mut head = bytes(id, 144);
    head.resize(4096, 0);
    (head, bytes(id + 1, 32))
}

#[test]
fn small_frames_take_a_few_hundred_bytes_in_one_file() {
    for durable in [false, true] {
        let scratch = Scratch::new();
        let options = DiskOptions { durable, ..DiskOptions::new(&scratch.0) };
        let mut disk = Disk::open(options.clone()).unwrap();
        for id in 0..1000 {
            let (head, payload) = checkpoint(id);
            disk.put(CheckpointId(id), 0, &[&head, &payload]).unwrap();
        }
        disk.sync().unwrap();
        assert!(disk.describe().used < 260 * 1000, "{}", disk.describe().used);
        if durable {
            drop(disk);
            assert_eq!(packs(&scratch).len(), 1);
            assert_eq!(scratch.names().len(), 3, "a lock, a manifest and a pack");
            disk = Disk::open(options).unwrap();
        }
        for id in (0..1000).rev() {
            let (head, payload) = checkpoint(id);
            let (mut one, mut other) = (vec![1; 4100], vec![1; 28]);
            disk.get(CheckpointId(id), 0, &mut [&mut one, &mut other]).unwrap();
            assert!(one == [&head[..], &payload[..4]].concat() && other == payload[4..]);
        }
    }
}

#[test]
fn a_frame_that_would_take_more_room_in_a_pack_has_a_file() {
    let scratch = Scratch::new();
    let disk = Disk::open(DiskOptions { durable: true, ..DiskOptions::new(&scratch.0) }).unwrap();
    for (id, len) in (0..).zip([0, 4096, 65_535, 65_536]) {
        put(&disk, id, len).unwrap();
    }
    disk.put(CheckpointId(9), 0, &[&[0; 65_535]]).unwrap();
    disk.sync().unwrap();
    let named = |id| disk.file(CheckpointId(id)).unwrap().display().to_string();
    assert!((0..4).all(|id| named(id).contains("/frame-")));
    assert!(named(9).contains("/pack-"));
    assert_eq!(get(&disk, 9, 65_535).unwrap(), vec![0; 65_535]);
}

#[test]
fn a_damaged_record_costs_one_frame_and_is_named() {
    // Magic, length, id, length of the frame, reserved, checksum, spans, bytes, padding.
    for at in [0, 4, 9, 17, 20, 25, 32, 36, 100, 735] {
        let scratch = history(5);
        damage(&scratch, 3, at);
        for disk in [open(&scratch), reader(&scratch)] {
            let error = get(&disk, 3, 700).unwrap_err();
            assert_eq!(error.kind(), Failure::Corrupt, "{error}");
            let text = error.to_string();
            let file = packs(&scratch)[0].display().to_string();
            assert!(text.contains(&file) && text.contains("from byte 1488 on"), "{error}");
            assert!(text.contains("frame 3") && !error.advice().is_empty(), "{error}");
            [1, 2, 4, 5].into_iter().for_each(|id| assert_holds(&disk, id, 700));
        }
    }
}

#[test]
fn a_pack_that_is_missing_or_cut_off_is_named_by_each_of_its_frames() {
    let scratch = history(3);
    let pack = packs(&scratch).remove(0);
    let file = fs::OpenOptions::new().write(true).open(&pack).unwrap();
    file.set_len(file.metadata().unwrap().len() - 8).unwrap();
    let start = |id| -> FrameStart { bytes(id, 700)[..64].try_into().unwrap() };
    let disk = open(&scratch);
    let lost = disk.take_recovery().lost;
    assert_eq!((lost.len(), lost[0].id, lost[0].failure), (1, CheckpointId(3), Failure::Corrupt));
    assert!(lost[0].what.contains("is cut off: it has 2224 of 2232 bytes"), "{lost:?}");
    assert_eq!((&lost[0].file, lost[0].start), (&pack, start(3)));
    assert_eq!(ids(&disk), [1, 2]);
    drop(disk);
    file.set_len(8).unwrap();
    assert_eq!(open(&scratch).take_recovery().lost.len(), 3);
    assert!(pack.exists(), "what is damaged is not removed");
    fs::remove_file(&pack).unwrap();
    let disk = open(&scratch);
    let lost = disk.take_recovery().lost;
    let found: Vec<_> = lost.iter().map(|lost| (lost.id.0, lost.failure, lost.start)).collect();
    assert_eq!(found, [1, 2, 3].map(|id| (id, Failure::Missing, start(id))));
    // A new pack does not get the name of one that is missed.
    put(&disk, 9, 700).unwrap();
    disk.sync().unwrap();
    assert_ne!(disk.file(CheckpointId(9)).unwrap(), pack);
}

#[test]
fn without_a_manifest_packs_say_what_is_in_them() {
    let scratch = history(5);
    let disk = open(&scratch);
    delete(&disk, [2]);
    // Its bytes are those of a pack: what is in a frame is not in a pack.
    let inner = fs::read(&packs(&scratch)[0]).unwrap();
    disk.put(CheckpointId(6), 0, &[&inner[..900]]).unwrap();
    disk.close().unwrap();
    fs::remove_file(scratch.0.join(MANIFEST)).unwrap();
    let reader = reader(&scratch);
    assert_eq!(ids(&reader), [1, 2, 3, 4, 5, 6], "what was deleted may come back");
    assert!(!scratch.0.join(MANIFEST).exists());
    for round in 0..3 {
        let disk = open(&scratch);
        assert_eq!(ids(&disk), [1, 2, 3, 4, 5, 6]);
        (1..6).for_each(|id| assert_holds(&disk, id, 700));
        assert_eq!(get(&disk, 6, 900).unwrap(), inner[..900]);
        let recovery = disk.take_recovery();
        assert_eq!(recovery.starts[&CheckpointId(3)], bytes(3, 700)[..64]);
        assert_eq!(recovery.doubts.len(), usize::from(round == 0), "{recovery:?}");
        assert!(round > 0 || recovery.doubts[0].contains("may have come back"), "{recovery:?}");
        // As if the process had been killed.
        std::mem::forget(disk.manifest().take());
    }
}

#[test]
fn a_damaged_record_of_the_manifest_costs_no_packed_frame() {
    // The second of five frames, and the last.
    for record in [3, 6] {
        let scratch = history(5);
        let path = scratch.0.join(MANIFEST);
        let mut manifest = fs::read(&path).unwrap();
        assert_eq!(manifest.len(), 7 * 96, "two headers and five frames");
        manifest[record * 96 + 30] ^= 1;
        fs::write(&path, manifest).unwrap();
        for _ in 0..2 {
            let disk = open(&scratch);
            assert_eq!(ids(&disk), [1, 2, 3, 4, 5]);
            (1..6).for_each(|id| assert_holds(&disk, id, 700));
        }
        assert!(Listing::read(&scratch.0, &System).unwrap().unwrap().damaged == 0);
    }
}

#[test]
fn a_lost_header_of_the_manifest_is_made_up_for_by_the_names_of_packs() {
    let scratch = history(5);
    let tag = tag_of(&scratch.0);
    let path = scratch.0.join(MANIFEST);
    let mut manifest = fs::read(&path).unwrap();
    (manifest[20], manifest[96 + 20]) = (1, 1);
    fs::write(&path, manifest).unwrap();
    let disk = open(&scratch);
    assert_eq!(ids(&disk), [1, 2, 3, 4, 5]);
    (1..6).for_each(|id| assert_holds(&disk, id, 700));
    assert_eq!(tag_of(&scratch.0), tag);
}

#[test]
fn a_directory_with_packed_frames_is_refused_by_programs_that_do_not_know_them() {
    let scratch = Scratch::new();
    let version = |scratch: &Scratch| {
        let manifest = fs::read(scratch.0.join(MANIFEST)).unwrap();
        let headers = manifest.chunks(96).filter(|record| record.starts_with(b"\x89UNSM"));
        headers.map(|header| header[8]).collect::<Vec<u8>>()
    };
    let disk = open(&scratch);
    put(&disk, 1, 5000).unwrap();
    disk.sync().unwrap();
    assert_eq!(version(&scratch), [1], "without them it is as it was before");
    put(&disk, 2, 700).unwrap();
    disk.sync().unwrap();
    drop(disk);
    let disk = open(&scratch);
    put(&disk, 3, 700).unwrap();
    disk.sync().unwrap();
    assert_eq!(version(&scratch), [1, 2]);
}

#[test]
fn foreign_files_that_are_named_like_packs_are_left_alone() {
    let scratch = history(2);
    let tag = tag_of(&scratch.0);
    let whole = fs::read(&packs(&scratch)[0]).unwrap();
    let foreign =
        [("pack-0123456789abcdef-0", whole), ("pack-1", b"mine".to_vec()), ("pack-", Vec::new())];
    for (name, content) in &foreign {
        fs::write(scratch.0.join(name), content).unwrap();
    }
    for round in 0..2 {
        let disk = open(&scratch);
        assert_eq!(ids(&disk), (1..3 + round).collect::<Vec<_>>());
        let notes = disk.describe().notes.join(" ");
        assert!(notes.contains("1 files are named like packs of frames"), "{notes}");
        put(&disk, 3 + round, 700).unwrap();
        disk.sync().unwrap();
        assert_eq!(disk.describe().used, (round + 2) * 4096);
    }
    // One that comes later, in the place of the next pack.
    let disk = open(&scratch);
    let next = scratch.0.join(tag.pack(PackFile(3)));
    fs::write(&next, "later").unwrap();
    assert_eq!(put(&disk, 9, 700).unwrap_err().kind(), Failure::Permanent);
    put(&disk, 9, 700).unwrap();
    disk.close().unwrap();
    assert_eq!(fs::read(&next).unwrap(), b"later");
    for (name, content) in &foreign {
        assert_eq!(&fs::read(scratch.0.join(name)).unwrap(), content, "{name}");
    }
    fs::remove_file(scratch.0.join(MANIFEST)).unwrap();
    let kept = ids(&open(&scratch)).len();
    assert!(kept > 0, "a foreign pack does not keep ours from being found");
}

#[test]
fn a_pack_is_removed_with_its_last_frame() {
    for durable in [false, true] {
        let scratch = Scratch::new();
        let disk = Disk::open(packed(&scratch.0, durable)).unwrap();
        let count = || fs::read_dir(&disk.dir).unwrap().count();
        let before = count();
        (0..100).for_each(|id| put(&disk, id, 700).unwrap());
        disk.sync().unwrap();
        assert_eq!(count(), before + 2);
        delete(&disk, (0..100).rev());
        assert_eq!((count(), disk.describe().used), (before, 0));
        put(&disk, 1, 700).unwrap();
        assert_holds(&disk, 1, 700);
    }
}

#[test]
fn what_is_left_of_a_pack_is_moved_when_most_of_it_is_gone() {
    for durable in [false, true] {
        let scratch = Scratch::new();
        let disk = Disk::open(packed(&scratch.0, durable)).unwrap();
        (0..400).for_each(|id| put(&disk, id, 700).unwrap());
        disk.sync().unwrap();
        let full = disk.describe().used;
        delete(&disk, (0..400).filter(|id| id % 8 > 0));
        disk.sync().unwrap();
        disk.sync().unwrap();
        let used = disk.describe().used;
        assert!(used < full / 3, "{used} of {full}");
        let kept: Vec<u64> = (0..400).step_by(8).collect();
        assert_eq!(ids(&disk), kept);
        kept.iter().for_each(|&id| assert_holds(&disk, id, 700));
        if durable {
            drop(disk);
            let disk = open(&scratch);
            assert_eq!((ids(&disk), disk.describe().used), (kept.clone(), used));
            kept.iter().for_each(|&id| assert_holds(&disk, id, 700));
        }
    }
}

#[test]
fn a_reader_follows_frames_that_their_writer_has_moved() {
    let scratch = history(200);
    let reader = reader(&scratch);
    let writer = open(&scratch);
    let before = packs(&scratch);
    delete(&writer, (1..200).filter(|id| id % 8 > 0));
    writer.sync().unwrap();
    assert!(!before[0].exists(), "its frames were moved");
    (8..200).step_by(8).for_each(|id| assert_holds(&reader, id, 700));
    assert_eq!(get(&reader, 1, 700).unwrap_err().kind(), Failure::Missing);
    let late = self::reader(&scratch);
    (8..200).step_by(8).for_each(|id| assert_holds(&late, id, 700));
    assert!(late.take_recovery().lost.is_empty());
    assert_eq!(packs(&scratch), self::packs(&scratch));
}

#[test]
fn records_that_are_not_in_use_count_until_a_put_needs_their_room() {
    // Ten blocks, and nine of these frames in eight of them.
    let scratch = Scratch::new();
    let disk = ephemeral(&scratch, Some(40_960));
    (0..52).for_each(|id| put(&disk, id, 700).unwrap());
    delete(&disk, (0..52).filter(|id| id % 4 == 0));
    assert_eq!(disk.describe().used, 40_960, "the room of what was deleted is taken");
    (100..112).for_each(|id| put(&disk, id, 700).unwrap());
    assert!(disk.describe().used <= 40_960);
    (0..52).filter(|id| id % 4 > 0).chain(100..112).for_each(|id| assert_holds(&disk, id, 700));
    let error = (200..).find_map(|id| put(&disk, id, 700).err()).unwrap();
    assert_eq!(error.kind(), Failure::NoSpace, "{error}");
    // One that has a file needs room as well.
    delete(&disk, (0..52).filter(|id| id % 4 == 1));
    put(&disk, 300, 4096).unwrap();
    assert_holds(&disk, 300, 4096);
}

#[test]
fn a_durable_tier_moves_frames_for_a_put_too() {
    let scratch = Scratch::new();
    let options = DiskOptions { capacity: Some(40_960), ..packed(&scratch.0, true) };
    let disk = Disk::open(options.clone()).unwrap();
    (0..52).for_each(|id| put(&disk, id, 700).unwrap());
    disk.sync().unwrap();
    delete(&disk, (0..52).filter(|id| id % 4 == 0));
    (100..112).for_each(|id| put(&disk, id, 700).unwrap());
    disk.close().unwrap();
    let disk = Disk::open(options).unwrap();
    assert!(disk.take_recovery().lost.is_empty());
    (0..52).filter(|id| id % 4 > 0).chain(100..112).for_each(|id| assert_holds(&disk, id, 700));
}

#[test]
fn a_full_medium_takes_no_small_frame_and_keeps_those_there_are() {
    let scratch = Scratch::new();
    let medium = Arc::new(TestMedium::default());
    let disk = open_on(packed(&scratch.0, true), &medium);
    (0..5).for_each(|id| put(&disk, id, 700).unwrap());
    medium.fail_every(Call::Write, Errno::NOSPC.raw_os_error());
    for _ in 0..3 {
        let error = put(&disk, 9, 700).unwrap_err();
        assert_eq!(error.kind(), Failure::NoSpace, "{error}");
        assert_eq!(packs(&scratch).len(), 1, "what could not be written is removed");
    }
    medium.heal();
    put(&disk, 9, 700).unwrap();
    disk.sync().unwrap();
    (0..5).chain([9]).for_each(|id| assert_holds(&disk, id, 700));
}

#[test]
fn frames_of_a_pack_whose_sync_failed_are_written_again_elsewhere() {
    let scratch = Scratch::new();
    let medium = Arc::new(TestMedium::default());
    let disk = open_on(packed(&scratch.0, true), &medium);
    (0..5).for_each(|id| put(&disk, id, 700).unwrap());
    let before = packs(&scratch);
    medium.fail_every(Call::SyncFile, Errno::IO.raw_os_error());
    let error = disk.sync().unwrap_err();
    assert_eq!((error.kind(), error.location()), (Failure::Io, before[0].to_str().unwrap()));
    medium.heal();
    // The kernel may have dropped the bytes that it could not write: a copy of them proves more.
    disk.sync().unwrap();
    assert!(!before[0].exists());
    drop(disk);
    let disk = open(&scratch);
    (0..5).for_each(|id| assert_holds(&disk, id, 700));
}

#[test]
fn a_frame_that_cannot_be_written_again_keeps_a_sync_from_being_said_to_be_done() {
    let scratch = Scratch::new();
    let medium = Arc::new(TestMedium::default());
    let disk = open_on(packed(&scratch.0, true), &medium);
    (0..3).for_each(|id| put(&disk, id, 700).unwrap());
    medium.fail_every(Call::SyncFile, Errno::IO.raw_os_error());
    disk.sync().unwrap_err();
    medium.heal();
    // As if the bytes were dropped.
    let pack = packs(&scratch).remove(0);
    let mut content = fs::read(&pack).unwrap();
    content[900] ^= 1;
    fs::write(&pack, content).unwrap();
    for _ in 0..2 {
        let error = disk.sync().unwrap_err();
        assert_eq!(error.location(), pack.to_str().unwrap());
        assert!(error.advice().contains("put them again"), "{error}");
    }
    delete(&disk, [1]);
    put(&disk, 1, 700).unwrap();
    disk.sync().unwrap();
    drop(disk);
    (0..3).for_each(|id| assert_holds(&open(&scratch), id, 700));
}

#[test]
fn a_damaged_frame_stays_where_it_is_when_its_pack_is_compacted() {
    let scratch = history(60);
    damage(&scratch, 8, 100);
    let disk = open(&scratch);
    delete(&disk, (1..60).filter(|id| id % 8 > 0));
    disk.sync().unwrap();
    assert_eq!(get(&disk, 8, 700).unwrap_err().kind(), Failure::Corrupt);
    (16..60).step_by(8).for_each(|id| assert_holds(&disk, id, 700));
    disk.sync().unwrap();
    drop(disk);
    let disk = open(&scratch);
    assert_eq!(get(&disk, 8, 700).unwrap_err().kind(), Failure::Corrupt);
    (16..60).step_by(8).for_each(|id| assert_holds(&disk, id, 700));
    delete(&disk, ids(&disk));
    assert!(packs(&scratch).is_empty());
}

#[test]
fn a_record_of_a_pack_is_not_a_file_to_be_disowned() {
    let scratch = history(3);
    let disk = open(&scratch);
    assert_eq!(disk.file(CheckpointId(2)).as_ref(), packs(&scratch).first());
    assert_eq!(disk.disown(CheckpointId(2)), None);
    assert_holds(&disk, 2, 700);
}

/// An open directory with the frames 1 to 60, of which most were deleted since the last sync.
fn sparse(medium: &Arc<TestMedium>) -> (Scratch, Disk, PathBuf) {
    let scratch = Scratch::new();
    let disk = open_on(packed(&scratch.0, true), medium);
    (1..=60).for_each(|id| put(&disk, id, 700).unwrap());
    disk.sync().unwrap();
    delete(&disk, (1..=60).filter(|id| id % 8 > 0));
    let pack = packs(&scratch).remove(0);
    (scratch, disk, pack)
}

#[test]
fn a_pack_goes_only_when_the_manifest_is_known_to_say_where_its_frames_are() {
    let medium = Arc::new(TestMedium::default());
    let (_scratch, disk, _) = sparse(&medium);
    let before = medium.calls().len();
    disk.sync().unwrap();
    // The sync of the manifest.
    let place = medium.calls()[before..].iter().rposition(|&call| call == Call::SyncFile).unwrap();
    let (scratch, disk, pack) = sparse(&medium);
    medium.fail_after(place, Errno::IO.raw_os_error());
    assert!(disk.sync().unwrap_err().location().ends_with(MANIFEST));
    // This removes what may be removed.
    delete(&disk, [8]);
    assert!(pack.exists());
    assert_ne!(disk.file(CheckpointId(16)).unwrap(), pack);
    disk.sync().unwrap();
    assert!(!pack.exists());
    drop(disk);
    (16..60).step_by(8).for_each(|id| assert_holds(&open(&scratch), id, 700));
}

#[test]
fn frames_stay_where_they_are_when_their_copies_cannot_be_synced() {
    let medium = Arc::new(TestMedium::default());
    let (_scratch, disk, pack) = sparse(&medium);
    medium.fail_every(Call::SyncFile, Errno::IO.raw_os_error());
    disk.sync().unwrap_err();
    assert_eq!(disk.file(CheckpointId(8)).unwrap(), pack);
    medium.heal();
    disk.sync().unwrap();
    assert_ne!(disk.file(CheckpointId(8)).unwrap(), pack);
}

#[test]
fn a_pack_that_is_cut_off_is_not_removed_for_having_little_in_it() {
    let medium = Arc::new(TestMedium::default());
    let (scratch, disk, pack) = sparse(&medium);
    // As if the process had been killed.
    drop(disk.manifest().take());
    let file = fs::OpenOptions::new().write(true).open(&pack).unwrap();
    file.set_len(file.metadata().unwrap().len() - 4 * 744 - 8).unwrap();
    drop(disk);
    for _ in 0..2 {
        let disk = open(&scratch);
        let lost: Vec<u64> = disk.take_recovery().lost.iter().map(|lost| lost.id.0).collect();
        assert_eq!((lost, ids(&disk)), (vec![56], vec![8, 16, 24, 32, 40, 48]));
        disk.close().unwrap();
        assert!(pack.exists());
    }
}

#[test]
fn a_frame_that_was_deleted_does_not_come_back_where_the_manifest_says_so() {
    let scratch = history(5);
    let disk = open(&scratch);
    delete(&disk, [2]);
    disk.close().unwrap();
    let path = scratch.0.join(MANIFEST);
    let mut manifest = fs::read(&path).unwrap();
    manifest[5 * 96 + 30] ^= 1;
    fs::write(&path, manifest).unwrap();
    assert_eq!(ids(&open(&scratch)), [1, 3, 4, 5]);
}

#[test]
fn what_a_writer_is_about_to_write_is_not_damage_to_a_reader() {
    let scratch = history(5);
    let writer = open(&scratch);
    put(&writer, 6, 700).unwrap();
    let path = scratch.0.join(MANIFEST);
    let mut manifest = fs::read(&path).unwrap();
    manifest.extend(&bytes(1, 50));
    fs::write(&path, manifest).unwrap();
    assert_eq!(ids(&reader(&scratch)), [1, 2, 3, 4, 5]);
    let image = killed(&scratch);
    assert_eq!(ids(&open(&image)), [1, 2, 3, 4, 5, 6], "to the next writer it may be");
}

/// What a process leaves that is killed now.
fn killed(scratch: &Scratch) -> Scratch {
    let copy = Scratch::in_memory();
    for name in scratch.names() {
        fs::copy(scratch.0.join(&name), copy.0.join(&name)).unwrap();
    }
    copy
}

#[test]
fn random_histories_come_back_as_they_were_after_closing_and_after_being_killed() {
    for seed in 0..30 {
        let mut random = Random(seed);
        let scratch = Scratch::in_memory();
        let mut disk = open(&scratch);
        // Length by id, and whether it was synced; ids rise.
        let mut frames = BTreeMap::<u64, (usize, bool)>::new();
        for step in 0..400 {
            let any = random.below(frames.len().max(1) as u64) as usize;
            let any = frames.keys().nth(any).copied();
            match (random.below(40), any) {
                (0, _) => {
                    disk.sync().unwrap();
                    frames.values_mut().for_each(|frame| frame.1 = true);
                }
                (1, _) => {
                    disk.close().unwrap();
                    disk = open(&scratch);
                    frames.values_mut().for_each(|frame| frame.1 = true);
                }
                (2, _) => {
                    let image = killed(&scratch);
                    let left = open(&image);
                    let synced = frames.iter().filter(|(_, frame)| frame.1);
                    let synced: Vec<u64> = synced.map(|(&id, _)| id).collect();
                    assert_eq!(ids(&left), synced, "seed {seed}, step {step}");
                    synced.iter().for_each(|&id| assert_holds(&left, id, frames[&id].0));
                    assert!(left.take_recovery().lost.is_empty());
                }
                (3..18, Some(id)) => {
                    delete(&disk, [id]);
                    frames.remove(&id);
                }
                (18..22, Some(id)) => assert_holds(&disk, id, frames[&id].0),
                _ => {
                    // Now and then one that has a file.
                    let len = [200, 900, 900, 3000][random.below(4) as usize] + step as usize % 100;
                    put(&disk, step, len).unwrap();
                    // A file that is not synced does not outlive its process either.
                    frames.insert(step, (len, false));
                }
            }
        }
        assert_eq!(ids(&disk), frames.keys().copied().collect::<Vec<_>>());
        delete(&disk, frames.into_keys());
        assert_eq!((disk.describe().used, packs(&scratch).len()), (0, 0), "seed {seed}");
    }
}

#[test]
fn threads_put_read_and_delete_while_packs_are_moved_synced_and_removed() {
    for durable in [false, true] {
        let scratch = Scratch::in_memory();
        let disk = Disk::open(packed(&scratch.0, durable)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let disk = &disk;
                scope.spawn(move || {
                    for id in (0..400).map(|round| 1024 * thread + round) {
                        put(disk, id, 700).unwrap();
                        assert_holds(disk, id - id % 16, 700);
                        if id % 16 >= 2 {
                            delete(disk, [id - 1]);
                        }
                    }
                });
            }
            scope.spawn(|| (0..40).for_each(|_| disk.sync().unwrap()));
        });
        let kept = ids(&disk);
        assert!(kept.len() >= 3 * 25 && kept.len() < 3 * 80, "{}", kept.len());
        kept.iter().for_each(|&id| assert_holds(&disk, id, 700));
        disk.sync().unwrap();
        assert!(disk.describe().used < 3 * 400 * 744, "{}", disk.describe().used);
        if durable {
            drop(disk);
            let disk = open(&scratch);
            assert_eq!(ids(&disk), kept);
            kept.iter().for_each(|&id| assert_holds(&disk, id, 700));
        }
    }
}

#[test]
fn frames_that_fit_are_never_refused_for_what_packs_have_besides() {
    for durable in [false, true] {
        let scratch = Scratch::in_memory();
        // Forty frames of 744 bytes are kept, and four are being put and deleted.
        let capacity = Some(8 * 4096 + 4096);
        let disk = Disk::open(DiskOptions { capacity, ..packed(&scratch.0, durable) }).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let disk = &disk;
                scope.spawn(move || {
                    for round in 0..300 {
                        put(disk, 1024 * thread + round, 700).unwrap();
                        if round >= 10 {
                            delete(disk, [1024 * thread + round - 10]);
                        }
                    }
                });
            }
        });
        assert_eq!(ids(&disk).len(), 40);
        ids(&disk).iter().for_each(|&id| assert_holds(&disk, id, 700));
    }
}
