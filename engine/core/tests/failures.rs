//! Transfers that fail: what is tried again, what a refusal says.

mod support;

use support::{Bench, config, with_two_stores};
use unspool_core::{Command, CopyState, Event, Failure, Nanos, Refusal, Size, TierId, Version};

#[test]
fn a_refused_save_names_the_failure_of_the_tier_that_could_not_take_more() {
    let mut bench = Bench::new(config(8, 1, 0, 9));
    bench.save(0, 8);
    assert!(bench.fail_one(Failure::NoSpace));
    let request = bench.request();
    bench.step(Event::Save { request, version: Version(1), bytes: 8, size: Size::Exact });
    assert!(bench.fail_one(Failure::NoSpace), "the flush is tried once more for the save");
    let Some(Command::Refuse { refusal: Refusal::Full { tier, failure, .. }, .. }) =
        bench.answers.remove(&request)
    else {
        panic!("the device is full and the disk takes nothing: {:?}", bench.answers);
    };
    assert_eq!((tier.name(), failure), ("disk", Some(Failure::NoSpace)));
    assert_eq!(bench.restore(0), Ok(TierId(0)), "what was saved stays");
}

/// Fails what moves with an I/O error until it is not tried again; returns the delays.
fn delays(bench: &mut Bench) -> Vec<u64> {
    let mut delays = Vec::new();
    loop {
        assert!(bench.fail_one(Failure::Io));
        let Some(deadline) = bench.core.next_deadline() else { return delays };
        delays.push(deadline.since(bench.now).0);
        bench.now = Nanos(deadline.0 - 2);
        bench.step(Event::Tick);
        assert!(bench.moving.is_empty(), "it waits until then");
        bench.step(Event::Tick);
        assert_eq!((bench.now, bench.moving.len()), (deadline, 1), "and no longer");
    }
}

#[test]
fn each_retry_waits_twice_as_long_as_the_one_before_and_the_last_failure_stands() {
    let mut bench = Bench::new(config(8, 1, 0, 100));
    bench.save(0, 8);
    assert_eq!(delays(&mut bench), [1000, 2000], "a flush");
    assert_eq!(bench.core.stats().links[0].flush.retried, 2);
    let mut bench = Bench::new(config(8, 1, 0, 100));
    bench.save_all([1, 2], 8);
    bench.finish_all();
    bench.expect([1]);
    assert_eq!(delays(&mut bench), [1000, 2000], "a prefetch");
    assert_eq!(bench.core.stats().links[0].prefetch.retried, 2);
    assert_eq!(bench.restore(1), Ok(TierId(1)), "it is read where it is");
}

#[test]
fn an_arena_that_refuses_a_copy_is_not_asked_again_until_a_flush_is_asked_for() {
    let mut bench = Bench::new(config(8, 2, 2, 100));
    bench.save(0, 8);
    bench.fail_one(Failure::NoSpace);
    assert!(bench.moving.is_empty() && bench.core.next_deadline().is_none());
    let request = bench.request();
    bench.step(Event::Flush { request });
    assert_eq!(bench.answer(request), Command::FlushDone { request });
}

#[test]
fn a_save_does_not_wait_for_copies_that_cannot_be_flushed() {
    let mut bench = Bench::new(config(8, 2, 0, 9));
    bench.save(0, 8);
    bench.fail_one(Failure::Permanent);
    bench.save(1, 8);
    let request = bench.request();
    bench.step(Event::Save { request, version: Version(2), bytes: 16, size: Size::Exact });
    let answer = bench.answers.remove(&request);
    assert!(
        matches!(answer, Some(Command::Grant { place, .. }) if place.tier == TierId(1)),
        "version 0 stays on the device for good: {answer:?}"
    );
}

#[test]
fn a_prefetch_from_a_damaged_copy_is_made_from_the_next_slower_one() {
    let mut bench = Bench::new(with_two_stores([16, 90, 90]));
    bench.save_all(0..3, 8);
    bench.finish_all();
    bench.expect([0]);
    assert!(bench.fail_one(Failure::Corrupt));
    assert_eq!(bench.moving.front().map(|m| m.from.tier), Some(TierId(2)));
    assert_eq!(bench.deleting.front().map(|deleted| deleted.1), Some(TierId(1)));
    assert!(bench.core.is_flushed(Version(0)), "the slowest tier has it");
    bench.finish_all();
    assert_eq!(bench.restore(0), Ok(TierId(0)));
}

