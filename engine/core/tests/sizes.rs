//! Saves whose size is known only when they are done, one behaviour a test.

mod support;

use support::{Bench, config};
use unspool_core::{
    CheckpointId, Command, CopyState, Event, Kept, Place, Refusal, RequestId, Size, TierId, Version,
};

const DEVICE: TierId = TierId(0);

/// A save that was granted.
#[derive(Clone, Copy)]
struct Granted {
    request: RequestId,
    checkpoint: CheckpointId,
    place: Place,
}

fn ask(bench: &mut Bench, version: i64, bytes: u64) -> RequestId {
    let request = bench.request();
    bench.step(Event::Save { request, version: Version(version), bytes, size: Size::AtMost });
    request
}

fn granted(bench: &mut Bench, request: RequestId) -> Option<Granted> {
    match bench.answers.remove(&request)? {
        Command::Grant { checkpoint, place, .. } => {
            bench.bytes.insert((checkpoint, place.tier), checkpoint.0);
            Some(Granted { request, checkpoint, place })
        }
        other => panic!("not granted: {other:?}"),
    }
}

/// A save of at most `bytes` bytes that finds room.
fn begin(bench: &mut Bench, version: i64, bytes: u64) -> Granted {
    let request = ask(bench, version, bytes);
    granted(bench, request).expect("room")
}

/// As `begin`, and the save is then in flight.
fn begin_in_flight(bench: &mut Bench, version: i64, bytes: u64) -> Granted {
    let save = begin(bench, version, bytes);
    bench.step(Event::SaveInFlight { request: save.request });
    save
}

fn report(bench: &mut Bench, save: Granted, offset: u64, bytes: u64) {
    let kept = Some(Kept { offset, bytes });
    bench.step(Event::Saved { request: save.request, kept });
}

fn abort(bench: &mut Bench, save: Granted) {
    bench.bytes.remove(&(save.checkpoint, save.place.tier));
    bench.step(Event::SaveAborted { request: save.request });
}

fn used(bench: &Bench) -> u64 {
    bench.core.stats().tiers[0].used
}

#[test]
fn saves_that_are_pending_close_up_when_they_are_reported() {
    let mut bench = Bench::new(config(10, 10, 0, 100));
    let saves: Vec<Granted> = (0..8).map(|v| begin_in_flight(&mut bench, v, 10)).collect();
    let offsets: Vec<u64> = saves.iter().map(|save| save.place.offset).collect();
    assert_eq!(offsets, [0, 10, 20, 30, 40, 50, 60, 70], "one after the other");
    for (index, save) in saves.into_iter().enumerate() {
        report(&mut bench, save, index as u64, 1);
        assert!(used(&bench) <= 80, "what the next one gets is counted once");
    }
    assert_eq!((used(&bench), bench.core.stats().saved_bytes), (8, 8));
    assert_eq!(begin_in_flight(&mut bench, 8, 10).place.offset, 8, "the next save goes on there");
}

#[test]
fn saves_of_unknown_size_follow_each_other_past_a_gap_that_would_fit() {
    let mut bench = Bench::new(config(10, 10, 0, 0));
    bench.save(0, 20);
    let first = begin_in_flight(&mut bench, 1, 10);
    bench.step(Event::Discard { version: Version(0) });
    let second = begin_in_flight(&mut bench, 2, 10);
    report(&mut bench, first, 20, 3);
    let third = begin_in_flight(&mut bench, 3, 10);
    assert_eq!([first, second, third].map(|save| save.place.offset), [20, 30, 40]);
    report(&mut bench, second, 23, 3);
    report(&mut bench, third, 26, 4);
    // Now something else is where they end, so the next one goes to the smallest gap.
    let in_the_gap = bench.save(4, 15);
    assert!(matches!(in_the_gap, Command::Grant { place, .. } if place.offset < 20));
    bench.save(5, 15);
    assert_eq!(begin_in_flight(&mut bench, 6, 5).place.offset, 15);
}

