//! Flushes into a store wait while the application waits for what it reads from there.

mod support;

use support::{Bench, config};
use unspool_core::{Config, Event, LinkConfig, Nanos, RequestId, TransferKind, Version};

const SECOND: u64 = 1_000_000_000;

/// Room for three on the device, above a durable disk, by a link that carries one at a time.
/// Version 0 is on the disk alone, 1 is on its way there, 2 and 3 wait for their flush.
fn bench() -> Bench {
    bench_of(true)
}

fn bench_of(durable: bool) -> Bench {
    let made = config(8, 3, 0, 1000);
    let links = vec![LinkConfig { max_in_flight: 1, ..made.links[0] }];
    let mut bench = Bench::new(Config { links, durable, ..made });
    bench.save_all(0..3, 8);
    assert!(bench.finish_one());
    bench.save_all([3], 8);
    assert_eq!(flushing(&bench), [1]);
    bench
}

/// The versions on their way to the disk.
fn flushing(bench: &Bench) -> Vec<i64> {
    let down = bench.moving.iter().filter(|moving| moving.kind == TransferKind::Flush);
    down.map(|moving| moving.version.0).collect()
}

/// A restore of version 0, which reads the disk, and has not ended.
fn reading(bench: &mut Bench) -> RequestId {
    let request = bench.request();
    bench.step(Event::Restore { request, version: Version(0) });
    assert!(bench.answers.contains_key(&request), "it is served from the disk");
    request
}

fn pass(bench: &mut Bench, nanos: u64) {
    bench.now = bench.now.plus(Nanos(nanos));
    bench.step(Event::Tick);
}

#[test]
fn no_flush_begins_while_a_restore_reads_the_disk_and_for_as_long_again() {
    let mut bench = bench();
    let request = reading(&mut bench);
    bench.finish_one();
    assert!(flushing(&bench).is_empty(), "the one that was in flight has ended");
    pass(&mut bench, SECOND / 10);
    bench.step(Event::Restored { request });
    assert!(flushing(&bench).is_empty());
    let end = bench.core.next_deadline().expect("the end of the pause");
    assert!(end.0.abs_diff(bench.now.0 + SECOND / 10) < 100, "{end:?}, now {:?}", bench.now);
    let left = end.0 - bench.now.0;
    pass(&mut bench, left - 2);
    assert!(flushing(&bench).is_empty());
    pass(&mut bench, 1);
    assert_eq!(flushing(&bench), [2]);
    bench.finish_all();
    assert_eq!(bench.core.next_deadline(), None);
}

#[test]
fn one_flush_a_second_begins_however_much_is_read() {
    let mut bench = bench();
    let request = reading(&mut bench);
    bench.finish_one();
    pass(&mut bench, SECOND / 2);
    bench.step(Event::Restored { request });
    let request = reading(&mut bench);
    assert!(flushing(&bench).is_empty());
    pass(&mut bench, SECOND / 2);
    assert_eq!(flushing(&bench), [2]);
    bench.finish_one();
    assert!(flushing(&bench).is_empty());
    bench.step(Event::Restored { request });
    let end = bench.core.next_deadline().expect("the end of the pause");
    assert!(end.0.abs_diff(bench.now.0 + SECOND / 2) < 100, "{end:?}, now {:?}", bench.now);
    reading(&mut bench);
    pass(&mut bench, SECOND);
    assert_eq!(flushing(&bench), [3]);
}

#[test]
fn flushes_that_only_make_room_wait_for_as_long_as_reads_follow_each_other() {
    let mut bench = bench_of(false);
    for _ in 0..20 {
        let request = reading(&mut bench);
        bench.finish_one();
        pass(&mut bench, SECOND / 2);
        bench.step(Event::Restored { request });
        pass(&mut bench, SECOND / 2 - 1);
        assert!(flushing(&bench).is_empty());
    }
    pass(&mut bench, 1);
    assert_eq!(flushing(&bench), [2]);
}

#[test]
fn a_hint_ends_a_pause_that_lasts_longer_than_a_second() {
    let mut bench = bench_of(false);
    let request = reading(&mut bench);
    bench.finish_one();
    pass(&mut bench, 2 * SECOND);
    assert!(flushing(&bench).is_empty());
    bench.expect([0]);
    assert_eq!(flushing(&bench), [2]);
    bench.step(Event::Restored { request });
}

#[test]
fn a_caller_that_holds_on_to_what_it_has_read_ends_the_pause() {
    let mut bench = bench();
    reading(&mut bench);
    bench.finish_one();
    pass(&mut bench, 10 * SECOND);
    assert_eq!(flushing(&bench), [2]);
    bench.finish_one();
    assert_eq!(flushing(&bench), [3]);
}

#[test]
fn of_two_reads_the_one_that_lasts_longer_counts() {
    let mut bench = bench();
    let (one, two) = (reading(&mut bench), reading(&mut bench));
    bench.finish_one();
    bench.step(Event::Restored { request: one });
    pass(&mut bench, SECOND / 2);
    assert!(flushing(&bench).is_empty());
    bench.step(Event::Restored { request: two });
    pass(&mut bench, SECOND);
    assert_eq!(flushing(&bench), [2]);
}

#[test]
fn a_flush_call_ends_the_pause() {
    let mut bench = bench();
    reading(&mut bench);
    bench.finish_one();
    let request = bench.request();
    bench.step(Event::Flush { request });
    assert_eq!(flushing(&bench), [2]);
}

#[test]
fn a_save_that_waits_for_room_ends_the_pause() {
    let mut bench = bench();
    let request = reading(&mut bench);
    bench.finish_one();
    // Version 1 is on the disk and can be evicted, which is room for one more. 2 and 3 have to be
    // flushed before they can make any.
    assert!(bench.core.next_deadline().is_some());
    bench.save_all([4], 8);
    assert_eq!(flushing(&bench), [2], "the application saves");
    bench.step(Event::Restored { request });
    bench.save_all([5], 8);
}

/// As `bench`, with a prefetch of version 0 that a restore waits for, and 4 waiting for its flush.
fn waiting() -> (Bench, RequestId) {
    let mut bench = bench();
    bench.finish_one();
    bench.finish_one();
    bench.expect([0]);
    let kinds: Vec<_> = bench.moving.iter().map(|moving| moving.kind).collect();
    assert_eq!(kinds, [TransferKind::Flush, TransferKind::Prefetch], "3 goes down, 0 comes up");
    bench.save_all([4], 8);
    let request = bench.request();
    bench.step(Event::Restore { request, version: Version(0) });
    assert!(!bench.answers.contains_key(&request), "it waits for the prefetch");
    assert!(bench.finish_one(), "the flush of 3");
    assert!(flushing(&bench).is_empty(), "{:?}", bench.moving);
    (bench, request)
}

#[test]
fn a_prefetch_that_a_restore_waits_for_pauses_flushes_as_well() {
    let (mut bench, request) = waiting();
    pass(&mut bench, SECOND / 10);
    assert!(bench.finish_one(), "the prefetch of 0");
    bench.answer(request);
    bench.step(Event::Restored { request });
    assert!(flushing(&bench).is_empty());
    pass(&mut bench, SECOND / 5);
    assert_eq!(flushing(&bench), [4]);
}

#[test]
fn a_restore_that_is_withdrawn_ends_its_pause_like_one_that_was_served() {
    let (mut bench, request) = waiting();
    pass(&mut bench, SECOND / 10);
    bench.step(Event::Withdraw { request });
    assert!(flushing(&bench).is_empty());
    pass(&mut bench, SECOND / 5);
    assert_eq!(flushing(&bench), [4]);
}