#[test]
fn a_flush_tries_nothing_again_for_what_is_discarded_and_still_read() {
    let mut bench = Bench::new(config(8, 2, 0, 100));
    bench.save(0, 8);
    assert!(bench.fail_one(Failure::Permanent));
    let [restore, flush] = [(); 2].map(|()| bench.request());
    bench.step(Event::Restore { request: restore, version: Version(0) });
    bench.step(Event::Discard { version: Version(0) });
    bench.step(Event::Flush { request: flush });
    assert_eq!(bench.answer(flush), Command::FlushDone { request: flush });
    assert!(bench.moving.is_empty());
    bench.step(Event::Restored { request: restore });
    assert_eq!(bench.core.stats().tiers[0].used, 0);
}

#[test]
fn every_transfer_that_failed_is_tried_again() {
    let mut bench = Bench::new(config(8, 2, 0, 100));
    bench.save_all(0..2, 8);
    assert!(bench.fail_one(Failure::Io) && bench.fail_one(Failure::Io));
    bench.now = bench.now.plus(Nanos(1000));
    bench.step(Event::Tick);
    assert_eq!(bench.moving.len(), 2);
}

#[test]
fn a_discard_gives_up_the_retries_of_its_version_alone() {
    let mut bench = Bench::new(config(8, 2, 0, 100));
    bench.save_all(0..2, 8);
    assert!(bench.fail_one(Failure::Io) && bench.fail_one(Failure::Io));
    bench.step(Event::Discard { version: Version(0) });
    bench.now = bench.now.plus(Nanos(1000));
    bench.step(Event::Tick);
    assert_eq!(bench.moving.iter().map(|m| m.version).collect::<Vec<_>>(), [Version(1)]);
}

#[test]
fn the_planner_passes_over_what_is_lost_or_was_given_up() {
    for failure in [Failure::Corrupt, Failure::Permanent] {
        let mut settings = config(8, 2, 0, 100);
        settings.links[0].max_in_flight = 1;
        let mut bench = Bench::new(settings);
        bench.save_all(0..4, 8);
        bench.finish_all();
        bench.expect([0, 1]);
        assert!(bench.fail_one(failure), "0 is on its way back");
        let moving: Vec<Version> = bench.moving.iter().map(|m| m.version).collect();
        assert_eq!(moving, [Version(1)], "{failure:?}");
    }
}

#[test]
fn a_flush_gives_up_claims_that_are_in_its_way() {
    let mut bench = Bench::new(config(8, 2, 1, 100));
    bench.step(Event::HoldPrefetch);
    bench.save_all(0..2, 8);
    bench.finish_all();
    bench.save(2, 8);
    assert!(bench.fail_one(Failure::Permanent), "2 stays on the device");
    bench.expect([1, 0]);
    bench.step(Event::StartPrefetch);
    bench.finish_all();
    assert_eq!(bench.core.copies(Version(0))[1], Some(CopyState::ReadComplete), "in the host");
    let request = bench.request();
    bench.step(Event::Flush { request });
    assert_eq!(bench.answer(request), Command::FlushDone { request });
}

#[test]
fn a_flush_that_is_tried_again_leaves_what_is_ready_for_its_restore_where_it_is() {
    let mut bench = Bench::new(config(8, 2, 0, 100));
    bench.save(0, 8);
    bench.expect([0]);
    bench.step(Event::HoldPrefetch);
    assert!(bench.fail_one(Failure::Io));
    bench.now = bench.core.next_deadline().expect("it is tried again");
    bench.step(Event::Tick);
    bench.finish_all();
    assert_eq!(bench.core.copies(Version(0))[0], Some(CopyState::ReadComplete));
}

#[test]
fn a_damaged_copy_in_the_middle_is_fetched_again_from_below_before_it_is_asked_for() {
    let mut bench = Bench::new(config(8, 1, 3, 100));
    bench.save_all(0..2, 8);
    bench.finish_all();
    assert_eq!(bench.core.copies(Version(0))[..2].iter().filter(|c| c.is_some()).count(), 1);
    bench.expect([0, 1]);
    assert_eq!(bench.moving[0].from.tier, TierId(1), "it is in the host and on the disk");
    assert!(bench.fail_one(Failure::Corrupt));
    bench.finish_all();
    assert_eq!(bench.restore(0), Ok(TierId(0)), "it came from the disk by way of the host");
}

#[test]
fn a_damaged_copy_that_is_being_read_is_fetched_again_when_the_reader_has_left() {
    let mut bench = Bench::new(config(8, 1, 3, 100));
    bench.save_all(0..2, 8);
    bench.finish_all();
    bench.step(Event::HoldPrefetch);
    let reader = bench.request();
    bench.step(Event::Restore { request: reader, version: Version(0) });
    bench.expect([0, 1]);
    bench.step(Event::StartPrefetch);
    assert!(bench.fail_one(Failure::Corrupt));
    bench.step(Event::RestoreAborted { request: reader });
    bench.finish_all();
    assert_eq!(bench.restore(0), Ok(TierId(0)));
}