#[test]
fn a_save_may_keep_what_lies_in_the_middle_of_its_room_or_nothing() {
    let mut bench = Bench::new(config(10, 3, 0, 0));
    let [one, two] = [1, 2].map(|v| begin_in_flight(&mut bench, v, 10));
    report(&mut bench, one, 0, 1);
    report(&mut bench, two, 10, 4);
    assert_eq!(used(&bench), 5);
    let middle = begin(&mut bench, 3, 9);
    assert_eq!(middle.place.offset, 14, "after the last one");
    report(&mut bench, middle, 20, 0);
    let request = bench.request();
    for (version, offset) in [(1, 0), (2, 10), (3, 0)] {
        bench.step(Event::Restore { request, version: Version(version) });
        let Some(Command::Serve { place, .. }) = bench.answers.remove(&request) else {
            panic!("{version} is on the device");
        };
        assert_eq!(place.offset, offset, "version {version}");
        bench.step(Event::Restored { request });
    }
    assert_eq!(used(&bench), 5);
}

#[test]
fn an_arena_is_full_up_to_the_room_of_one_save_that_was_not_compressed_yet() {
    let mut bench = Bench::new(config(1, 1000, 0, 0));
    let (mut end, mut pending) = (0, std::collections::VecDeque::new());
    // Eight are pending; each keeps a tenth of 100 bytes.
    for version in 0..91 {
        pending.push_back(begin_in_flight(&mut bench, version, 100));
        if pending.len() > 8 || used(&bench) > 900 {
            report(&mut bench, pending.pop_front().expect("eight"), end, 10);
            end += 10;
        }
        while used(&bench) > 900 && !pending.is_empty() {
            report(&mut bench, pending.pop_front().expect("one"), end, 10);
            end += 10;
        }
    }
    pending.into_iter().for_each(|save| {
        report(&mut bench, save, end, 10);
        end += 10;
    });
    assert_eq!((used(&bench), end), (910, 910), "without a hole");
    assert_eq!(bench.transfers_to(1), 0);
}

#[test]
fn an_aborted_save_leaves_its_room_to_the_one_after_it() {
    let mut bench = Bench::new(config(10, 3, 0, 100));
    let [one, two, three] = [0, 1, 2].map(|v| begin_in_flight(&mut bench, v, 10));
    abort(&mut bench, two);
    assert_eq!(used(&bench), 30);
    report(&mut bench, one, 0, 10);
    report(&mut bench, three, 10, 4);
    assert_eq!(used(&bench), 14);
}

#[test]
fn a_save_waits_for_what_is_about_to_shrink_before_anything_is_evicted_for_it() {
    let mut bench = Bench::new(config(10, 3, 9, 100));
    bench.save_all([0], 10);
    bench.finish_all();
    let [one, two] = [1, 2].map(|v| begin_in_flight(&mut bench, v, 10));
    let waiting = ask(&mut bench, 3, 10);
    assert!(granted(&mut bench, waiting).is_none(), "version 0 could be evicted for it");
    report(&mut bench, one, 10, 2);
    assert!(granted(&mut bench, waiting).is_none(), "8 of 20 bytes are left so far");
    report(&mut bench, two, 12, 2);
    assert_eq!(granted(&mut bench, waiting).map(|save| save.place.offset), Some(14));
    assert_eq!(bench.core.stats().tiers[0].evictions, 0);
}

#[test]
fn no_save_waits_for_saves_that_never_shrink() {
    let mut bench = Bench::new(config(10, 3, 9, 100));
    let first = begin_in_flight(&mut bench, 9, 10);
    report(&mut bench, first, 0, 10);
    bench.finish_all();
    let _pending = [1, 2].map(|v| begin_in_flight(&mut bench, v, 10));
    assert!(
        begin_in_flight(&mut bench, 3, 10).place.tier == DEVICE,
        "version 9 was evicted at once"
    );
    assert_eq!(bench.core.stats().tiers[0].evictions, 1);
}

