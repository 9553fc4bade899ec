//! Arenas that turn out smaller while they are used, and have as much again.

mod support;

use support::{Bench, config};
use unspool_core::{
    Command, Event, Failure, Kept, Place, Refusal, RequestId, Size, TierId, Version,
};

const DEVICE: TierId = TierId(0);
const HOST: TierId = TierId(1);

fn ask(bench: &mut Bench, version: i64, bytes: u64, size: Size) -> RequestId {
    let request = bench.request();
    bench.step(Event::Save { request, version: Version(version), bytes, size });
    request
}

fn place_of(bench: &mut Bench, request: RequestId) -> Place {
    match bench.answer(request) {
        Command::Grant { place, .. } => place,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_save_whose_room_is_gone_finds_room_below() {
    let mut bench = Bench::new(config(8, 4, 4, 0));
    bench.save_all(0..1, 8);
    let second = ask(&mut bench, 1, 8, Size::Exact);
    assert_eq!(place_of(&mut bench, second), Place { tier: DEVICE, offset: 8 });
    bench.step(Event::Shrunk { tier: DEVICE, capacity: 8 });
    assert_eq!(bench.core.capacity(DEVICE), 8);
    assert_eq!(bench.core.stats().tiers[0].capacity, 8);
    bench.step(Event::SaveAborted { request: second });
    bench.save_all(1..4, 8);
    bench.finish_all();
    assert!(bench.core.stats().tiers[0].used <= 8);
    (0..4).for_each(|version| assert!(bench.restore(version).is_ok(), "{version}"));
}

#[test]
fn a_save_across_the_new_end_keeps_its_room_until_it_is_given_up() {
    let mut bench = Bench::new(config(8, 4, 4, 0));
    let across = ask(&mut bench, 0, 24, Size::Exact);
    assert_eq!(place_of(&mut bench, across), Place { tier: DEVICE, offset: 0 });
    bench.step(Event::Shrunk { tier: DEVICE, capacity: 16 });
    let other = ask(&mut bench, 1, 8, Size::Exact);
    assert_eq!(place_of(&mut bench, other).tier, HOST, "the bytes may still be borrowed");
    bench.step(Event::SaveAborted { request: other });
    bench.step(Event::SaveAborted { request: across });
    let after = ask(&mut bench, 2, 16, Size::Exact);
    assert_eq!(place_of(&mut bench, after), Place { tier: DEVICE, offset: 0 });
}

#[test]
fn saves_of_unknown_size_beyond_the_new_end_leave_nothing() {
    let mut bench = Bench::new(config(8, 4, 0, 9));
    let saves: Vec<_> = (0..4).map(|v| ask(&mut bench, v, 8, Size::AtMost)).collect();
    let places: Vec<_> = saves.iter().map(|save| place_of(&mut bench, *save).offset).collect();
    assert_eq!(places, [0, 8, 16, 24]);
    bench.step(Event::Shrunk { tier: DEVICE, capacity: 12 });
    for request in [saves[2], saves[1], saves[3]] {
        bench.step(Event::SaveAborted { request });
    }
    let kept = Some(Kept { offset: 0, bytes: 3 });
    bench.step(Event::Saved { request: saves[0], kept });
    assert_eq!(bench.core.stats().tiers[0].used, 3);
    assert!(matches!(bench.save(7, 9), Command::Grant { place, .. } if place.tier == DEVICE));
}

#[test]
fn a_save_that_waits_and_fits_nowhere_any_more_is_refused() {
    let mut bench = Bench::new(config(8, 4, 0, 0));
    let first = ask(&mut bench, 0, 24, Size::Exact);
    let second = ask(&mut bench, 1, 16, Size::Exact);
    assert!(!bench.answers.contains_key(&second));
    bench.step(Event::Shrunk { tier: DEVICE, capacity: 8 });
    let refusal = Refusal::TooLarge { largest: 8 };
    assert_eq!(bench.answer(second), Command::Refuse { request: second, refusal });
    bench.step(Event::SaveAborted { request: first });
    assert_eq!(bench.core.versions(), []);
}

#[test]
fn nothing_at_all_is_as_an_arena_without_room() {
    let mut bench = Bench::new(config(8, 4, 2, 8));
    bench.step(Event::Shrunk { tier: DEVICE, capacity: 0 });
    bench.save_all(0..6, 8);
    bench.expect(0..6);
    bench.finish_all();
    (0..6).for_each(|version| assert!(bench.restore(version).is_ok(), "{version}"));
    assert_eq!((bench.transfers_to(0), bench.core.stats().tiers[0].peak), (0, 0));
}

#[test]
fn a_prefetch_whose_room_is_gone_is_not_held_against_its_checkpoint() {
    let mut bench = Bench::new(config(8, 2, 0, 8));
    bench.save_all(0..4, 8);
    bench.finish_all();
    bench.expect([0, 1]);
    let places: Vec<_> = bench.moving.iter().map(|m| (m.version.0, m.to.offset)).collect();
    let beyond = places.iter().position(|(_, offset)| *offset == 8).expect("both are fetched");
    let [here, gone] = [places[1 - beyond].0, places[beyond].0];
    bench.moving.rotate_left(beyond);
    bench.step(Event::Shrunk { tier: DEVICE, capacity: 8 });
    bench.fail_one(Failure::NoSpace);
    bench.finish_all();
    assert_eq!(bench.restore(here), Ok(DEVICE));
    bench.finish_all();
    assert_eq!(bench.restore(gone), Ok(DEVICE), "it is brought to what is left");
}

#[test]
fn a_prefetch_on_its_way_to_room_that_is_gone_ends_before_the_next_begins() {
    let mut settings = config(7, 2, 2, 9);
    settings.links.iter_mut().for_each(|link| link.max_in_flight = 1);
    let mut bench = Bench::new(settings);
    bench.save(2, 8);
    bench.finish_all();
    bench.save(3, 7);
    bench.expect([2]);
    while bench.moving.front().is_some_and(|moving| moving.version != Version(2)) {
        bench.finish_one();
    }
    assert_eq!(bench.moving.front().map(|moving| moving.to.tier), Some(HOST));
    bench.shrink(HOST, 0);
    assert_eq!(bench.moving.len(), 1, "the disk is read once at a time");
    bench.finish_all();
    assert_eq!(bench.restore(2), Ok(DEVICE), "it goes past the host");
}

#[test]
fn an_arena_that_has_its_bytes_again_takes_saves_there() {
    let mut bench = Bench::new(config(8, 4, 4, 0));
    bench.save_all(0..1, 8);
    bench.step(Event::Shrunk { tier: DEVICE, capacity: 8 });
    let below = ask(&mut bench, 1, 16, Size::Exact);
    assert_eq!(place_of(&mut bench, below).tier, HOST);
    bench.step(Event::Grown { tier: DEVICE, capacity: 32 });
    assert_eq!((bench.core.capacity(DEVICE), bench.core.stats().tiers[0].capacity), (32, 32));
    let there = ask(&mut bench, 2, 24, Size::Exact);
    assert_eq!(place_of(&mut bench, there).tier, DEVICE);
    let none = Event::Grown { tier: DEVICE, capacity: 16 };
    bench.step(none);
    assert_eq!(bench.core.capacity(DEVICE), 32, "it has more than that");
}

#[test]
fn a_save_that_waits_gets_the_bytes_that_came_back() {
    let mut bench = Bench::new(config(8, 4, 0, 0));
    bench.step(Event::Shrunk { tier: DEVICE, capacity: 16 });
    let first = ask(&mut bench, 0, 16, Size::Exact);
    let second = ask(&mut bench, 1, 16, Size::Exact);
    assert!(!bench.answers.contains_key(&second));
    bench.step(Event::Grown { tier: DEVICE, capacity: 32 });
    assert_eq!(place_of(&mut bench, second), Place { tier: DEVICE, offset: 16 });
    assert_eq!(place_of(&mut bench, first).offset, 0);
}

#[test]
fn nothing_comes_back_while_a_save_holds_bytes_that_were_lost() {
    let mut bench = Bench::new(config(8, 4, 4, 0));
    let saves = [0, 1].map(|version| ask(&mut bench, version, 16, Size::Exact));
    assert_eq!(saves.map(|save| place_of(&mut bench, save).offset), [0, 16]);
    bench.step(Event::Shrunk { tier: DEVICE, capacity: 24 });
    bench.step(Event::Grown { tier: DEVICE, capacity: 32 });
    assert_eq!(bench.core.capacity(DEVICE), 24, "the second save has some of them");
    bench.step(Event::SaveAborted { request: saves[1] });
    bench.step(Event::Grown { tier: DEVICE, capacity: 32 });
    assert_eq!(bench.core.capacity(DEVICE), 32);
    let again = ask(&mut bench, 2, 16, Size::Exact);
    assert_eq!(place_of(&mut bench, again), Place { tier: DEVICE, offset: 16 });
}

#[test]
fn an_arena_never_ends_before_a_complete_copy() {
    let mut bench = Bench::new(config(8, 4, 0, 0));
    bench.save_all(0..2, 8);
    bench.step(Event::Shrunk { tier: DEVICE, capacity: 8 });
    assert_eq!(bench.core.capacity(DEVICE), 16);
    (0..2).for_each(|version| assert!(bench.restore(version).is_ok(), "{version}"));
}

#[test]
fn an_arena_that_is_taken_by_need_is_used_from_its_start_on() {
    let places = |by_need: bool| -> Vec<u64> {
        let mut bench = Bench::new(config(8, 8, 0, 0));
        if by_need {
            bench.step(Event::TakenByNeed { tier: DEVICE });
        }
        // Two are there at a time, of which the older one goes.
        let place = |version: i64| {
            let Command::Grant { place, .. } = bench.save(version, 8) else { panic!("{version}") };
            bench.step(Event::Discard { version: Version(version - 1) });
            place.offset
        };
        (0..6).map(place).collect()
    };
    assert!(places(true).iter().all(|&offset| offset <= 8), "{:?}", places(true));
    assert!(places(false).iter().any(|&offset| offset > 8), "{:?}", places(false));
}

/// Found by the simulator (seed 14917): the room of a save in flight begins where the save before
/// it has ended, but what it writes may reach as far as it was granted.
#[test]
fn nothing_comes_back_while_a_save_of_unknown_size_may_reach_bytes_that_were_lost() {
    let mut bench = Bench::new(config(8, 4, 4, 0));
    let saves = [0, 1].map(|version| ask(&mut bench, version, 16, Size::AtMost));
    assert_eq!(saves.map(|save| place_of(&mut bench, save).offset), [0, 16]);
    let kept = Some(Kept { offset: 0, bytes: 8 });
    bench.step(Event::Saved { request: saves[0], kept });
    bench.step(Event::Shrunk { tier: DEVICE, capacity: 24 });
    bench.step(Event::Grown { tier: DEVICE, capacity: 32 });
    assert_eq!(bench.core.capacity(DEVICE), 24, "the second save was granted some of them");
    bench.step(Event::SaveAborted { request: saves[1] });
    bench.step(Event::Grown { tier: DEVICE, capacity: 32 });
    assert_eq!(bench.core.capacity(DEVICE), 32);
}
