//! The order in which copies that wait for a flush have their turn.

mod support;

use support::{Bench, config};
use unspool_core::{Config, Event, LinkConfig, TierId, Version};

/// The tier below the device: a disk, or the host.
const BELOW: TierId = TierId(1);

/// Room for eight on the device, above a disk, by a link that carries one at a time.
fn narrow(discard_after_restore: bool) -> Bench {
    with_room(8, discard_after_restore)
}

/// A device with room for `room` checkpoints of 8 bytes, above a disk, by a link that carries one
/// at a time.
fn with_room(room: u64, discard_after_restore: bool) -> Bench {
    let made = config(8, room, 0, 1000);
    let links = vec![LinkConfig { max_in_flight: 1, ..made.links[0] }];
    Bench::new(Config { links, discard_after_restore, ..made })
}

/// Ends all transfers, and gives the versions in the order in which they went down.
fn flushed(bench: &mut Bench) -> Vec<i64> {
    let mut versions = Vec::new();
    while let Some(moving) = bench.moving.front() {
        versions.extend((moving.to.tier == BELOW).then_some(moving.version.0));
        bench.finish_one();
    }
    versions
}

#[test]
fn without_hints_copies_go_in_the_order_in_which_they_came() {
    let mut bench = narrow(false);
    bench.save_all(0..5, 8);
    assert_eq!(flushed(&mut bench), [0, 1, 2, 3, 4]);
}

#[test]
fn what_no_hint_names_goes_before_what_will_be_read() {
    let mut bench = narrow(false);
    bench.expect([1, 2]);
    bench.save_all(0..5, 8);
    let found = flushed(&mut bench);
    assert_eq!(found[..3], [0, 3, 4], "{found:?}");
}

#[test]
fn of_what_stays_the_newest_goes_first_into_a_store() {
    for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]] {
        let mut bench = narrow(false);
        bench.step(Event::HoldPrefetch);
        bench.expect(order);
        bench.save_all(0..5, 8);
        // The first was alone when its flush began.
        assert_eq!(flushed(&mut bench), [0, 4, 3, 2, 1], "{order:?}");
    }
}

#[test]
fn of_what_stays_the_oldest_goes_first_into_an_arena() {
    let made = config(8, 8, 100, 0);
    let links = vec![LinkConfig { max_in_flight: 1, ..made.links[0] }];
    let mut bench = Bench::new(Config { links, ..made });
    bench.step(Event::HoldPrefetch);
    bench.expect([2, 0, 4, 1, 3]);
    bench.save_all(0..5, 8);
    assert_eq!(flushed(&mut bench), [0, 1, 2, 3, 4]);
}

#[test]
fn of_what_is_discarded_after_its_restore_the_last_one_to_be_used_goes_first() {
    let mut bench = narrow(true);
    bench.step(Event::HoldPrefetch);
    // Flushes are spared where there is room for all: ten more are announced.
    bench.expect([2, 0, 4, 1, 3]);
    bench.expect(10..20);
    bench.save_all(0..5, 8);
    let found = flushed(&mut bench);
    assert_eq!(found[1..], [3, 1, 4, 2], "{found:?}");
}

#[test]
fn copies_of_different_sizes_go_in_the_order_in_which_they_came() {
    let mut bench = narrow(false);
    bench.step(Event::HoldPrefetch);
    bench.expect([2, 0, 4, 1, 3]);
    for version in 0..5 {
        bench.save_all([version], 8 + version as u64);
    }
    assert_eq!(flushed(&mut bench), [0, 1, 2, 3, 4]);
}

#[test]
fn what_a_flush_call_waits_for_goes_before_what_came_later() {
    let mut bench = narrow(false);
    bench.step(Event::HoldPrefetch);
    bench.expect([0, 1, 2, 3, 4, 5]);
    bench.save_all(0..3, 8);
    let request = bench.request();
    bench.step(Event::Flush { request });
    bench.save_all(3..6, 8);
    let found = flushed(&mut bench);
    assert_eq!(found[..3], [0, 1, 2], "{found:?}");
}

#[test]
fn a_link_without_work_makes_room_for_saves_that_are_announced() {
    let announced = |count: i64| {
        let mut bench = narrow(true);
        bench.step(Event::HoldPrefetch);
        bench.expect(0..count);
        bench.save_all(0..4, 8);
        flushed(&mut bench).len()
    };
    assert_eq!(announced(8), 0, "all of them fit");
    assert_eq!(announced(10), 2, "two of them do not");
    assert_eq!(announced(100), 4);
}

#[test]
fn a_link_makes_room_for_saves_that_will_be_larger_than_those_before() {
    let announced = |count: i64, size: fn(i64) -> u64| {
        let mut bench = with_room(64, true);
        bench.step(Event::HoldPrefetch);
        bench.expect(0..count);
        (0..8).for_each(|version| bench.save_all([version], 8 * size(version)));
        flushed(&mut bench).len()
    };
    let growing: fn(i64) -> u64 = |version| version as u64 + 1;
    assert_eq!(announced(10, growing), 0, "1 + 2 + ... + 10 fit into 64");
    assert!(
        announced(12, growing) > 0,
        "1 + 2 + ... + 12 do not, though 12 times the mean of 8 do"
    );
    assert_eq!(announced(12, |version| [4, 5][version as usize % 2]), 0, "12 times 4.5 fit");
}

#[test]
fn a_copy_that_leaves_while_it_waits_leaves_the_queue() {
    let mut bench = narrow(false);
    bench.save_all(0..5, 8);
    for version in [1, 3] {
        bench.step(Event::Discard { version: Version(version) });
    }
    bench.save_all([1], 8);
    assert_eq!(flushed(&mut bench), [0, 2, 4, 1]);
}
