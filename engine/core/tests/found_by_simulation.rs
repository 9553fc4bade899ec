//! Sequences of events for which the simulator found the core wrong.

mod support;

use support::{Bench, config, with_two_stores};
use unspool_core::{
    CheckpointId, Command, Event, Failure, Nanos, Size, TierConfig, TierId, TierKind, Version,
};

/// The transfer of this checkpoint into this tier, taken out of those in flight.
fn take_transfer(bench: &mut Bench, version: i64, to: u8) -> support::Moving {
    let wanted = |m: &support::Moving| m.version == Version(version) && m.to.tier == TierId(to);
    let at = bench.moving.iter().position(wanted).expect("the transfer is in flight");
    bench.moving.remove(at).expect("the position was just found")
}

/// Ends the transfer of this checkpoint into this tier.
fn finish(bench: &mut Bench, version: i64, to: u8) {
    let moved = take_transfer(bench, version, to);
    bench.bytes.insert((moved.checkpoint, moved.to.tier), moved.checkpoint.0);
    bench.step(Event::TransferDone { transfer: moved.id, took: Nanos(10) });
}

#[test]
fn a_save_waits_for_a_discarded_copy_that_is_still_read() {
    let mut bench = Bench::new(config(8, 2, 0, 1));
    bench.save(0, 8);
    bench.finish_all();
    bench.expect([0, 0]);
    let (restore, save) = (bench.request(), bench.request());
    bench.step(Event::Restore { request: restore, version: Version(0) });
    bench.step(Event::Discard { version: Version(0) });
    bench.finish_all();
    bench.step(Event::Save { request: save, version: Version(1), bytes: 16, size: Size::Exact });
    assert!(!bench.answers.contains_key(&save));
    bench.step(Event::Restored { request: restore });
    assert!(matches!(bench.answer(save), Command::Grant { .. }));
}

#[test]
fn a_copy_that_arrives_after_its_source_was_found_damaged_is_not_lost() {
    let mut bench = Bench::new(config(8, 1, 4, 8));
    for version in [0, 1] {
        bench.save(version, 8);
        finish(&mut bench, version, 1);
    }
    bench.expect([0]);
    let to_device = take_transfer(&mut bench, 0, 0);
    bench.step(Event::TransferFailed { transfer: to_device.id, failure: Failure::Corrupt });
    bench.finish_all();
    assert_eq!(bench.restore(0), Ok(TierId(0)), "it is fetched from the disk");
}

#[test]
fn a_checkpoint_that_was_spared_in_a_store_is_flushed_when_room_is_needed() {
    let mut settings = with_two_stores([64, 70, 110]);
    settings.discard_after_restore = true;
    let mut bench = Bench::new(settings);
    bench.expect([0]);
    bench.save_all(0..3, 8);
    bench.save_all(3..6, 64);
    for version in 0..6 {
        assert!(bench.restore(version).is_ok(), "version {version}");
    }
}

#[test]
fn a_checkpoint_that_two_stores_hold_is_adopted_from_both() {
    let mut bench = Bench::new(with_two_stores([16, 40, 40]));
    for tier in [2, 1] {
        let (checkpoint, version) = (CheckpointId(7), Version(3));
        bench.bytes.insert((checkpoint, TierId(tier)), checkpoint.0);
        bench.step(Event::Recover { checkpoint, version, bytes: 8, tier: TierId(tier) });
    }
    let stats = bench.core.stats();
    assert_eq!((stats.tiers[1].copies, stats.tiers[2].copies), (1, 1));
    assert!(bench.core.is_flushed(Version(3)));
    assert_eq!(bench.restore(3), Ok(TierId(1)));
    bench.step(Event::Discard { version: Version(3) });
    assert_eq!(bench.deleting.len(), 2, "both frames are deleted");
}

#[test]
fn a_flush_of_a_copy_that_has_just_arrived_is_demanded_before_a_save_is_refused() {
    let tier = |kind, capacity, alignment| TierConfig { kind, capacity, alignment };
    let mut settings = config(8, 1, 1, 1);
    settings.discard_after_restore = true;
    settings.tiers = vec![
        tier(TierKind::Device, 88, 8),
        tier(TierKind::Host, 7, 1),
        tier(TierKind::Disk, 64, 8),
    ];
    let mut bench = Bench::new(settings);
    bench.expect([8, 6, 6, 2, 3, 4, 4, 3, 2]);
    bench.save_all([0, 2], 5);
    assert!(bench.restore(2).is_ok());
    bench.save_all([6], 3);
    bench.save_all([7], 68);
}