#[test]
fn a_save_waits_for_those_that_fill_the_device_rather_than_go_to_a_slower_tier() {
    let mut bench = Bench::new(config(10, 3, 9, 100));
    // Even where saves have kept all that they asked for.
    let kept = begin_in_flight(&mut bench, 9, 10);
    report(&mut bench, kept, 0, 10);
    bench.step(Event::Discard { version: Version(9) });
    bench.finish_all();
    let [one, two, three] = [0, 1, 2].map(|v| begin_in_flight(&mut bench, v, 10));
    let waiting = ask(&mut bench, 3, 10);
    assert!(granted(&mut bench, waiting).is_none(), "the host has room for it");
    report(&mut bench, one, 0, 10);
    bench.finish_all();
    let place = granted(&mut bench, waiting).expect("version 0 was flushed for it").place;
    assert_eq!((place.tier, place.offset), (DEVICE, 0));
    report(&mut bench, two, 10, 10);
    report(&mut bench, three, 20, 10);
}

#[test]
fn no_save_waits_for_one_that_is_not_in_flight() {
    let mut bench = Bench::new(config(10, 2, 9, 100));
    let first = begin_in_flight(&mut bench, 0, 10);
    let written = begin(&mut bench, 1, 10);
    let second = ask(&mut bench, 2, 10);
    assert!(granted(&mut bench, second).is_none(), "the first one ends without the application");
    report(&mut bench, first, 0, 10);
    bench.finish_all();
    assert_eq!(granted(&mut bench, second).map(|save| save.place.tier), Some(DEVICE));
    let third = begin(&mut bench, 3, 10);
    assert!(third.place.tier != DEVICE, "the write in the way may need the same thread");
    report(&mut bench, written, 10, 10);
}

#[test]
fn no_save_waits_for_saves_in_flight_that_leave_too_little() {
    let mut bench = Bench::new(config(10, 3, 9, 100));
    let written = begin(&mut bench, 0, 20);
    let small = begin_in_flight(&mut bench, 1, 10);
    assert!(begin(&mut bench, 2, 20).place.tier != DEVICE, "the host has room");
    report(&mut bench, written, 0, 20);
    report(&mut bench, small, 20, 10);
}

/// A device with version 0, which may be evicted for a save of 20 bytes.
fn with_an_evictable_copy(rooms: u64) -> Bench {
    let mut bench = Bench::new(config(10, rooms, 9, 100));
    bench.save_all([0], 20);
    bench.finish_all();
    bench
}

#[test]
fn what_saves_in_flight_leave_counts_together_where_they_lie_side_by_side() {
    let mut bench = with_an_evictable_copy(4);
    let [one, two] = [1, 2].map(|v| begin_in_flight(&mut bench, v, 10));
    let waiting = ask(&mut bench, 3, 20);
    assert!(granted(&mut bench, waiting).is_none(), "they may leave 20 bytes");
    report(&mut bench, one, one.place.offset, 10);
    report(&mut bench, two, two.place.offset, 10);
    assert!(granted(&mut bench, waiting).is_some());
    let mut bench = with_an_evictable_copy(5);
    let [one, between, two] = [1, 4, 2].map(|v| begin(&mut bench, v, 10));
    for save in [one, two] {
        bench.step(Event::SaveInFlight { request: save.request });
    }
    assert_eq!(begin(&mut bench, 3, 20).place.tier, DEVICE, "version 0 was evicted at once");
    for save in [one, between, two] {
        report(&mut bench, save, save.place.offset, 10);
    }
}

#[test]
fn no_save_waits_for_what_the_application_still_writes() {
    let mut bench = with_an_evictable_copy(5);
    let written = begin(&mut bench, 1, 20);
    let pending = begin_in_flight(&mut bench, 2, 10);
    assert_eq!(begin(&mut bench, 3, 20).place.tier, DEVICE, "version 0 was evicted at once");
    report(&mut bench, written, written.place.offset, 20);
    report(&mut bench, pending, pending.place.offset, 10);
}

