//! The end of a spool: once, bounded, whoever asks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use unspool_core::{CheckpointId, Failure, TierId};
use unspool_testkit::{Fault, Operation};
use unspool_tiers::AnyTier;
use unspool_transfer::Submitted;

use super::common::{Change, bytes_spec, wait};
use super::faults::until;
use super::{Plan, Rig};
use crate::{DiskSettings, ErrorKind, Spool, Unflushed, Wait};

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
        let engine = &rig.spool.shared().engine;
        until(|| engine.delete(CheckpointId(99), TierId(1)) == Submitted::NeverRuns);
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
        until(|| rig.spool.shared().state().waiting() == 2);
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

/// A durable rig with `saves` checkpoints whose disk takes nothing: it has no space.
fn without_space(saves: i64) -> Rig {
    let rig = Plan::arenas(Some(8 * PAGES), None).with(DURABLE).with(|s| s.max_retries = 0).build();
    rig.faults.always(Operation::Put, Fault::Fail(Failure::NoSpace));
    (0..saves).for_each(|version| rig.save(version, LEN).unwrap());
    rig
}

fn versions_of(error: &crate::Error) -> Vec<i64> {
    error.unsaved().iter().map(|(version, _)| *version).collect()
}

/// What a later run finds.
fn reopened(rig: Rig) -> Rig {
    let Rig { spool, faults, gated, dir, .. } = rig;
    drop((spool, faults, gated));
    Plan::arenas(Some(8 * PAGES), None).with(DURABLE).build_in(dir)
}

#[test]
fn a_durable_close_that_is_refused_leaves_the_spool_open_for_another_try() {
    let rig = without_space(3);
    let error = rig.spool.close().unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Full, true));
    assert_eq!(versions_of(&error), [0, 1, 2]);
    for part in ["Version 0 cannot be flushed", "Versions 0, 1 and 2 are not durable yet", "open"] {
        assert!(error.to_string().contains(part), "{part:?} is missing in {error}");
    }
    assert!(!rig.spool.is_closed());
    (0..3).for_each(|version| rig.restore(version, LEN).unwrap());
    assert_eq!(rig.spool.flush(&wait()).unwrap_err().kind(), ErrorKind::Full);
    assert_eq!(rig.spool.close().unwrap_err().kind(), ErrorKind::Full, "as before");
    rig.faults.heal();
    rig.save(3, LEN).unwrap();
    rig.spool.close().unwrap();
    assert!(rig.spool.is_closed());
    let again = reopened(rig);
    (0..4).for_each(|version| again.restore(version, LEN).unwrap());
}

#[test]
fn a_durable_close_that_gives_up_names_what_goes_and_keeps_the_rest() {
    let rig = without_space(0);
    rig.faults.heal();
    rig.save(0, LEN).unwrap();
    rig.spool.flush(&wait()).unwrap();
    rig.faults.always(Operation::Put, Fault::Fail(Failure::NoSpace));
    (1..4).for_each(|version| rig.save(version, LEN).unwrap());
    let error = rig.spool.close_as(Unflushed::Discard, &wait()).unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Full, false));
    assert_eq!(versions_of(&error), [1, 2, 3]);
    let text = error.to_string();
    assert!(text.contains("given up what was not durable: versions 1, 2 and 3."), "{text}");
    assert!(rig.spool.is_closed());
    rig.spool.close().unwrap();
    assert_eq!(reopened(rig).spool.versions().unwrap(), [0]);
}

#[test]
fn a_durable_close_ends_in_its_time_and_can_be_repeated() {
    let rig = Plan::arenas(Some(8 * PAGES), None).with(DURABLE).build();
    rig.gate(Operation::Put).close();
    (0..3).for_each(|version| rig.save(version, LEN).unwrap());
    let short = Wait::at_most(Duration::from_millis(20));
    let error = rig.spool.close_as(Unflushed::Keep, &short).unwrap_err();
    assert_eq!((error.kind(), versions_of(&error)), (ErrorKind::Timeout, vec![0, 1, 2]));
    let figures = rig.spool.stats().unwrap().application;
    assert_eq!((figures.unflushed, figures.unflushed_bytes), (3, 3 * LEN as u64));
    rig.gate(Operation::Put).open();
    rig.spool.close().unwrap();
    assert_eq!(rig.spool.stats().unwrap().application.unflushed, 0);
    assert_eq!(reopened(rig).spool.versions().unwrap(), [0, 1, 2]);
}

