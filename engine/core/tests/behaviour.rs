//! What a user of the core can rely on, one behaviour a test.

mod support;

use support::{Bench, config, with_two_stores};
use unspool_core::{Command, CopyState, Event, Failure, Refusal, Size, TierId, Version};

const DEVICE: TierId = TierId(0);

fn refusal(answer: Command) -> Refusal {
    match answer {
        Command::Refuse { refusal, .. } => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_history_ten_times_the_device_comes_back_in_reverse_from_the_device() {
    let mut bench = Bench::new(config(8, 4, 8, 100));
    (0..40).for_each(|v| assert!(matches!(bench.save(v, 8), Command::Grant { .. })));
    bench.finish_all();
    bench.expect((0..40).rev());
    for v in (0..40).rev() {
        bench.finish_all();
        assert_eq!(bench.restore(v), Ok(DEVICE), "version {v}");
    }
    assert_eq!(bench.core.stats().lead_summary().median, 3, "c - 1 ahead");
}

/// The lead that is counted for the restore of a version, if one is.
fn lead_of(bench: &mut Bench, version: i64) -> Option<usize> {
    let before = bench.core.stats().lead;
    assert!(bench.restore(version).is_ok());
    let after = bench.core.stats().lead;
    (0..after.len()).find(|&at| after[at] > before.get(at).copied().unwrap_or(0))
}

#[test]
fn the_lead_of_a_restore_ends_at_the_first_hint_without_its_bytes_on_the_device() {
    let mut bench = Bench::new(config(8, 8, 0, 100));
    bench.save_all(0..6, 8);
    bench.finish_all();
    bench.expect([0, 1, 2, 3, 4, 9, 5]);
    assert_eq!(lead_of(&mut bench, 0), Some(4), "1 to 4; nobody has saved 9");
    bench.step(Event::Discard { version: Version(2) });
    assert_eq!(lead_of(&mut bench, 1), Some(0), "2 is not there any more");
    assert_eq!(lead_of(&mut bench, 3), Some(1));
    assert_eq!(lead_of(&mut bench, 0), None, "not hinted again");
    assert_eq!(bench.core.stats().hinted_restores, 3);
}

#[test]
fn a_copy_that_was_evicted_does_not_count_towards_the_lead() {
    let mut bench = Bench::new(config(8, 3, 0, 100));
    bench.step(Event::HoldPrefetch);
    bench.save_all(0..3, 8);
    bench.finish_all();
    bench.expect(0..3);
    assert_eq!(lead_of(&mut bench, 0), Some(2));
    bench.step(Event::Prefer { version: Version(2), tier: TierId(1) });
    bench.save(3, 8);
    assert_eq!(lead_of(&mut bench, 1), Some(0), "2 is on the disk only");
}

#[test]
fn every_order_comes_back_right() {
    let forward: Vec<i64> = (0..30).collect();
    let irregular: Vec<i64> = (0..30).map(|i| i * 7 % 30).collect();
    let repeated: Vec<i64> = (0..60).map(|i| (i * i) % 30).collect();
    for order in [forward, irregular, repeated] {
        let mut bench = Bench::new(config(8, 3, 5, 100));
        bench.save_all(0..30, 8);
        bench.expect(order.iter().copied());
        order.iter().for_each(|&v| assert!(bench.restore(v).is_ok()));
    }
}

#[test]
fn spared_checkpoints_are_never_flushed_and_discarded_after_their_restore() {
    let mut settings = config(8, 8, 16, 100);
    settings.discard_after_restore = true;
    let mut bench = Bench::new(settings);
    bench.expect((0..5).rev());
    bench.save_all(0..5, 8);
    (0..5).rev().for_each(|v| assert_eq!(bench.restore(v), Ok(DEVICE)));
    assert_eq!(bench.transfers_to(1), 0, "nothing was moved");
    let stats = bench.core.stats();
    assert_eq!((stats.discards, stats.tiers[0].used), (5, 0));
    assert_eq!(stats.links[0].flush.skipped, 5);
}

#[test]
fn what_is_read_back_once_is_never_flushed_and_goes_after_its_restore() {
    let mut bench = Bench::new(config(8, 8, 16, 100));
    (0..5).rev().for_each(|v| bench.expect_once(v));
    bench.save_all(0..5, 8);
    (0..5).rev().for_each(|v| assert_eq!(bench.restore(v), Ok(DEVICE)));
    assert_eq!(bench.transfers_to(1), 0, "nothing was moved");
    let stats = bench.core.stats();
    assert_eq!((stats.discards, stats.tiers[0].used), (5, 0));
}

#[test]
fn what_is_announced_several_times_goes_after_the_last_of_them() {
    let mut bench = Bench::new(config(8, 8, 0, 0));
    bench.save(3, 8);
    bench.expect([3]);
    bench.expect_once(3);
    assert_eq!(bench.restore(3), Ok(DEVICE));
    assert!(bench.core.contains(Version(3)));
    assert_eq!(bench.restore(3), Ok(DEVICE));
    assert!(!bench.core.contains(Version(3)));
}

#[test]
fn what_is_read_back_once_goes_after_the_restore_that_is_not_given_up() {
    let mut bench = Bench::new(config(8, 8, 0, 0));
    bench.save(3, 8);
    bench.expect_once(3);
    let request = bench.request();
    bench.step(Event::Restore { request, version: Version(3) });
    bench.step(Event::RestoreAborted { request });
    assert!(bench.core.contains(Version(3)));
    assert_eq!(bench.restore(3), Ok(DEVICE));
    assert!(!bench.core.contains(Version(3)));
}

#[test]
fn a_restore_that_no_hint_announced_leaves_the_checkpoint() {
    let mut bench = Bench::new(config(8, 8, 0, 0));
    bench.save(3, 8);
    bench.expect_once(3);
    bench.step(Event::ForgetHints);
    assert_eq!(bench.restore(3), Ok(DEVICE));
    assert!(bench.core.contains(Version(3)));
}

#[test]
fn what_was_forgotten_holds_no_prefetch_back() {
    let mut bench = Bench::new(config(8, 2, 16, 100));
    bench.expect_once(9);
    bench.step(Event::ForgetHints);
    bench.save_all(0..6, 8);
    bench.finish_all();
    bench.expect(0..6);
    bench.finish_all();
    assert!(bench.transfers_to(0) > 0, "what was forgotten holds nothing back");
}

#[test]
fn nothing_is_prefetched_before_the_first_restore_of_what_is_read_back_once() {
    let mut bench = Bench::new(config(8, 2, 16, 100));
    (0..6).for_each(|v| bench.expect_once(v));
    bench.save_all(0..6, 8);
    bench.finish_all();
    let to_device = |bench: &Bench| bench.transfers_to(0);
    assert_eq!(to_device(&bench), 0);
    bench.restore(5).expect("it is there");
    bench.finish_all();
    assert!(to_device(&bench) > 0, "the first restore lets prefetches begin");
}

#[test]
fn checkpoints_are_spared_as_far_as_all_that_are_restored_before_them_have_room() {
    let mut settings = config(8, 8, 16, 100);
    settings.discard_after_restore = true;
    let mut bench = Bench::new(settings);
    bench.expect(0..8);
    bench.save_all(0..8, 8);
    let mut flushed: Vec<i64> = bench.moving.iter().map(|m| m.version.0).collect();
    flushed.sort_unstable();
    assert_eq!(flushed, [6, 7], "a quarter of the device is left for others");
}

#[test]
fn consumption_cancels_pending_flushes() {
    let mut settings = config(8, 4, 8, 100);
    settings.discard_after_restore = true;
    let mut bench = Bench::new(settings);
    bench.save(0, 8);
    assert_eq!(bench.moving.len(), 1, "without a hint it is flushed at once");
    assert_eq!(bench.restore(0), Ok(DEVICE));
    assert!(bench.moving[0].cancelled);
    bench.finish_all();
    assert_eq!(bench.core.stats().tiers.iter().map(|t| t.used).sum::<u64>(), 0);
}

#[test]
fn a_discard_cancels_the_transfers_of_its_version_alone() {
    let mut bench = Bench::new(config(8, 4, 8, 100));
    bench.save_all(0..2, 8);
    bench.step(Event::Discard { version: Version(0) });
    let cancelled: Vec<bool> = bench.moving.iter().map(|m| m.cancelled).collect();
    assert_eq!(cancelled, [true, false]);
}

#[test]
fn a_restore_that_is_given_up_reads_its_copy_no_longer_and_does_not_count_as_one() {
    let mut settings = config(8, 4, 0, 0);
    settings.discard_after_restore = true;
    let mut bench = Bench::new(settings);
    bench.save(0, 8);
    let request = bench.request();
    bench.step(Event::Restore { request, version: Version(0) });
    bench.step(Event::RestoreAborted { request });
    assert!(bench.core.contains(Version(0)), "it was not restored");
    bench.step(Event::Discard { version: Version(0) });
    assert_eq!(bench.core.stats().tiers[0].used, 0);
}

#[test]
fn a_restore_waits_for_the_prefetch_that_is_bringing_its_bytes() {
    let mut bench = Bench::new(config(8, 1, 0, 100));
    bench.save_all(0..2, 8);
    bench.finish_all();
    bench.expect([0]);
    assert!(!bench.moving.is_empty());
    assert_eq!(bench.restore(0), Ok(DEVICE));
}

#[test]
fn a_checkpoint_that_a_second_restore_waits_for_is_not_discarded_after_the_first() {
    let mut settings = config(8, 1, 0, 100);
    settings.discard_after_restore = true;
    let mut bench = Bench::new(settings);
    bench.save_all(0..2, 8);
    bench.finish_all();
    let [first, second] = [(); 2].map(|()| bench.request());
    bench.step(Event::Restore { request: first, version: Version(0) });
    bench.expect([0]);
    bench.step(Event::Restore { request: second, version: Version(0) });
    bench.step(Event::ForgetHints);
    bench.step(Event::Restored { request: first });
    assert!(matches!(bench.answer(second), Command::Serve { place, .. } if place.tier == DEVICE));
    bench.step(Event::Restored { request: second });
    assert!(!bench.core.contains(Version(0)));
}

#[test]
fn a_checkpoint_can_be_restored_while_its_flush_is_pending() {
    let mut bench = Bench::new(config(8, 4, 8, 100));
    bench.save(0, 8);
    assert_eq!(bench.restore(0), Ok(DEVICE));
    assert_eq!(bench.restore(0), Ok(DEVICE));
    assert!(!bench.moving.is_empty());
}

#[test]
fn what_was_used_is_flushed_before_what_will_be_read() {
    let mut bench = Bench::new(config(8, 6, 0, 100));
    (0..6).for_each(|v| assert!(matches!(bench.save(v, 8), Command::Grant { .. })));
    bench.expect([3]);
    bench.restore(5).and_then(|_| bench.restore(3)).expect("both are in the device tier");
    let mut flushed = Vec::new();
    while let Some(moving) = bench.moving.front() {
        flushed.push(moving.version.0);
        bench.finish_one();
    }
    assert_eq!(flushed, [0, 1, 5, 3, 2, 4], "two were under way");
}

#[test]
fn a_save_that_no_arena_can_hold_goes_to_the_disk_and_comes_back() {
    let mut bench = Bench::new(config(8, 2, 4, 100));
    let answer = bench.save(0, 100);
    assert!(matches!(answer, Command::Grant { place, .. } if place.tier == TierId(2)));
    assert_eq!(bench.restore(0), Ok(TierId(2)));
}

#[test]
fn what_fits_nowhere_is_refused_with_the_largest_capacity() {
    let mut bench = Bench::new(config(8, 2, 4, 0));
    assert_eq!(refusal(bench.save(0, 100)), Refusal::TooLarge { largest: 32 });
    assert!(matches!(bench.save(0, 8), Command::Grant { .. }), "the version is still free");
    let mut settings = config(8, 2, 0, 1);
    settings.tiers[1].capacity = u64::MAX;
    let answer = Bench::new(settings).save(0, u64::MAX);
    assert_eq!(refusal(answer), Refusal::TooLarge { largest: u64::MAX }, "with its head");
}

#[test]
fn a_full_stack_refuses_the_save_and_names_the_slowest_tier() {
    let mut bench = Bench::new(config(8, 1, 2, 0));
    (0..3).for_each(|v| assert!(matches!(bench.save(v, 8), Command::Grant { .. }), "{v}"));
    let Refusal::Full { tier, used, .. } = refusal(bench.save(3, 8)) else { panic!("full") };
    assert_eq!((tier.name(), used), ("host", 16));
    bench.step(Event::Discard { version: Version(1) });
    assert!(matches!(bench.save(3, 8), Command::Grant { .. }));
    for v in [0, 2, 3] {
        assert!(bench.restore(v).is_ok(), "{v}");
    }
}

#[test]
fn a_failed_flush_leaves_the_bytes_where_they_were() {
    let mut bench = Bench::new(config(8, 2, 0, 100));
    bench.save(0, 8);
    assert!(bench.fail_one(Failure::Permanent));
    assert_eq!(bench.restore(0), Ok(DEVICE));
    assert_eq!(bench.core.copies(Version(0))[0], Some(CopyState::WriteComplete));
}

#[test]
fn a_failing_disk_is_tried_again_for_a_save_that_needs_room() {
    let mut bench = Bench::new(config(8, 1, 0, 100));
    bench.save(0, 8);
    bench.fail_one(Failure::Permanent);
    let request = bench.request();
    bench.step(Event::Save { request, version: Version(1), bytes: 8, size: Size::Exact });
    // Nothing leaves the arena, so the save tries the disk itself.
    let answer = bench.answer(request);
    assert!(matches!(answer, Command::Grant { place, .. } if place.tier == TierId(1)));
}

#[test]
fn an_io_error_is_tried_again_after_a_delay() {
    let mut bench = Bench::new(config(8, 2, 0, 100));
    bench.save(0, 8);
    bench.fail_one(Failure::Io);
    assert!(bench.moving.is_empty());
    let deadline = bench.core.next_deadline().expect("a retry is planned");
    bench.now = deadline;
    bench.step(Event::Tick);
    assert_eq!(bench.moving.len(), 1);
    assert_eq!(bench.core.stats().links[0].flush.retried, 1);
}

#[test]
fn a_corrupt_copy_is_lost_and_only_the_last_one_takes_the_checkpoint_with_it() {
    let mut bench = Bench::new(config(8, 1, 0, 100));
    bench.save_all(0..2, 8);
    bench.finish_all();
    bench.expect([0]);
    assert!(bench.fail_one(Failure::Corrupt), "version 0 is on its way back");
    let lost = Refusal::Lost { failure: Failure::Corrupt };
    assert_eq!(refusal(bench.restore(0).expect_err("lost")), lost);
    assert!(bench.restore(1).is_ok());
}

#[test]
fn unread_prefetches_are_given_up_rather_than_failing_a_save() {
    let mut bench = Bench::new(config(8, 2, 0, 5));
    bench.save_all(0..4, 8);
    bench.expect([0, 1, 2]);
    let _ = bench.restore(3);
    bench.finish_all();
    (4..7).for_each(|v| assert!(matches!(bench.save(v, 8), Command::Grant { .. }), "{v}"));
    assert_eq!(bench.core.stats().reclaims, 2, "the device had room for two");
    (0..7).for_each(|v| assert!(bench.restore(v).is_ok()));
}

#[test]
fn a_save_takes_the_room_of_claims_that_are_wanted_later_than_it() {
    for (is_sooner, expected) in [(true, DEVICE), (false, TierId(1))] {
        let mut bench = Bench::new(config(1, 20, 0, 100));
        let claimed = (0..20).step_by(2);
        let (before, after) = if is_sooner { (Some(100), None) } else { (None, Some(100)) };
        bench.expect(before.into_iter().chain(claimed.clone()).chain(after));
        bench.save_all(0..20, 1);
        bench.finish_all();
        let state = |bench: &Bench, v: i64| bench.core.copies(Version(v))[0];
        assert!(claimed.clone().all(|v| state(&bench, v) == Some(CopyState::ReadComplete)));
        // Every second byte is claimed, so no ten bytes in a row are free of claims.
        let Command::Grant { place, .. } = bench.save(100, 10) else { panic!("room") };
        assert_eq!(place.tier, expected);
        assert_eq!(bench.core.stats().reclaims, 0, "nothing would have failed");
        bench.finish_all();
        (0..20).chain([100]).for_each(|v| assert!(bench.restore(v).is_ok(), "{v}"));
    }
}

#[test]
fn a_version_can_be_saved_again_after_its_discard() {
    let mut bench = Bench::new(config(8, 2, 4, 100));
    bench.save(5, 8);
    assert_eq!(refusal(bench.save(5, 8)), Refusal::Duplicate);
    bench.step(Event::Discard { version: Version(5) });
    assert_eq!(refusal(bench.restore(5).expect_err("discarded")), Refusal::Discarded);
    assert!(matches!(bench.save(5, 8), Command::Grant { .. }));
    bench.finish_all();
    assert!(bench.restore(5).is_ok());
    assert_eq!(refusal(bench.restore(6).expect_err("unknown")), Refusal::Unknown);
}

#[test]
fn a_flush_brings_everything_to_the_disk() {
    let mut settings = config(8, 4, 4, 100);
    settings.discard_after_restore = true;
    let mut bench = Bench::new(settings);
    bench.expect((0..4).rev());
    bench.save_all(0..4, 8);
    assert_eq!(bench.transfers_to(2), 0, "spared until someone asks");
    let request = bench.request();
    bench.step(Event::Flush { request });
    assert_eq!(bench.answer(request), Command::FlushDone { request });
    (0..4).for_each(|v| assert!(bench.core.copies(Version(v))[2].is_some()));
}

#[test]
fn a_copy_whose_bytes_wait_above_for_their_last_use_is_spent_unless_a_flush_was_asked_for() {
    let mut settings = config(8, 1, 4, 100);
    settings.discard_after_restore = true;
    let mut bench = Bench::new(settings);
    bench.step(Event::HoldPrefetch);
    bench.expect([0]);
    bench.save_all(0..2, 8);
    bench.finish_all();
    bench.step(Event::StartPrefetch);
    bench.finish_all();
    let copies = |bench: &Bench| bench.core.copies(Version(0));
    let waits = Some(CopyState::ReadComplete);
    assert_eq!(copies(&bench), [waits, Some(CopyState::Consumed), None, None]);
    let request = bench.request();
    bench.step(Event::Flush { request });
    assert_eq!(copies(&bench)[1], Some(CopyState::WriteComplete));
    assert_eq!(bench.answer(request), Command::FlushDone { request });
    assert!(copies(&bench)[2].is_some());
}

/// Two stores, the first of which holds the versions 0 and 1, which are restored once more.
fn with_two_spared_copies(capacities: [u64; 3]) -> Bench {
    let mut bench = Bench::new(with_two_stores(capacities));
    bench.step(Event::HoldPrefetch);
    [0, 1].into_iter().for_each(|v| bench.expect_last(v));
    bench.save_all(0..2, 8);
    for version in [0, 1] {
        bench.step(Event::Prefer { version: Version(version), tier: TierId(1) });
    }
    bench.finish_all();
    bench
}

#[test]
fn a_flush_into_a_store_of_spared_copies_moves_the_one_that_is_used_last_on() {
    let mut bench = with_two_spared_copies([64, 18, 100]);
    assert_eq!((bench.transfers_to(1), bench.transfers_to(2)), (2, 0), "the disk is full");
    bench.save(2, 8);
    bench.finish_all();
    let on_disk = |v: i64| bench.core.copies(Version(v))[1].is_some();
    assert_eq!([0, 1, 2].map(on_disk), [true, false, true]);
}

#[test]
fn a_save_into_a_store_moves_as_many_spared_copies_on_as_it_takes() {
    let mut bench = with_two_spared_copies([64, 70, 18]);
    assert_eq!(bench.transfers_to(2), 0, "spared");
    bench.save_all([2], 65);
    assert_eq!(bench.transfers_to(2), 2);
}

#[test]
fn a_flush_into_an_arena_of_spared_copies_moves_one_of_them_on_at_once() {
    let mut settings = config(8, 4, 2, 100);
    settings.discard_after_restore = true;
    let mut bench = Bench::new(settings);
    bench.step(Event::HoldPrefetch);
    bench.expect([0, 1]);
    bench.save_all(0..2, 8);
    for version in [0, 1] {
        bench.step(Event::Prefer { version: Version(version), tier: TierId(1) });
    }
    bench.finish_all();
    assert_eq!((bench.transfers_to(1), bench.transfers_to(2)), (2, 0), "the host is full");
    bench.save(2, 8);
    assert_eq!(bench.transfers_to(2), 1);
}

#[test]
fn a_flush_that_cannot_finish_names_the_checkpoint_and_the_tier() {
    let mut bench = Bench::new(config(8, 4, 0, 2));
    bench.save_all(0..3, 8);
    let request = bench.request();
    bench.step(Event::Flush { request });
    let Refusal::FlushFailed { version, tier, .. } = refusal(bench.answer(request)) else {
        panic!("the disk is full");
    };
    assert_eq!((version, tier.name()), (Version(2), "disk"));
}

#[test]
fn prefetching_waits_until_it_is_started() {
    let mut bench = Bench::new(config(8, 2, 0, 100));
    bench.step(Event::HoldPrefetch);
    bench.save_all(0..6, 8);
    bench.finish_all();
    bench.expect(0..6);
    assert!(bench.moving.is_empty());
    bench.step(Event::StartPrefetch);
    assert!(!bench.moving.is_empty());
}

#[test]
fn a_version_that_is_hinted_twice_takes_room_from_others_until_its_last_restore() {
    let mut bench = Bench::new(config(8, 2, 0, 100));
    bench.step(Event::HoldPrefetch);
    bench.save_all(0..4, 8);
    bench.finish_all();
    // Nobody has saved 7 yet: there will be room for it beside 0.
    bench.expect([0, 0, 7, 1]);
    bench.step(Event::StartPrefetch);
    let on_device = |bench: &Bench, v: i64| bench.core.copies(Version(v))[0].is_some();
    for expected in [false, true] {
        bench.finish_all();
        assert_eq!(bench.restore(0), Ok(DEVICE));
        bench.finish_all();
        assert_eq!(on_device(&bench, 1), expected);
    }
}

#[test]
fn a_second_hint_that_the_planner_has_not_reached_takes_no_room_yet() {
    let mut bench = Bench::new(config(8, 2, 0, 100));
    bench.save(0, 8);
    let _ = bench.restore(0);
    bench.expect([7, 8]);
    // While 7 is being saved less may be claimed, so the planner stops before its second hint.
    let request = bench.request();
    bench.step(Event::Save { request, version: Version(7), bytes: 8, size: Size::Exact });
    bench.expect([7]);
    let Command::Grant { checkpoint, place, .. } = bench.answer(request) else { panic!("room") };
    bench.bytes.insert((checkpoint, place.tier), checkpoint.0);
    bench.step(Event::Saved { request, kept: None });
    assert!(bench.restore(7).is_ok());
    assert_eq!(bench.core.copies(Version(7))[0], Some(CopyState::ReadComplete));
}

#[test]
fn the_planner_passes_over_hints_that_were_taken_out_of_order() {
    let mut bench = Bench::new(config(8, 2, 0, 100));
    bench.step(Event::HoldPrefetch);
    bench.save_all(0..6, 8);
    bench.finish_all();
    bench.expect([0, 1, 2, 3]);
    bench.step(Event::StartPrefetch);
    bench.finish_all();
    bench.restore(2).and_then(|_| bench.restore(0)).expect("both are there");
    bench.finish_all();
    assert_eq!(bench.core.copies(Version(3))[0], Some(CopyState::ReadComplete));
}

#[test]
fn prefetches_chain_from_the_disk_through_the_host() {
    let mut bench = Bench::new(config(8, 2, 4, 100));
    bench.save_all(0..20, 8);
    bench.finish_all();
    bench.expect(0..20);
    bench.finish_all();
    for v in 0..2 {
        assert_eq!(bench.core.copies(Version(v))[0], Some(CopyState::ReadComplete), "{v}");
    }
    for v in 2..5 {
        assert_eq!(bench.core.copies(Version(v))[1], Some(CopyState::ReadComplete), "{v}");
    }
}

#[test]
fn a_checkpoint_whose_last_hint_says_so_is_not_flushed_before_its_discard() {
    let mut bench = Bench::new(config(8, 8, 16, 100));
    (0..5).rev().for_each(|v| bench.expect_last(v));
    bench.save_all(0..5, 8);
    for v in (0..5).rev() {
        assert_eq!(bench.restore(v), Ok(DEVICE));
        bench.step(Event::Discard { version: Version(v) });
    }
    assert_eq!(bench.transfers_to(1), 0, "nothing was moved");
    let stats = bench.core.stats();
    assert_eq!((stats.discards, stats.tiers[0].used), (5, 0));
    assert_eq!(stats.links[0].flush.skipped, 5);
}

#[test]
fn a_discard_that_was_promised_and_does_not_come_costs_nothing_but_a_flush() {
    let mut bench = Bench::new(config(8, 2, 8, 100));
    bench.expect_last(0);
    bench.save(0, 8);
    assert_eq!(bench.restore(0), Ok(DEVICE));
    assert_eq!(bench.transfers_to(1), 0, "its discard is about to come");
    bench.save_all(1..6, 8);
    bench.finish_all();
    (0..6).for_each(|v| assert!(bench.restore(v).is_ok(), "version {v}"));
}

#[test]
fn a_version_that_is_hinted_again_does_not_end() {
    let mut bench = Bench::new(config(8, 4, 8, 100));
    bench.expect_last(0);
    bench.expect([0]);
    bench.save(0, 8);
    assert_eq!(bench.transfers_to(1), 1, "it is flushed like any other");
}

#[test]
fn what_should_rest_below_is_flushed_at_once_and_evicted_first() {
    let mut bench = Bench::new(config(8, 3, 8, 100));
    bench.save_all(0..3, 8);
    // Three that are still to be saved come first; then 2 would be the one to go: it is used last.
    bench.expect([7, 8, 9, 1, 0, 2]);
    bench.step(Event::Prefer { version: Version(1), tier: TierId(1) });
    bench.finish_all();
    bench.save(3, 8);
    assert_eq!(bench.core.copies(Version(1))[0], None, "it rests in the host tier");
    assert!(bench.core.copies(Version(2))[0].is_some());
    bench.step(Event::ForgetHints);
    bench.expect([1]);
    bench.finish_all();
    assert_eq!(bench.restore(1), Ok(DEVICE), "its hint brings it back all the same");
}

#[test]
fn a_preference_overrides_that_a_flush_is_spared() {
    let mut bench = Bench::new(config(8, 8, 16, 100));
    bench.expect_last(0);
    bench.step(Event::HoldPrefetch);
    bench.save(0, 8);
    assert_eq!(bench.transfers_to(1), 0);
    bench.step(Event::ForgetHints);
    bench.expect_last(1);
    bench.save(1, 8);
    bench.step(Event::Prefer { version: Version(1), tier: TierId(1) });
    bench.finish_all();
    assert!(bench.core.copies(Version(1))[1].is_some());
    bench.step(Event::Prefer { version: Version(77), tier: TierId(1) });
}

#[test]
fn a_preference_for_a_tier_that_does_not_exist_is_ignored() {
    let mut bench = Bench::new(config(8, 2, 0, 100));
    bench.step(Event::HoldPrefetch);
    bench.save_all(0..2, 8);
    bench.finish_all();
    bench.expect([0, 1]);
    for tier in [2, 9] {
        bench.step(Event::Prefer { version: Version(0), tier: TierId(tier) });
    }
    bench.save(2, 8);
    assert!(bench.core.copies(Version(0))[0].is_some(), "1 is used later");
}

#[test]
fn a_flush_is_done_when_the_discarded_checkpoints_are_deleted() {
    let mut bench = Bench::new(config(8, 1, 0, 9));
    bench.save_all(0..3, 8);
    while bench.finish_one() {}
    bench.step(Event::Discard { version: Version(0) });
    let flush = bench.request();
    bench.step(Event::Flush { request: flush });
    assert!(!bench.answers.contains_key(&flush), "it would come back after a crash");
    bench.delete_one();
    assert_eq!(bench.answers.remove(&flush), Some(Command::FlushDone { request: flush }));
}

#[test]
fn a_flush_waits_for_a_discarded_checkpoint_that_is_on_its_way_to_a_store() {
    let mut bench = Bench::new(config(8, 1, 0, 9));
    bench.save(0, 8);
    bench.step(Event::Discard { version: Version(0) });
    let flush = bench.request();
    bench.step(Event::Flush { request: flush });
    bench.finish_one_late();
    assert!(!bench.answers.contains_key(&flush), "it has arrived after all");
    bench.delete_one();
    assert_eq!(bench.answers.remove(&flush), Some(Command::FlushDone { request: flush }));
}

#[test]
fn a_flush_does_not_wait_for_who_reads_a_discarded_checkpoint() {
    let mut bench = Bench::new(config(8, 1, 0, 9));
    bench.save_all(0..2, 8);
    bench.finish_all();
    let reader = bench.request();
    bench.step(Event::Restore { request: reader, version: Version(0) });
    bench.step(Event::Discard { version: Version(0) });
    let flush = bench.request();
    bench.step(Event::Flush { request: flush });
    assert_eq!(bench.answer(flush), Command::FlushDone { request: flush });
}
