//! Waits end: in time, on request, and without leaving anything behind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use unspool_testkit::Operation;

use super::common::{bytes_spec, wait};
use super::faults::until;
use super::{Plan, Rig, assert_consistent};
use crate::{ErrorKind, Wait};

const LEN: usize = 4096;
const PAGES: u64 = 4096;

/// A rig whose arena is full and whose disk accepts nothing until its gate is opened.
fn stuck(pages: u64) -> Rig {
    let rig = Plan::arenas(Some(pages * PAGES), None).with_manual_clock().build();
    rig.gate(Operation::Put).close();
    (0..pages as i64).for_each(|version| rig.save(version, LEN).unwrap());
    rig
}

/// Lets time pass until `done`.
fn pass_time_until(rig: &Rig, done: impl Fn() -> bool) {
    until(|| {
        rig.clock.advance(Duration::from_secs(1));
        done()
    });
}

#[test]
fn a_wait_for_room_ends_in_time_and_says_what_it_waited_for() {
    let rig = stuck(2);
    let error = std::thread::scope(|scope| {
        let rig = &rig;
        let saving = scope.spawn(|| {
            let wait = Wait::at_most(Duration::from_secs(20));
            rig.spool.save(2, bytes_spec(LEN), &wait).unwrap_err()
        });
        pass_time_until(rig, || saving.is_finished());
        saving.join().unwrap()
    });
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let text = error.to_string();
    for part in [
        "Waited 20.0 s for room for version 2 (4 KiB)",
        "device uses 8 KiB (8192 bytes) of 8 KiB (8192 bytes)",
        "device-disk: 2 flushes and 0 prefetches under way",
        "Raise `timeout`",
    ] {
        assert!(text.contains(part), "{part:?} is missing in {text:?}");
    }
    assert_consistent(&rig.spool);
    rig.gate(Operation::Put).open();
    rig.save(2, LEN).unwrap();
    (0..3).for_each(|version| rig.restore(version, LEN).unwrap());
}

#[test]
fn a_wait_for_bytes_names_the_tier_that_they_come_from() {
    let plan = Plan::arenas(Some(2 * PAGES), None).with_manual_clock();
    // With one worker checkpoints become evictable in the order of their saves.
    let rig = plan.with(|s| s.store_workers = 1).build();
    (0..6).for_each(|version| rig.save(version, LEN).unwrap());
    rig.spool.flush(&wait()).unwrap();
    rig.gate(Operation::Get).close();
    rig.spool.expect([0, 1]).unwrap();
    assert!(rig.gate(Operation::Get).wait_until_waiting(1));
    let error = std::thread::scope(|scope| {
        let rig = &rig;
        let restoring = scope.spawn(|| rig.spool.restore(0, &wait()).unwrap_err());
        pass_time_until(rig, || restoring.is_finished());
        restoring.join().unwrap()
    });
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let part = "the bytes of version 0, which are on their way from the disk tier";
    assert!(error.to_string().contains(part), "{error}");
    rig.gate(Operation::Get).open();
    rig.restore(0, LEN).unwrap();
    assert_consistent(&rig.spool);
}