#[test]
fn what_was_discarded_while_it_was_read_does_not_come_back() {
    let rig = Plan::arenas(Some(2 * PAGES), None).with(DURABLE).with(|s| s.store_workers = 1);
    let rig = rig.build();
    (0..6).for_each(|version| rig.save(version, LEN).unwrap());
    rig.spool.flush(&wait()).unwrap();
    rig.gate(Operation::Get).close();
    rig.spool.expect([0, 1]).unwrap();
    assert!(rig.gate(Operation::Get).wait_until_waiting(1));
    rig.spool.discard(0).unwrap();
    let reads_on = || {
        rig.gate(Operation::Get).open();
        false
    };
    let wait = Wait { interrupted: &reads_on, ..wait() };
    rig.spool.close_as(Unflushed::Keep, &wait).unwrap();
    assert_eq!(reopened(rig).spool.versions().unwrap(), [1, 2, 3, 4, 5]);
}

#[test]
fn an_interrupt_ends_a_durable_close_whatever_it_waits_for() {
    for operation in [Operation::Put, Operation::Sync] {
        let rig = Plan::arenas(Some(8 * PAGES), None).with(DURABLE).build();
        rig.gate(operation).close();
        rig.save(0, LEN).unwrap();
        let waits = || rig.gate(operation).wait_until_waiting(1);
        let wait = Wait { interrupted: &waits, ..wait() };
        let error = rig.spool.close_as(Unflushed::Keep, &wait).unwrap_err();
        assert_eq!((error.kind(), versions_of(&error)), (ErrorKind::Interrupted, vec![0]));
        assert!(!rig.spool.is_closed());
        let error = rig.spool.close_as(Unflushed::Discard, &wait).unwrap_err();
        assert_eq!((error.kind(), versions_of(&error)), (ErrorKind::Interrupted, vec![0]));
        assert!(rig.spool.is_closed());
        rig.gate(operation).open();
    }
}

#[test]
fn a_close_waits_for_another_one_and_goes_on_where_that_has_failed() {
    let rig = Plan::arenas(Some(8 * PAGES), None).with(DURABLE).build();
    rig.gate(Operation::Put).close();
    rig.save(0, LEN).unwrap();
    let give_up = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let interrupted = || give_up.load(Ordering::Relaxed);
            rig.spool.close_as(Unflushed::Keep, &Wait { interrupted: &interrupted, ..wait() })
        });
        until(|| rig.spool.is_closed());
        let short = Wait::at_most(Duration::from_millis(20));
        let late = rig.spool.close_as(Unflushed::Keep, &short).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Timeout);
        let second = scope.spawn(|| rig.spool.close());
        give_up.store(true, Ordering::Relaxed);
        assert_eq!(first.join().unwrap().unwrap_err().kind(), ErrorKind::Interrupted);
        rig.gate(Operation::Put).open();
        second.join().unwrap().unwrap();
    });
    assert_eq!(reopened(rig).spool.versions().unwrap(), [0]);
}

#[test]
fn a_panic_in_the_callers_check_leaves_the_spool_open() {
    let rig = Plan::arenas(Some(8 * PAGES), None).with(DURABLE).build();
    rig.gate(Operation::Put).close();
    rig.save(0, LEN).unwrap();
    let panics = || panic!("the caller's fault");
    let wait = Wait { interrupted: &panics, ..wait() };
    let close = || rig.spool.close_as(Unflushed::Keep, &wait);
    assert!(catch_unwind(AssertUnwindSafe(close)).is_err());
    rig.gate(Operation::Put).open();
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
        saving.host_region(0).unwrap().fill(1);
        large.host_region(0).unwrap().fill(2);
        assert_eq!(restoring.host_region(0).unwrap(), super::common::content(0, LEN));
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
    let arenas = rig.spool.shared().tiers.iter().filter_map(AnyTier::arena);
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
        until(|| rig.spool.shared().state().waiting() == 1);
        // What a panic within a step leaves behind.
        rig.spool.shared().state().stepping = true;
        let error = saving.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert!(error.to_string().contains("its core panicked"), "{error}");
        rig.gate(Operation::Put).open();
    });
    assert_all_refused(&rig.spool, ErrorKind::Closed);
    assert_eq!(rig.spool.close().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(std::fs::read_dir(rig.dir.path()).unwrap().count(), 0);
}

#[test]
fn a_checkpoint_that_was_lost_before_does_not_hold_a_close_up() {
    let rig = Plan::arenas(Some(PAGES), None).with(DURABLE).build();
    rig.faults.on_nth(Operation::Put, 1, Fault::FlipBit { at: 5000 });
    rig.save(0, LEN).unwrap();
    rig.save(1, LEN).unwrap();
    rig.spool.discard(1).unwrap();
    rig.spool.expect([0]).unwrap();
    until(|| rig.spool.stats().unwrap().links[0].prefetch.failed > 0);
    assert_eq!(rig.restore(0, LEN).unwrap_err().kind(), ErrorKind::Lost);
    assert!(!rig.spool.durable(0).unwrap());
    rig.spool.close().unwrap();
}
