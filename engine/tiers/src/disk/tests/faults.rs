//! Every operation of the medium fails, in every place, and moves less than it was asked to.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use rustix::io::Errno;
use unspool_core::{CheckpointId, Failure};

use super::medium::{Call, TestMedium};
use super::{assert_holds, get, open_on, options, put};
use crate::disk::{Disk, DiskIo, DiskOptions, names};
use crate::error::TierError;
use crate::testing::Scratch;
use crate::tier::Tier;

const IO: i32 = Errno::IO.raw_os_error();
const FULL: i32 = Errno::NOSPC.raw_os_error();

struct Rig {
    scratch: Scratch,
    medium: Arc<TestMedium>,
    disk: Disk,
}

fn rig(io: DiskIo, durable: bool) -> Rig {
    packing_rig(io, durable, 0)
}

fn packing_rig(io: DiskIo, durable: bool, packed_up_to: u64) -> Rig {
    let scratch = Scratch::new();
    let medium = Arc::new(TestMedium::default());
    let options = DiskOptions { packed_up_to, ..options(&scratch.0, io, durable) };
    let disk = open_on(options, &medium);
    Rig { scratch, medium, disk }
}

impl Rig {
    /// The names of the files of the tier, without its lock and its manifest.
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.disk.dir).unwrap();
        let found = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        found.filter(|name| !name.ends_with("lock") && name != names::MANIFEST).collect()
    }
}

/// A step of a history: what it does and to which frame.
#[derive(Clone, Copy, Debug)]
enum Step {
    Put(u64, usize),
    Get(u64),
    Delete(u64),
    Sync,
}

const HISTORY: [Step; 14] = [
    Step::Put(1, 5000),
    Step::Put(2, 9000),
    Step::Get(1),
    Step::Delete(1),
    Step::Put(3, 4096),
    Step::Sync,
    Step::Get(3),
    Step::Delete(2),
    Step::Put(4, 0),
    Step::Sync,
    Step::Put(5, 20_000),
    Step::Get(5),
    Step::Delete(5),
    Step::Put(6, 100),
];

/// A history in which packs of 12,800 bytes are filled, compacted and removed.
fn packed_history() -> Vec<Step> {
    let put = (1..70).map(|id| Step::Put(id, 180));
    let delete = (1..70).filter(|id| id % 3 > 0).map(Step::Delete);
    let get = (1..70).filter(|id| id % 5 == 0).map(Step::Get);
    let middle = [Step::Sync, Step::Get(3), Step::Put(80, 5000), Step::Put(81, 100), Step::Sync];
    let more = put.clone().filter(|step| matches!(step, Step::Put(id, _) if id % 4 == 1));
    put.chain([Step::Sync]).chain(delete).chain(middle).chain(get).chain(more).collect()
}

/// Does every step and keeps a map of what must be there; gives the errors back.
fn play(disk: &Disk, history: &[Step], frames: &mut BTreeMap<u64, usize>) -> Vec<TierError> {
    let mut errors = Vec::new();
    for &step in history {
        let answer = match step {
            Step::Put(id, _) if frames.contains_key(&id) => Ok(()),
            Step::Put(id, len) => put(disk, id, len).map(|()| {
                frames.insert(id, len);
            }),
            Step::Delete(id) if !frames.contains_key(&id) => Ok(()),
            Step::Delete(id) => disk.delete(CheckpointId(id)).map(|()| {
                frames.remove(&id);
            }),
            Step::Get(id) => match frames.get(&id) {
                Some(&len) => get(disk, id, len).map(drop),
                None => Ok(()),
            },
            Step::Sync => disk.sync(),
        };
        errors.extend(answer.err());
    }
    errors
}

