//! Flushes are put off where those before them were in vain, until room is needed.

mod support;

use support::{Bench, config};
use unspool_core::{Config, Event, TierId, Version};

const UNIT: u64 = 8;

/// Room for eight on the device, above a disk.
fn bench_of(durable: bool) -> Bench {
    Bench::new(Config { durable, ..config(UNIT, 8, 0, 1000) })
}

fn discard(bench: &mut Bench, version: i64) {
    bench.step(Event::Discard { version: Version(version) });
}

/// Saves `count`, restores them in reverse, discards them; the flushes that began.
fn iterate(bench: &mut Bench, count: i64) -> usize {
    let before = bench.transfers_to(1);
    bench.save_all(0..count, UNIT);
    bench.finish_all();
    for version in (0..count).rev() {
        bench.restore(version).expect("it is there");
        discard(bench, version);
    }
    bench.finish_all();
    bench.transfers_to(1) - before
}

/// A loop of six that fits, whose flushes were in vain for twice as much as the device holds.
fn thrifty() -> Bench {
    let mut bench = bench_of(false);
    assert_eq!([(); 3].map(|()| iterate(&mut bench, 6)), [6, 6, 6]);
    bench
}

#[test]
fn a_loop_that_fits_is_flushed_until_two_arenas_were_in_vain() {
    let mut bench = thrifty();
    for _ in 0..5 {
        assert_eq!(iterate(&mut bench, 6), 0);
    }
    let flushes = bench.core.stats().links[0].flush;
    assert_eq!((flushes.transfers, flushes.skipped), (18, 30));
}

#[test]
fn what_does_not_fit_is_flushed_at_once_in_every_iteration() {
    let mut bench = bench_of(false);
    for _ in 0..5 {
        let before = bench.transfers_to(1);
        bench.save_all(0..1, UNIT);
        assert_eq!(bench.transfers_to(1), before + 1);
        discard(&mut bench, 0);
        bench.finish_all();
        assert_eq!(iterate(&mut bench, 12), 12);
    }
}

#[test]
fn a_durable_disk_gets_everything_at_once() {
    let mut bench = bench_of(true);
    for _ in 0..5 {
        assert_eq!(iterate(&mut bench, 6), 6);
    }
}

#[test]
fn flushes_begin_when_three_quarters_wait() {
    let mut bench = thrifty();
    bench.save_all(0..6, UNIT);
    assert!(bench.moving.is_empty());
    bench.save_all([6], UNIT);
    assert_eq!(bench.moving.front().map(|moving| moving.version), Some(Version(0)));
}

#[test]
fn a_loop_that_has_outgrown_its_arena_is_flushed_at_once_again() {
    let mut bench = thrifty();
    assert_eq!(iterate(&mut bench, 12), 12, "all are flushed once room is needed");
    assert_eq!([(); 3].map(|()| iterate(&mut bench, 6)), [6, 6, 0]);
}

#[test]
fn a_save_without_room_is_granted_and_ends_it() {
    let mut bench = thrifty();
    bench.save_all(0..5, UNIT);
    assert!(bench.moving.is_empty());
    bench.save_all([5], 4 * UNIT);
    bench.finish_all();
    assert!(bench.core.copies(Version(5))[1].is_some(), "flushed at once");
    for version in 0..6 {
        bench.restore(version).expect("nothing is lost");
    }
}

#[test]
fn a_flush_call_gets_what_was_put_off() {
    let mut bench = thrifty();
    bench.save_all(0..4, UNIT);
    assert!(bench.moving.is_empty());
    let request = bench.request();
    bench.step(Event::Flush { request });
    bench.answer(request);
    assert!((0..4).all(|version| bench.core.is_flushed(Version(version))));
}

#[test]
fn hints_for_what_is_in_memory_begin_no_flush() {
    let mut bench = thrifty();
    bench.save_all(0..6, UNIT);
    bench.expect((0..6).rev());
    for version in (0..6).rev() {
        assert_eq!(bench.restore(version), Ok(TierId(0)));
        discard(&mut bench, version);
    }
    assert!(bench.moving.is_empty() && bench.core.hints() == 0);
}