#[test]
fn a_wait_of_no_time_asks_once() {
    let rig = stuck(1);
    let error = rig.spool.save(1, bytes_spec(LEN), &Wait::at_most(Duration::ZERO)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(rig.spool.restore(0, &Wait::at_most(Duration::ZERO)).is_ok());
    rig.gate(Operation::Put).open();
}

#[test]
fn a_wait_without_a_limit_of_its_own_has_that_of_the_settings() {
    let plan = Plan::arenas(Some(PAGES), None).with_manual_clock();
    let rig = plan.with(|s| s.timeout = Duration::from_secs(7)).build();
    rig.gate(Operation::Put).close();
    rig.save(0, LEN).unwrap();
    let error = std::thread::scope(|scope| {
        let rig = &rig;
        let flushing = scope.spawn(|| rig.spool.flush(&Wait::default()).unwrap_err());
        pass_time_until(rig, || flushing.is_finished());
        flushing.join().unwrap()
    });
    assert!(error.to_string().contains("Waited 7.0 s for 1 checkpoints"), "{error}");
    rig.gate(Operation::Put).open();
}

#[test]
fn a_wait_ends_when_the_caller_is_interrupted() {
    let rig = stuck(1);
    let asked = AtomicU32::new(0);
    let interrupted = || asked.fetch_add(1, Ordering::Relaxed) == 3;
    let wait = Wait { interrupted: &interrupted, ..Wait::default() };
    let error = rig.spool.save(1, bytes_spec(LEN), &wait).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert!(error.to_string().contains("room for version 1"), "{error}");
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    assert_consistent(&rig.spool);
    rig.gate(Operation::Put).open();
    rig.save(1, LEN).unwrap();
}

#[test]
fn a_panic_in_the_callers_check_leaves_the_spool_usable() {
    let rig = stuck(1);
    let interrupted = || panic!("the caller's check");
    let wait = Wait { interrupted: &interrupted, ..Wait::default() };
    let save = AssertUnwindSafe(|| drop(rig.spool.save(1, bytes_spec(LEN), &wait)));
    assert!(catch_unwind(save).is_err());
    assert_consistent(&rig.spool);
    rig.gate(Operation::Put).open();
    rig.save(1, LEN).unwrap();
    rig.restore(1, LEN).unwrap();
}

#[test]
fn a_panic_between_save_and_commit_gives_the_save_up() {
    let rig = Plan::arenas(Some(4 * PAGES), None).build();
    let save = AssertUnwindSafe(|| {
        let mut ticket = rig.spool.save(1, bytes_spec(LEN), &wait()).unwrap();
        ticket.host_region(0).unwrap().fill(1);
        panic!("the caller's gather");
    });
    assert!(catch_unwind(save).is_err());
    assert_consistent(&rig.spool);
    rig.save(1, LEN).unwrap();
    let restore = AssertUnwindSafe(|| {
        let _ticket = rig.spool.restore(1, &wait()).unwrap();
        panic!("the caller's scatter");
    });
    assert!(catch_unwind(restore).is_err());
    rig.restore(1, LEN).unwrap();
    assert_consistent(&rig.spool);
}

#[test]
fn the_caller_may_use_the_spool_in_its_own_check() {
    let rig = stuck(1);
    let opened = AtomicBool::new(false);
    let interrupted = || {
        assert!(rig.spool.contains(0).unwrap());
        rig.gate(Operation::Put).open();
        opened.store(true, Ordering::Relaxed);
        false
    };
    let wait = Wait { interrupted: &interrupted, ..Wait::default() };
    rig.spool.save(1, bytes_spec(LEN), &wait).unwrap().commit().unwrap();
    assert!(opened.load(Ordering::Relaxed));
}

#[test]
fn the_restore_order_may_be_made_while_it_is_told() {
    let rig = Plan::arenas(Some(4 * PAGES), None).build();
    (0..4).for_each(|version| rig.save(version, LEN).unwrap());
    let order = (0..4).filter(|version| rig.spool.contains(*version).unwrap());
    rig.spool.expect(order).unwrap();
    assert_eq!(rig.spool.stats().unwrap().application.hints, 4);
    rig.spool.expect((0..5000).map(|i| i % 4)).unwrap();
    assert_eq!(rig.spool.stats().unwrap().application.hints, 5004);
}

#[test]
fn a_discard_during_its_flush_frees_everything() {
    let rig = stuck(2);
    assert!(rig.gate(Operation::Put).wait_until_waiting(2));
    rig.spool.discard(0).unwrap();
    assert_eq!(rig.spool.restore(0, &wait()).unwrap_err().kind(), ErrorKind::Discarded);
    rig.gate(Operation::Put).open();
    rig.spool.flush(&wait()).unwrap();
    rig.restore(1, LEN).unwrap();
    until(|| rig.spool.stats().unwrap().tiers[1].used == 2 * PAGES);
    assert_consistent(&rig.spool);
    rig.save(0, LEN).unwrap();
    rig.restore(0, LEN).unwrap();
}

#[test]
fn waits_are_counted_as_stalls_and_nothing_else_is() {
    let rig = stuck(1);
    rig.restore(0, LEN).unwrap();
    let stats = rig.spool.stats().unwrap();
    assert_eq!(stats.application.save_stall, Duration::ZERO);
    assert_eq!(stats.application.restore_stall, Duration::ZERO);
    assert_eq!(stats.application.longest_stall, None);
    std::thread::scope(|scope| {
        let saving = scope.spawn(|| rig.save(1, LEN));
        until(|| rig.spool.shared().state().waiting() == 1);
        rig.clock.advance(Duration::from_secs(3));
        rig.gate(Operation::Put).open();
        saving.join().unwrap().unwrap();
    });
    let stats = rig.spool.stats().unwrap().application;
    assert_eq!(stats.save_stall, Duration::from_secs(3));
    let longest = stats.longest_stall.unwrap();
    assert_eq!((longest.call, longest.version, longest.time.as_secs()), ("save", 1, 3));
}