#[test]
fn whatever_call_fails_frames_are_whole_or_absent_and_the_tier_goes_on() {
    let packed = packed_history();
    for (io, durable, packed_up_to, history) in [
        (DiskIo::Buffered, false, 0, &HISTORY[..]),
        (DiskIo::Auto, false, 0, &HISTORY),
        (DiskIo::Buffered, true, 0, &HISTORY),
        (DiskIo::Buffered, false, 65_535, &HISTORY),
        (DiskIo::Buffered, true, 65_535, &HISTORY),
        (DiskIo::Buffered, false, 200, &packed),
        (DiskIo::Buffered, true, 200, &packed),
    ] {
        let mut failed = 0;
        // Until the history has fewer calls than that.
        for call in 0.. {
            let rig = packing_rig(io, durable, packed_up_to);
            rig.medium.fail_after(call, IO);
            let before = rig.medium.calls().len();
            let mut frames = BTreeMap::new();
            let errors = play(&rig.disk, history, &mut frames);
            rig.medium.heal();
            check(&rig, &frames, &errors);
            if rig.medium.calls().len() < before + call {
                break;
            }
            failed += usize::from(!errors.is_empty());
        }
        let least = if packed_up_to == 0 { 15 } else { 9 };
        assert!(failed >= least, "only {failed} calls failed of {durable} {packed_up_to}");
    }
}

fn check(rig: &Rig, frames: &BTreeMap<u64, usize>, errors: &[TierError]) {
    let here = rig.disk.dir.to_str().unwrap();
    for error in errors {
        assert_eq!(error.kind(), Failure::Io, "{error}");
        assert!(error.location().starts_with(here), "{error}");
        assert!(!error.advice().is_empty(), "{error}");
    }
    let listed: Vec<_> = rig.disk.list().unwrap().iter().map(|s| (s.id.0, s.bytes)).collect();
    let expected: Vec<_> = frames.iter().map(|(&id, &len)| (id, len as u64)).collect();
    assert_eq!(listed, expected);
    for (&id, &len) in frames {
        assert_holds(&rig.disk, id, len);
        rig.disk.delete(CheckpointId(id)).unwrap();
    }
    assert_eq!(rig.disk.describe().used, 0);
    rig.disk.sync().unwrap();
    put(&rig.disk, 100, 5000).unwrap();
    assert_holds(&rig.disk, 100, 5000);
    rig.disk.close().unwrap();
    let left = rig.scratch.names();
    let durable = rig.disk.options.durable;
    let with_frames = |name: &&String| name.starts_with("frame-") || name.starts_with("pack-");
    let frames = left.iter().filter(with_frames).count();
    assert_eq!(frames, usize::from(durable), "{left:?}");
    assert!(durable || left.is_empty(), "{left:?}");
}

#[test]
fn short_writes_and_reads_are_continued() {
    for (io, most) in [
        (DiskIo::Buffered, 1),
        (DiskIo::Buffered, 777),
        (DiskIo::Auto, 4096),
        (DiskIo::Auto, 5000),
        (DiskIo::Auto, 70_000),
    ] {
        let rig = rig(io, false);
        rig.medium.move_at_most(most);
        put(&rig.disk, 1, 12_345).unwrap();
        assert_holds(&rig.disk, 1, 12_345);
        let mut end = [0; 345];
        rig.disk.get(CheckpointId(1), 12_000, &mut [&mut end]).unwrap();
        assert_eq!(end, crate::testing::bytes(1, 12_345)[12_000..]);
    }
}

#[test]
fn a_write_that_does_not_come_forward_is_an_error_and_not_a_loop() {
    for (io, most) in [(DiskIo::Buffered, 0), (DiskIo::Auto, 0), (DiskIo::Auto, 100)] {
        let rig = rig(io, false);
        rig.medium.move_at_most(most);
        if most > 0 && !rig.disk.carrier.manner.direct {
            // Through the page cache a file may be written in pieces of any length.
            put(&rig.disk, 1, 5000).unwrap();
            continue;
        }
        let error = put(&rig.disk, 1, 5000).unwrap_err();
        assert_eq!(error.kind(), Failure::Io);
        assert!(error.to_string().contains("after 0 of 5000 bytes"), "{error}");
        assert!(rig.files().is_empty());
    }
}

