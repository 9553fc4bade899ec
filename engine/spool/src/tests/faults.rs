//! A disk that fails: nothing is lost, and the errors say what happened.

use std::time::Duration;

use unspool_core::Failure;
use unspool_testkit::{Fault, Operation};

use super::common::{bytes_spec, wait};
use super::{Plan, assert_consistent};
use crate::{ErrorKind, Wait};

const LEN: usize = 4096;
const PAGES: u64 = 4096;

#[test]
fn a_flush_that_fails_for_ever_keeps_the_data_restorable() {
    let rig = Plan::arenas(Some(4 * PAGES), None).with(|s| s.max_retries = 0).build();
    rig.faults.always(Operation::Put, Fault::Fail(Failure::Io));
    (0..4).for_each(|version| rig.save(version, LEN).unwrap());
    let error = rig.save(4, LEN).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    for part in ["Version 4 cannot be saved", "put failed", "this failure was planned"] {
        assert!(error.to_string().contains(part), "{part:?} is missing in {error}");
    }
    (0..4).for_each(|version| rig.restore(version, LEN).unwrap());
    let stats = rig.spool.stats().unwrap();
    assert!(stats.links[0].flush.failed >= 4);
    let failure = stats.links[0].last_failure.clone().unwrap();
    assert!(failure.contains("from device to disk"), "{failure}");
    rig.faults.heal();
    rig.save(4, LEN).unwrap();
    (0..5).for_each(|version| rig.restore(version, LEN).unwrap());
    assert_consistent(&rig.spool);
}

