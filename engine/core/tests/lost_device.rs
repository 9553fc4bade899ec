//! A device that is lost while the spool goes on.

mod support;

use support::{Bench, config};
use unspool_core::{Command, Event, Failure, Refusal, TierId, Version};

const DEVICE: TierId = TierId(0);
const LOST: Event = Event::TierFailed { tier: DEVICE };

#[test]
fn what_another_tier_has_is_served_from_there_and_nothing_goes_to_the_device() {
    let mut bench = Bench::new(config(8, 2, 3, 9));
    bench.save_all(0..6, 8);
    bench.finish_all();
    bench.expect(0..6);
    bench.step(LOST);
    let before = bench.transfers_to(0);
    bench.finish_all();
    for version in 0..6 {
        assert!(bench.restore(version).unwrap() > DEVICE, "{version}");
    }
    bench.save_all(6..8, 8);
    bench.finish_all();
    assert!(bench.restore(7).unwrap() > DEVICE);
    assert_eq!(bench.transfers_to(0), before);
}

#[test]
fn what_is_in_the_device_alone_stays_and_a_flush_names_it() {
    let mut bench = Bench::new(config(8, 4, 4, 9));
    bench.save_all(0..1, 8);
    bench.finish_all();
    bench.save_all(1..2, 8);
    bench.step(LOST);
    while bench.moving.front().is_some_and(|m| m.from.tier == DEVICE) {
        bench.fail_one(Failure::Permanent);
    }
    assert_eq!(bench.restore(1), Ok(DEVICE), "whoever reads it hears why that fails");
    let flush = bench.request();
    bench.step(Event::Flush { request: flush });
    assert!(bench.fail_one(Failure::Permanent), "it is tried once more");
    let Command::Refuse { refusal: Refusal::FlushFailed { version, .. }, .. } = bench.answer(flush)
    else {
        panic!("it is flushed")
    };
    assert_eq!(version, Version(1));
    assert!(bench.core.is_flushed(Version(0)) && !bench.core.is_flushed(Version(1)));
    bench.step(Event::Discard { version: Version(1) });
    let flush = bench.request();
    bench.step(Event::Flush { request: flush });
    assert_eq!(bench.answer(flush), Command::FlushDone { request: flush });
}

#[test]
fn a_flush_that_arrives_after_the_loss_is_the_copy_to_read() {
    let mut bench = Bench::new(config(8, 2, 2, 0));
    bench.save_all(0..1, 8);
    bench.step(LOST);
    bench.finish_all();
    assert_eq!(bench.restore(0), Ok(TierId(1)));
    assert_eq!(bench.core.copies(Version(0))[0], None);
}

#[test]
fn without_another_tier_saves_are_refused() {
    let mut bench = Bench::new(config(8, 2, 0, 0));
    bench.save_all(0..1, 8);
    bench.step(LOST);
    let answer = bench.save(1, 8);
    let refused =
        |c| matches!(c, Command::Refuse { refusal: Refusal::TooLarge { largest: 0 }, .. });
    assert!(refused(answer), "{answer:?}");
}