#[test]
fn no_save_waits_for_what_saves_to_another_tier_leave() {
    let mut bench = with_an_evictable_copy(3);
    let pending = begin_in_flight(&mut bench, 1, 10);
    let elsewhere = begin_in_flight(&mut bench, 2, 40);
    assert_eq!((pending.place.tier, elsewhere.place.tier), (DEVICE, TierId(1)));
    assert_eq!(begin(&mut bench, 3, 20).place.tier, DEVICE, "version 0 was evicted at once");
    report(&mut bench, pending, pending.place.offset, 10);
    report(&mut bench, elsewhere, elsewhere.place.offset, 40);
}

#[test]
fn a_save_to_a_store_keeps_what_it_has_written() {
    let mut bench = Bench::new(config(10, 0, 0, 10));
    let save = begin_in_flight(&mut bench, 0, 10);
    assert_eq!(used(&bench), 11, "with its head");
    report(&mut bench, save, 0, 3);
    assert_eq!(used(&bench), 4);
}

#[test]
fn what_a_save_leaves_before_one_of_known_size_is_free_at_once() {
    let mut bench = Bench::new(config(10, 2, 0, 0));
    let save = begin_in_flight(&mut bench, 0, 10);
    let request = bench.request();
    bench.step(Event::Save { request, version: Version(1), bytes: 10, size: Size::Exact });
    let exact = granted(&mut bench, request).expect("room");
    report(&mut bench, save, 0, 3);
    assert_eq!(used(&bench), 13);
    report(&mut bench, exact, 10, 10);
}

#[test]
fn an_aborted_save_leaves_also_what_it_got_from_the_one_before_it() {
    let mut bench = Bench::new(config(10, 3, 0, 100));
    let [one, two, three] = [0, 1, 2].map(|v| begin_in_flight(&mut bench, v, 10));
    report(&mut bench, one, 0, 3);
    abort(&mut bench, two);
    report(&mut bench, three, 3, 4);
    assert_eq!(used(&bench), 7);
}

#[test]
fn a_restore_waits_for_a_save_in_flight() {
    let mut bench = Bench::new(config(10, 3, 9, 100));
    let save = begin_in_flight(&mut bench, 5, 10);
    assert!(bench.core.contains(Version(5)));
    let request = bench.request();
    bench.step(Event::Restore { request, version: Version(5) });
    assert!(bench.answers.is_empty(), "it waits");
    report(&mut bench, save, 0, 3);
    assert!(matches!(bench.answers.remove(&request), Some(Command::Serve { .. })));
}

#[test]
fn a_restore_that_waits_is_refused_when_its_version_is_discarded() {
    let mut bench = Bench::new(config(10, 3, 9, 100));
    begin_in_flight(&mut bench, 5, 10);
    let request = bench.request();
    bench.step(Event::Restore { request, version: Version(5) });
    bench.step(Event::Discard { version: Version(5) });
    let refused = Command::Refuse { request, refusal: Refusal::Discarded };
    assert_eq!(bench.answers.remove(&request), Some(refused));
}

#[test]
fn a_save_that_waits_takes_the_room_of_a_checkpoint_that_is_discarded() {
    let mut bench = Bench::new(config(10, 2, 0, 0));
    bench.save(0, 10);
    let pending = begin_in_flight(&mut bench, 1, 10);
    let waiting = ask(&mut bench, 2, 10);
    assert!(granted(&mut bench, waiting).is_none(), "the save in flight may leave room");
    bench.step(Event::Discard { version: Version(0) });
    assert_eq!(granted(&mut bench, waiting).map(|save| save.place.offset), Some(0));
    report(&mut bench, pending, 10, 10);
}

#[test]
fn a_save_without_bytes_waits_for_nothing() {
    let mut bench = Bench::new(config(10, 1, 9, 100));
    begin_in_flight(&mut bench, 5, 10);
    let nothing = Place { tier: DEVICE, offset: 0 };
    assert_eq!(begin(&mut bench, 6, 0).place, nothing);
    assert_eq!(begin(&mut Bench::new(config(10, 1, 0, 0)), 6, 0).place, nothing, "in a gap");
}

