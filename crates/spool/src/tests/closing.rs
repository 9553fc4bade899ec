//! The end of a spool: once, bounded, whoever asks.

use std::time::Duration;

use unspool_core::{CheckpointId, TierId};
use unspool_testkit::Operation;
use unspool_tiers::AnyTier;
use unspool_transfer::Answer;

use super::common::{Change, bytes_spec, wait};
use super::faults::until;
use super::{Plan, Rig};
use crate::{DiskSettings, ErrorKind, Spool};

const LEN: usize = 4096;
const PAGES: u64 = 4096;

const DURABLE: Change =
    |s| s.disk = Some(DiskSettings { durable: true, ..DiskSettings::new("replaced") });

/// Every call that needs an open spool.
fn assert_all_refused(spool: &Spool, kind: ErrorKind) {
    let wait = wait();
    let results = [
        spool.save(9, bytes_spec(1), &wait).map(drop),
        spool.restore(0, &wait).map(drop),
        spool.regions(0).map(drop),
        spool.expect([1]),
        spool.forget_hints(),
        spool.start_prefetch(),
        spool.hold_prefetch(),
        spool.discard(0),
        spool.flush(&wait),
        spool.versions().map(drop),
        spool.contains(0).map(drop),
        spool.durable(0).map(drop),
    ];
    for result in results {
        assert_eq!(result.unwrap_err().kind(), kind);
    }
}

#[test]
fn a_closed_spool_refuses_calls_and_still_tells_its_figures() {
    let rig = Plan::arenas(Some(4 * PAGES), None).build();
    rig.save(0, LEN).unwrap();
    rig.spool.close().unwrap();
    rig.spool.close().unwrap();
    assert!(rig.spool.is_closed());
    assert_all_refused(&rig.spool, ErrorKind::Closed);
    assert_eq!(rig.spool.stats().unwrap().application.saves, 1);
}

#[test]
fn an_ephemeral_close_cancels_what_waits_and_removes_its_files() {
    let rig = Plan::arenas(Some(8 * PAGES), None).build();
    rig.gate(Operation::Put).close();
    (0..8).for_each(|version| rig.save(version, LEN).unwrap());
    assert!(rig.gate(Operation::Put).wait_until_waiting(2));
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| rig.spool.close());
        // The lane for deletions is the last that stops taking work.
        let engine = &rig.spool.hub().engine;
        until(|| engine.delete(CheckpointId(99), TierId(1)) == Answer::NeverRuns);
        rig.gate(Operation::Put).open();
        closing.join().unwrap().unwrap();
    });
    assert_eq!(rig.faults.calls(Operation::Put), 2, "what had not begun never ran");
    assert_eq!(std::fs::read_dir(rig.dir.path()).unwrap().count(), 0);
}

#[test]
fn calls_that_wait_end_when_the_spool_closes() {
    let rig = Plan::arenas(Some(PAGES), None).build();
    rig.gate(Operation::Put).close();
    rig.save(0, LEN).unwrap();
    std::thread::scope(|scope| {
        let saving = scope.spawn(|| rig.save(1, LEN));
        let flushing = scope.spawn(|| rig.spool.flush(&wait()));
        until(|| rig.spool.hub().state().waiting() == 2);
        let closing = scope.spawn(|| rig.spool.close());
        assert_eq!(saving.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(flushing.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        rig.gate(Operation::Put).open();
        closing.join().unwrap().unwrap();
    });
}

#[test]
fn a_close_that_takes_too_long_names_what_runs_and_does_not_hang() {
    let plan = Plan::arenas(Some(PAGES), None).with_manual_clock();
    let rig = plan.with(|s| s.timeout = Duration::from_secs(5)).build();
    rig.gate(Operation::Put).close();
    rig.save(0, LEN).unwrap();
    assert!(rig.gate(Operation::Put).wait_until_waiting(1));
    let error = std::thread::scope(|scope| {
        let closing = scope.spawn(|| rig.spool.close().unwrap_err());
        until(|| {
            rig.clock.advance(Duration::from_secs(1));
            closing.is_finished()
        });
        closing.join().unwrap()
    });
    assert_eq!(error.kind(), ErrorKind::Timeout);
    for part in ["The spool is closed", "flush of version 0", "device-disk"] {
        assert!(error.to_string().contains(part), "{part:?} is missing in {error}");
    }
    rig.gate(Operation::Put).open();
    let Rig { spool, .. } = rig;
    drop(spool);
}

#[test]
fn a_durable_close_writes_everything_first() {
    let rig = Plan::arenas(Some(8 * PAGES), None).with(DURABLE).build();
    rig.gate(Operation::Put).close();
    (0..8).for_each(|version| rig.save(version, LEN).unwrap());
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| rig.spool.close());
        until(|| rig.spool.is_closed());
        assert_eq!(rig.save(9, LEN).unwrap_err().kind(), ErrorKind::Closed);
        rig.gate(Operation::Put).open();
        closing.join().unwrap().unwrap();
    });
    assert_eq!(rig.faults.calls(Operation::Put), 8);
    assert_eq!(rig.faults.calls(Operation::Sync), 1);
}