#[test]
fn a_disk_without_room_is_told_by_name_and_works_again_after_space_was_freed() {
    let rig = Plan::arenas(Some(2 * PAGES), None).build();
    rig.faults.always(Operation::Put, Fault::Fail(Failure::NoSpace));
    (0..2).for_each(|version| rig.save(version, LEN).unwrap());
    let error = rig.spool.flush(&wait()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    assert!(error.to_string().contains("cannot be flushed to the disk tier"), "{error}");
    assert_eq!(rig.save(2, LEN).unwrap_err().kind(), ErrorKind::Full);
    (0..2).for_each(|version| rig.restore(version, LEN).unwrap());
    rig.faults.heal();
    rig.spool.flush(&wait()).unwrap();
    rig.save(2, LEN).unwrap();
    (0..3).for_each(|version| rig.restore(version, LEN).unwrap());
}

#[test]
fn a_failed_flush_is_tried_again_while_the_application_computes() {
    let plan = Plan::arenas(Some(4 * PAGES), None).with_manual_clock();
    let rig = plan.with(|s| s.retry_delay = Duration::from_secs(5)).build();
    rig.faults.on_nth(Operation::Put, 1, Fault::Fail(Failure::Io));
    rig.save(0, LEN).unwrap();
    let failed = || rig.spool.stats().unwrap().links[0].flush.failed;
    until(|| failed() == 1);
    assert_eq!(rig.faults.calls(Operation::Put), 1, "not before its time");
    rig.clock.advance(Duration::from_secs(6));
    until(|| rig.spool.stats().unwrap().links[0].flush.transfers == 1);
    assert_eq!(rig.spool.stats().unwrap().links[0].flush.retried, 1);
    assert_consistent(&rig.spool);
}

#[test]
fn a_direct_read_is_tried_twice_when_the_medium_hiccups() {
    let rig = Plan::arenas(None, None).build();
    rig.save(0, LEN).unwrap();
    rig.faults.on_nth(Operation::Get, 1, Fault::Fail(Failure::Io));
    rig.restore(0, LEN).unwrap();
    rig.faults.on_nth(Operation::Get, 1, Fault::Short(Failure::Io));
    rig.faults.on_nth(Operation::Get, 2, Fault::Fail(Failure::Io));
    let error = rig.restore(0, LEN).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    for part in ["Version 0 cannot be restored", "get failed", "this failure was planned"] {
        assert!(error.to_string().contains(part), "{part:?} is missing in {error}");
    }
    assert!(std::error::Error::source(&error).is_some());
    rig.restore(0, LEN).unwrap();
    assert_consistent(&rig.spool);
}

#[test]
fn bytes_that_changed_on_the_way_are_never_shown() {
    let rig = Plan::arenas(None, None).build();
    rig.save(0, LEN).unwrap();
    for at in [9, 4096, 4096 + 2000] {
        rig.faults.on_nth(Operation::Get, 1, Fault::FlipBit { at });
        let error = rig.restore(0, LEN).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
    rig.restore(0, LEN).unwrap();
}

#[test]
fn without_verify_only_the_head_is_compared() {
    let rig = Plan::arenas(None, None).with(|s| s.verify = false).build();
    rig.save(0, LEN).unwrap();
    rig.faults.on_nth(Operation::Get, 1, Fault::FlipBit { at: 4096 });
    assert!(rig.spool.restore(0, &wait()).is_ok());
    rig.faults.on_nth(Operation::Get, 1, Fault::FlipBit { at: 50 });
    assert_eq!(rig.spool.restore(0, &wait()).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_direct_save_that_fails_saves_nothing_and_can_be_repeated() {
    let rig = Plan::arenas(Some(PAGES), None).build();
    for (failure, kind) in [
        (Failure::NoSpace, ErrorKind::Full),
        (Failure::Io, ErrorKind::Io),
        (Failure::Permanent, ErrorKind::Io),
    ] {
        rig.faults.on_nth(Operation::Put, 1, Fault::Fail(failure));
        let error = rig.save(0, 3 * LEN).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains("Version 0 cannot be saved"), "{error}");
        assert!(!rig.spool.contains(0).unwrap());
    }
    rig.save(0, 3 * LEN).unwrap();
    rig.restore(0, 3 * LEN).unwrap();
    let stats = rig.spool.stats().unwrap();
    assert!(stats.application.save_stall > Duration::ZERO);
    assert_consistent(&rig.spool);
}

#[test]
fn a_copy_that_a_prefetch_finds_changed_is_lost_and_told_so() {
    // With one worker checkpoints become evictable in the order of their saves.
    let plan = Plan::arenas(Some(2 * PAGES), None).with(|s| s.store_workers = 1);
    let rig = plan.build();
    (0..6).for_each(|version| rig.save(version, LEN).unwrap());
    rig.spool.flush(&wait()).unwrap();
    rig.faults.always(Operation::Get, Fault::FlipBit { at: 5000 });
    rig.spool.expect([0]).unwrap();
    until(|| rig.spool.stats().unwrap().links[0].prefetch.failed == 1);
    let error = rig.restore(0, LEN).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    for part in ["Version 0 is lost", "checksum of its payload", "Recompute it"] {
        assert!(error.to_string().contains(part), "{part:?} is missing in {error}");
    }
    rig.faults.heal();
    rig.spool.discard(0).unwrap();
    rig.save(0, LEN).unwrap();
    (0..6).for_each(|version| rig.restore(version, LEN).unwrap());
    assert_consistent(&rig.spool);
}

#[test]
fn a_deletion_that_fails_is_noted_and_stops_nothing() {
    let rig = Plan::arenas(None, None).build();
    rig.save(0, LEN).unwrap();
    rig.faults.on_nth(Operation::Delete, 1, Fault::Fail(Failure::Io));
    rig.spool.discard(0).unwrap();
    until(|| !rig.spool.stats().unwrap().application.notes.is_empty());
    let notes = rig.spool.stats().unwrap().application.notes;
    assert!(notes[0].contains("deletion of frame 0 in disk"), "{notes:?}");
    rig.save(0, LEN).unwrap();
    rig.restore(0, LEN).unwrap();
}

#[test]
fn a_sync_that_fails_makes_nothing_durable() {
    let durable: super::common::Change = |s| {
        s.disk =
            Some(crate::DiskSettings { durable: true, ..crate::DiskSettings::new("replaced") });
    };
    let rig = Plan::arenas(Some(PAGES), None).with(durable).build();
    rig.save(0, LEN).unwrap();
    rig.faults.on_nth(Operation::Sync, 1, Fault::Fail(Failure::Io));
    let error = rig.spool.flush(&wait()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("cannot be made durable"), "{error}");
    assert!(!rig.spool.durable(0).unwrap());
    rig.spool.flush(&Wait::default()).unwrap();
    assert!(rig.spool.durable(0).unwrap());
}

#[test]
fn a_medium_that_stays_broken_ends_waits_with_its_reason() {
    let plan = Plan::arenas(Some(PAGES), None).with_manual_clock();
    let rig = plan.with(|s| s.retry_delay = Duration::from_secs(1000)).build();
    rig.faults.always(Operation::Put, Fault::Fail(Failure::Io));
    rig.save(0, LEN).unwrap();
    until(|| rig.spool.stats().unwrap().links[0].flush.failed == 1);
    let error = std::thread::scope(|scope| {
        let saving = scope.spawn(|| {
            let wait = Wait::at_most(Duration::from_secs(30));
            rig.spool.save(1, bytes_spec(LEN), &wait).unwrap_err().to_string()
        });
        while !saving.is_finished() {
            rig.clock.advance(Duration::from_secs(1));
            std::thread::yield_now();
        }
        saving.join().unwrap()
    });
    for part in ["Waited 30.0 s for room for version 1", "device uses", "this failure was planned"]
    {
        assert!(error.contains(part), "{part:?} is missing in {error}");
    }
}

/// Waits until `done`; the test fails when that takes a minute.
pub(super) fn until(done: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !done() {
        assert!(start.elapsed() < super::common::PATIENCE, "it did not happen");
        std::thread::yield_now();
    }
}