#[test]
fn a_restore_is_refused_while_the_application_still_saves() {
    let mut bench = Bench::new(config(10, 3, 9, 100));
    let save = ask(&mut bench, 5, 10);
    assert!(granted(&mut bench, save).is_some());
    let request = bench.request();
    bench.step(Event::Restore { request, version: Version(5) });
    let refused = Command::Refuse { request, refusal: Refusal::NotYetSaved };
    assert_eq!(bench.answers.remove(&request), Some(refused));
}

#[test]
fn a_save_that_fails_after_all_leaves_an_unknown_version() {
    let mut bench = Bench::new(config(10, 3, 9, 100));
    bench.save(5, 10);
    bench.step(Event::Discard { version: Version(5) });
    bench.finish_all();
    let save = begin_in_flight(&mut bench, 5, 10);
    let [waits, later] = [(); 2].map(|()| bench.request());
    let refused = |request| Command::Refuse { request, refusal: Refusal::Unknown };
    bench.step(Event::Restore { request: waits, version: Version(5) });
    abort(&mut bench, save);
    assert_eq!(bench.answers.remove(&waits), Some(refused(waits)));
    bench.step(Event::Restore { request: later, version: Version(5) });
    assert_eq!(bench.answers.remove(&later), Some(refused(later)));
    assert!(!bench.core.contains(Version(5)) && used(&bench) == 0);
}

#[test]
fn a_version_may_be_discarded_and_saved_again_before_its_save_was_reported() {
    let mut bench = Bench::new(config(10, 3, 9, 100));
    let first = begin_in_flight(&mut bench, 5, 10);
    bench.step(Event::Discard { version: Version(5) });
    assert!(!bench.core.contains(Version(5)));
    let second = begin_in_flight(&mut bench, 5, 10);
    report(&mut bench, first, 0, 3);
    report(&mut bench, second, 3, 4);
    assert_eq!((used(&bench), bench.core.versions()), (4, vec![Version(5)]));
    assert_eq!(bench.restore(5), Ok(DEVICE));
}

#[test]
fn a_flush_waits_for_saves_in_flight() {
    let mut bench = Bench::new(config(10, 3, 0, 100));
    let save = begin_in_flight(&mut bench, 5, 10);
    let request = bench.request();
    bench.step(Event::Flush { request });
    bench.finish_all();
    assert!(bench.answers.is_empty() && bench.moving.is_empty());
    report(&mut bench, save, 0, 3);
    assert_eq!(bench.answer(request), Command::FlushDone { request });
    assert_eq!(bench.core.stats().links[0].flush.bytes, 3, "what is kept is what moves");
}

#[test]
fn a_second_save_of_a_version_whose_save_is_in_flight_is_a_duplicate() {
    let mut bench = Bench::new(config(10, 3, 9, 100));
    begin_in_flight(&mut bench, 5, 10);
    let request = ask(&mut bench, 5, 10);
    let refused = Command::Refuse { request, refusal: Refusal::Duplicate };
    assert_eq!(bench.answers.remove(&request), Some(refused));
}

#[test]
fn nothing_is_refused_while_a_save_may_still_shrink() {
    let mut bench = Bench::new(config(10, 2, 0, 0));
    let [one, two] = [1, 2].map(|v| begin_in_flight(&mut bench, v, 10));
    let waiting = ask(&mut bench, 3, 10);
    report(&mut bench, one, 0, 10);
    assert!(granted(&mut bench, waiting).is_none());
    report(&mut bench, two, 10, 10);
    let answer = bench.answers.remove(&waiting);
    assert!(
        matches!(answer, Some(Command::Refuse { refusal: Refusal::Full { .. }, .. })),
        "then there is no room: {answer:?}"
    );
}

#[test]
fn claims_leave_room_for_a_save_that_was_not_compressed_yet() {
    let mut bench = Bench::new(config(10, 2, 0, 100));
    bench.expect(0..40);
    for version in 0..14 {
        let save = begin_in_flight(&mut bench, version, 10);
        report(&mut bench, save, save.place.offset, 1);
        bench.finish_all();
    }
    let state = |v: i64| bench.core.copies(Version(v))[0];
    let claimed = (0..14).filter(|v| state(*v) == Some(CopyState::ReadComplete)).count();
    assert_eq!(claimed, 10, "of 20 bytes, 10 are for the next save");
}