#[test]
fn interrupted_calls_are_made_again() {
    let rig = rig(DiskIo::Auto, false);
    rig.medium.interrupt(3);
    put(&rig.disk, 1, 5000).unwrap();
    rig.medium.interrupt(3);
    assert_holds(&rig.disk, 1, 5000);
}

#[test]
fn an_error_says_how_many_bytes_were_done() {
    let rig = rig(DiskIo::Buffered, false);
    rig.medium.move_at_most(4096);
    // An open and two writes go well.
    rig.medium.fail_after(3, IO);
    let error = put(&rig.disk, 1, 20_000).unwrap_err();
    let progress = error.progress().unwrap();
    assert_eq!((progress.asked, progress.done), (20_000, 8192));
    assert!(rig.files().is_empty(), "the torn file is removed");
}

#[test]
fn a_full_medium_takes_the_files_that_were_kept_for_reuse() {
    let rig = rig(DiskIo::Auto, false);
    (1..=3).for_each(|id| put(&rig.disk, id, 8192).unwrap());
    (1..=3).for_each(|id| rig.disk.delete(CheckpointId(id)).unwrap());
    assert_eq!(rig.files().len(), 3);
    // The open goes well and the first write does not.
    rig.medium.fail_after(1, FULL);
    put(&rig.disk, 4, 8192).unwrap();
    assert_eq!(rig.files().len(), 1);
    assert_holds(&rig.disk, 4, 8192);
}

#[test]
fn a_medium_that_stays_full_is_no_space_and_keeps_what_there_was() {
    let rig = rig(DiskIo::Auto, false);
    put(&rig.disk, 1, 8192).unwrap();
    rig.medium.fail_every(Call::Write, FULL);
    let error = put(&rig.disk, 2, 8192).unwrap_err();
    assert_eq!(error.kind(), Failure::NoSpace);
    assert!(error.to_string().contains("the file system is full"), "{error}");
    assert_eq!(rig.files().len(), 1);
    assert_holds(&rig.disk, 1, 8192);
}

#[test]
fn a_frame_whose_sync_failed_is_not_made_durable_by_a_later_one() {
    let rig = rig(DiskIo::Auto, true);
    put(&rig.disk, 1, 5000).unwrap();
    put(&rig.disk, 2, 5000).unwrap();
    rig.medium.fail_every(Call::SyncFile, IO);
    assert_eq!(rig.disk.sync().unwrap_err().kind(), Failure::Io);
    rig.medium.heal();
    // The kernel may have dropped the bytes that it could not write: asking again proves nothing.
    let error = rig.disk.sync().unwrap_err();
    assert!(error.advice().contains("put it again"), "{error}");
    assert!(rig.files().iter().all(|name| name.starts_with("slot-")));
    assert_holds(&rig.disk, 1, 5000);
    for id in [1, 2] {
        rig.disk.delete(CheckpointId(id)).unwrap();
        put(&rig.disk, id, 5000).unwrap();
    }
    rig.disk.sync().unwrap();
    assert!(rig.files().iter().all(|name| name.starts_with("frame-")));
}

#[test]
fn a_directory_that_cannot_be_synced_is_an_error_until_it_can() {
    let rig = rig(DiskIo::Auto, true);
    put(&rig.disk, 1, 5000).unwrap();
    rig.medium.fail_every(Call::SyncDir, IO);
    assert!(rig.disk.sync().is_err());
    assert!(rig.disk.sync().is_err());
    rig.medium.heal();
    rig.disk.sync().unwrap();
    assert_holds(&rig.disk, 1, 5000);
}