#[test]
fn a_durable_close_that_cannot_write_says_so_and_closes() {
    let rig = Plan::arenas(Some(2 * PAGES), None).with(DURABLE).with(|s| s.max_retries = 0).build();
    let failure = unspool_core::Failure::NoSpace;
    rig.faults.always(Operation::Put, unspool_testkit::Fault::Fail(failure));
    rig.save(0, LEN).unwrap();
    let error = rig.spool.close().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    assert!(error.to_string().contains("Version 0 cannot be flushed"), "{error}");
    assert!(rig.spool.is_closed());
    rig.spool.close().unwrap();
}

#[test]
fn tickets_outlive_the_close_without_harm() {
    for durable in [false, true] {
        let plan = Plan::arenas(Some(4 * PAGES), None);
        let rig = if durable { plan.with(DURABLE) } else { plan }.build();
        rig.save(0, LEN).unwrap();
        let mut saving = rig.spool.save(1, bytes_spec(LEN), &wait()).unwrap();
        let mut large = rig.spool.save(2, bytes_spec(9 * LEN), &wait()).unwrap();
        let restoring = rig.spool.restore(0, &wait()).unwrap();
        rig.spool.close().unwrap();
        saving.region_mut(0).fill(1);
        large.region_mut(0).fill(2);
        assert_eq!(restoring.region(0), super::common::content(0, LEN));
        assert_eq!(saving.commit().unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(large.commit().unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(restoring.finish().unwrap_err().kind(), ErrorKind::Closed);
        if durable {
            let Rig { spool, faults, gated, dir, .. } = rig;
            drop((spool, faults, gated));
            let again = Plan::arenas(Some(4 * PAGES), None).with(DURABLE).build_in(dir);
            assert_eq!(again.spool.versions().unwrap(), [0], "only what was committed is there");
        }
    }
}

#[test]
fn a_forked_child_can_do_nothing_and_harms_nothing() {
    let plan = Plan { process: std::process::id() + 1, ..Plan::arenas(Some(4 * PAGES), None) };
    let rig = plan.build();
    assert_all_refused(&rig.spool, ErrorKind::Forked);
    assert_eq!(rig.spool.close().unwrap_err().kind(), ErrorKind::Forked);
    assert_eq!(rig.spool.stats().unwrap_err().kind(), ErrorKind::Forked);
    let error = rig.spool.restore(0, &wait()).unwrap_err();
    assert!(error.to_string().contains("`spawn`"), "{error}");
    let files = || std::fs::read_dir(rig.dir.path()).unwrap().count();
    let before = files();
    assert!(before > 0);
    drop(rig.spool);
    assert_eq!(files(), before, "the parent's files are untouched");
}

#[test]
fn a_closed_spool_holds_no_memory() {
    let rig = Plan::arenas(Some(4 * PAGES), Some(8 * PAGES)).build();
    (0..8).for_each(|version| rig.save(version, LEN).unwrap());
    rig.spool.close().unwrap();
    let arenas = rig.spool.hub().tiers.iter().filter_map(AnyTier::arena);
    let used: Vec<u64> = arenas.map(unspool_tiers::Arena::used).collect();
    assert_eq!(used, [0, 0]);
    assert_eq!(rig.spool.stats().unwrap().tiers[0].capacity, 4 * PAGES);
}

#[test]
fn a_core_that_panicked_ends_every_call_with_a_reason() {
    let rig = Plan::arenas(Some(PAGES), None).build();
    rig.gate(Operation::Put).close();
    rig.save(0, LEN).unwrap();
    std::thread::scope(|scope| {
        let saving = scope.spawn(|| rig.save(1, LEN));
        until(|| rig.spool.hub().state().waiting() == 1);
        // What a panic within a step leaves behind.
        rig.spool.hub().state().stepping = true;
        let error = saving.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert!(error.to_string().contains("its core panicked"), "{error}");
        rig.gate(Operation::Put).open();
    });
    assert_all_refused(&rig.spool, ErrorKind::Closed);
    assert_eq!(rig.spool.close().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(std::fs::read_dir(rig.dir.path()).unwrap().count(), 0);
}