#[test]
fn every_call_without_an_answer_is_counted_as_waiting() {
    let mut bench = Bench::new(config(10, 1, 0, 0));
    let save = begin_in_flight(&mut bench, 5, 10);
    let [restore, flush] = [(); 2].map(|()| bench.request());
    bench.step(Event::Restore { request: restore, version: Version(5) });
    bench.step(Event::Flush { request: flush });
    let saves = [6, 7].map(|version| ask(&mut bench, version, 10));
    assert_eq!(bench.core.waiting(), 4);
    for (left, request) in [(3, restore), (2, flush), (1, saves[0]), (0, saves[1])] {
        bench.step(Event::Withdraw { request });
        assert_eq!(bench.core.waiting(), left);
    }
    report(&mut bench, save, 0, 10);
    assert!(bench.answers.is_empty(), "what was withdrawn gets no answer");
}

#[test]
fn no_save_waits_for_the_room_of_a_copy_that_is_being_read() {
    let mut bench = Bench::new(config(10, 2, 9, 100));
    let first = begin_in_flight(&mut bench, 0, 10);
    report(&mut bench, first, 0, 10);
    let restore = bench.request();
    bench.step(Event::Restore { request: restore, version: Version(0) });
    let pending = begin_in_flight(&mut bench, 1, 10);
    assert!(begin(&mut bench, 2, 20).place.tier != DEVICE, "the host has room");
    bench.step(Event::Restored { request: restore });
    report(&mut bench, pending, 10, 10);
}

/// Sizes about a third, a fifth or an eighth of the most, which differ by up to three percent.
fn size_of(version: i64, ratio: u64) -> u64 {
    let noise = (version as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let mean = 3_000_000 / ratio;
    mean + mean * (noise % 31) / 1000
}

/// The bytes that a save asks for after these sizes: little more than the largest, or a gap that
/// the largest fits.
fn expected(bench: &Bench, last: &[u64]) -> u64 {
    let Some(&largest) = last.iter().max() else { return 3_000_000 };
    let (gap, expected) = (bench.core.largest_gap(DEVICE), largest + largest / 10);
    if (largest..expected).contains(&gap) { gap } else { expected }
}

/// Waits for room, and holds it in flight.
fn begin_after_flushes(bench: &mut Bench, version: i64, bytes: u64) -> Granted {
    let request = ask(bench, version, bytes);
    if !bench.answers.contains_key(&request) {
        bench.finish_all();
    }
    let save = granted(bench, request).expect("room");
    bench.step(Event::SaveInFlight { request });
    save
}

#[test]
fn saves_that_ask_for_what_is_expected_fill_an_arena_of_few_of_the_largest() {
    for (states, ratio) in [(2, 3), (2, 5), (2, 8), (3, 3), (4, 3), (4, 8)] {
        let unit = 1000;
        let mut bench = Bench::new(config(unit, states * 3100, 1 << 32, 0));
        let (mut last, mut held, mut again) = (Vec::new(), 0, 0);
        for version in 0..120 {
            let size = size_of(version, ratio);
            let asked = expected(&bench, &last);
            let mut save = begin_after_flushes(&mut bench, version, asked);
            if size > asked {
                // It is encoded again, with room for the most that it can be.
                abort(&mut bench, save);
                save = begin_after_flushes(&mut bench, version, 3_000_000);
                again += 1;
            }
            bench.finish_all();
            let offset = save.place.offset;
            report(&mut bench, save, offset, size);
            last.insert(0, size);
            last.truncate(8);
            held += if version < 20 { 0 } else { bench.core.stats().tiers[0].copies };
        }
        let mean = held as f64 / 100.0;
        assert!(mean >= 0.8 * (states * ratio) as f64, "{states} of {ratio}: {mean}");
        assert!(again < 10, "{again}");
    }
}