#[test]
fn a_file_that_was_cut_off_is_corrupt_and_one_that_was_removed_is_missing() {
    for io in [DiskIo::Auto, DiskIo::Buffered] {
        let rig = rig(io, false);
        put(&rig.disk, 1, 50_000).unwrap();
        let path = rig.disk.dir.join(&rig.files()[0]);
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(20_000).unwrap();
        let error = get(&rig.disk, 1, 50_000).unwrap_err();
        assert_eq!(error.kind(), Failure::Corrupt, "{error}");
        assert_eq!(error.progress().map(|progress| progress.done), Some(20_000));
        fs::remove_file(&path).unwrap();
        assert_eq!(get(&rig.disk, 1, 50_000).unwrap_err().kind(), Failure::Missing);
        rig.disk.delete(CheckpointId(1)).unwrap();
        // The spare is not there either: the next frame fails once, and the one after does not.
        assert!(put(&rig.disk, 2, 50_000).is_err());
        put(&rig.disk, 2, 50_000).unwrap();
        assert_holds(&rig.disk, 2, 50_000);
    }
}

#[test]
fn a_read_that_stops_says_how_many_of_the_bytes_that_it_was_asked_for_are_done() {
    // In the middle of a block; and in the second request, where one takes 8 MiB.
    for (skip, cut) in [(12_000, 20_000), (0, 9_000_000)] {
        for io in [DiskIo::Auto, DiskIo::Buffered] {
            let rig = rig(io, false);
            put(&rig.disk, 1, 9_500_000).unwrap();
            let path = rig.disk.dir.join(&rig.files()[0]);
            fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(cut).unwrap();
            let mut bytes = vec![0; 9_500_000 - skip];
            let error = rig.disk.get(CheckpointId(1), skip as u64, &mut [&mut bytes]).unwrap_err();
            assert_eq!(error.progress().map(|progress| progress.done), Some(cut - skip as u64));
        }
    }
}

#[test]
fn a_file_is_opened_past_the_page_cache_for_reading_where_it_is_for_writing() {
    for io in [DiskIo::Auto, DiskIo::Buffered] {
        let rig = rig(io, false);
        let before = rig.medium.opened().len();
        put(&rig.disk, 1, 5000).unwrap();
        assert_holds(&rig.disk, 1, 5000);
        let opened = rig.medium.opened().split_off(before);
        assert_eq!(opened.iter().map(|mode| mode.write).collect::<Vec<_>>(), [true, false]);
        let direct = rig.disk.carrier.manner.direct;
        assert!(opened.iter().all(|mode| mode.direct == direct), "{opened:?}");
    }
}

#[test]
fn a_medium_without_direct_access_is_used_through_the_page_cache_with_a_note() {
    let scratch = Scratch::new();
    let medium = Arc::new(TestMedium::default());
    medium.refuse_direct();
    let disk = open_on(options(&scratch.0, DiskIo::Auto, false), &medium);
    let notes = disk.describe().notes.join(" ");
    assert!(notes.contains("page cache, because O_DIRECT does not work in"), "{notes}");
    put(&disk, 1, 5000).unwrap();
    assert_holds(&disk, 1, 5000);
}

#[test]
fn what_was_asked_for_and_does_not_work_is_an_error_that_leaves_no_directory() {
    let scratch = Scratch::new();
    let medium = Arc::new(TestMedium::default());
    medium.refuse_direct();
    let options = options(&scratch.0, DiskIo::Direct, false);
    let error = Disk::open_on(options, medium).unwrap_err();
    assert_eq!(error.kind(), Failure::Permanent);
    assert!(error.advice().contains("`auto`"), "{error}");
    assert!(scratch.names().is_empty());
}

#[test]
fn a_medium_that_is_full_when_it_is_opened_is_used_as_any_other() {
    let scratch = Scratch::new();
    let medium = Arc::new(TestMedium::default());
    medium.fail_every(Call::Write, FULL);
    let disk = open_on(options(&scratch.0, DiskIo::Auto, false), &medium);
    medium.heal();
    let usual = rig(DiskIo::Auto, false).disk.carrier.manner.direct;
    assert_eq!(disk.carrier.manner.direct, usual);
    put(&disk, 1, 5000).unwrap();
    assert_holds(&disk, 1, 5000);
}
