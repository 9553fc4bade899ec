//! Preparation of an arena with a stand-in for the driver: order, pace, turns, errors.

use std::path::Path;
use std::sync::Mutex;

use super::*;

/// A registrar that records what is registered and can be made to refuse.
#[derive(Default)]
struct Notes {
    ranges: Vec<(usize, u64)>,
    gone: Vec<usize>,
}

#[derive(Clone)]
struct Fake {
    notes: Arc<Mutex<Notes>>,
    refuse_from: usize,
}

impl Fake {
    fn new(refuse_from: usize) -> Fake {
        Fake { notes: Arc::default(), refuse_from }
    }
}

impl Registrar for Fake {
    unsafe fn register(&self, place: *mut u8, len: u64) -> Result<(), CudaError> {
        let mut notes = self.notes.lock().unwrap();
        if notes.ranges.len() >= self.refuse_from {
            return Err(CudaError {
                call: "cuMemHostRegister_v2",
                code: 2,
                name: "CUDA_ERROR_OUT_OF_MEMORY".into(),
                text: "out of memory".into(),
            });
        }
        notes.ranges.push((place.addr(), len));
        Ok(())
    }

    unsafe fn unregister(&self, place: *mut u8) -> Result<(), CudaError> {
        self.notes.lock().unwrap().gone.push(place.addr());
        Ok(())
    }
}

const MIB: u64 = 1 << 20;
const LONG: Duration = Duration::from_secs(60);

fn memory(len: u64, fake: &Fake) -> Prepared {
    let mapping = Mapping::new(len, true).unwrap();
    Prepared::new(mapping, Chunks::new(len, 2 * MIB, 8 * MIB), Box::new(fake.clone()))
}

fn arena(capacity: u64, fake: &Fake, turns: Turns, pace: Pace) -> Arc<Prepared> {
    let mut prepared = memory(capacity, fake);
    prepared.begin(capacity, turns, pace);
    Arc::new(prepared)
}

fn wait_registered(arena: &Prepared, upto: u64) -> Result<(), DeviceError> {
    let progress = &arena.progress;
    progress.wait_until("registered", || progress.registered(), upto, LONG)
}

#[test]
fn every_chunk_is_registered_once_in_order_after_its_pages_are_touched() {
    let (capacity, fake) = (37 * MIB + 4096, Fake::new(usize::MAX));
    let arena = arena(capacity, &fake, Turns::none(), Pace::default());
    let thread = arena.start(3).unwrap();
    wait_registered(&arena, capacity).unwrap();
    thread.join();
    assert_eq!(arena.progress.touched(), capacity);
    let notes = fake.notes.lock().unwrap();
    let expected: Vec<(usize, u64)> = (0..arena.chunks.count())
        .map(|index| arena.chunks.range(index))
        .map(|range| (arena.mapping.at(range.start, 0).addr(), range.end - range.start))
        .collect();
    assert_eq!(notes.ranges, expected);
    let stats = arena.progress.state().stats;
    assert_eq!(stats.calls, arena.chunks.count());
    assert!(stats.all_after.is_some());
}

#[test]
fn what_was_registered_is_unregistered_and_nothing_else() {
    let fake = Fake::new(3);
    let arena = arena(37 * MIB, &fake, Turns::none(), Pace::Unpaced);
    let thread = arena.start(2).unwrap();
    assert!(wait_registered(&arena, 37 * MIB).is_err());
    arena.progress.stop();
    thread.join();
    drop(arena);
    let notes = fake.notes.lock().unwrap();
    assert_eq!(notes.ranges.len(), 3);
    assert_eq!(notes.gone, notes.ranges.iter().map(|range| range.0).collect::<Vec<_>>());
}

#[test]
fn a_refused_registration_says_what_was_asked_what_is_free_and_which_option() {
    let fake = Fake::new(2);
    let arena = arena(37 * MIB, &fake, Turns::none(), Pace::Unpaced);
    let thread = arena.start(2).unwrap();
    let error = wait_registered(&arena, 37 * MIB).unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::PinLimit);
    let text = error.to_string();
    for part in
        ["host RAM", "asked 37 MiB", "free", "RLIMIT_MEMLOCK", "6 MiB pinned", "`host_memory`"]
    {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    assert_eq!(arena.progress.registered(), 6 * MIB);
    wait_registered(&arena, 6 * MIB).unwrap();
    thread.join();
}

#[test]
fn registration_waits_for_the_turn_of_another_and_goes_on_after_it() {
    let directory = tempfile::tempdir().unwrap().keep();
    let other = Turns::of(Path::new(&directory), "x");
    let turn = other.try_take().unwrap();
    let fake = Fake::new(usize::MAX);
    let arena = arena(8 * MIB, &fake, Turns::of(&directory, "x"), Pace::Unpaced);
    let thread = arena.start(1).unwrap();
    let progress = &arena.progress;
    progress.wait_until("touched", || progress.touched(), 8 * MIB, LONG).unwrap();
    let before = progress.registered();
    drop(turn);
    wait_registered(&arena, 8 * MIB).unwrap();
    thread.join();
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(before == 0, "registered {before} bytes in the turn of another");
}

#[test]
fn what_a_copy_waits_for_is_registered_without_a_gap() {
    let fake = Fake::new(usize::MAX);
    let arena = arena(37 * MIB, &fake, Turns::none(), Pace::WhenIdle);
    arena.progress.link_busy();
    arena.progress.want(13 * MIB);
    let thread = arena.start(2).unwrap();
    wait_registered(&arena, 14 * MIB).unwrap();
    let progress = &arena.progress;
    progress.wait_until("touched", || progress.touched(), 37 * MIB, LONG).unwrap();
    assert_eq!(progress.registered(), 14 * MIB, "the rest is not wanted, and the links are busy");
    progress.link_idle();
    wait_registered(&arena, 37 * MIB).unwrap();
    thread.join();
}

#[test]
fn links_that_stay_busy_delay_a_pace_that_wants_them_idle() {
    let fake = Fake::new(usize::MAX);
    let arena = arena(37 * MIB, &fake, Turns::none(), Pace::WhenIdle);
    arena.progress.link_busy();
    let thread = arena.start(2).unwrap();
    wait_registered(&arena, 2 * MIB).unwrap();
    assert!(arena.progress.registered() == 2 * MIB, "only the first chunk goes in any case");
    arena.progress.link_idle();
    wait_registered(&arena, 37 * MIB).unwrap();
    thread.join();
}

/// Uses the bytes below `used`: those below `ready` are prepared, and no more than a chunk beyond.
fn assert_prepared(arena: &Prepared, used: u64, ready: u64) {
    arena.used_up_to(used);
    wait_registered(arena, ready).unwrap();
    std::thread::sleep(20 * Duration::from_millis(1));
    let chunk = 8 * MIB;
    assert!(arena.progress.registered() <= ready + chunk);
    assert!(arena.progress.touched() <= ready + chunk);
}

#[test]
fn as_much_again_is_prepared_as_is_used() {
    let fake = Fake::new(usize::MAX);
    let arena = arena(4 * FIRST, &fake, Turns::none(), Pace::Unpaced);
    let thread = arena.start(2).unwrap();
    wait_registered(&arena, FIRST).unwrap();
    for (used, ready) in [(FIRST / 4, FIRST), (FIRST / 2 + MIB, FIRST + 2 * MIB)] {
        assert_prepared(&arena, used, ready);
    }
    arena.progress.stop();
    thread.join();
}

#[test]
fn nothing_is_prepared_ahead_of_use_beyond_what_is_wanted() {
    let fake = Fake::new(usize::MAX);
    let arena = arena(4 * FIRST, &fake, Turns::none(), Pace::Unpaced);
    let thread = arena.start(2).unwrap();
    arena.want(2 * FIRST);
    // As far as is wanted, and then as far as is used.
    for (used, ready) in [(FIRST + MIB, 2 * FIRST), (2 * FIRST + MIB, 2 * FIRST + MIB)] {
        assert_prepared(&arena, used, ready);
    }
    arena.progress.stop();
    thread.join();
}

#[test]
fn an_arena_is_prepared_to_its_end_when_all_of_it_is_used() {
    let fake = Fake::new(usize::MAX);
    let arena = arena(FIRST + 3 * MIB, &fake, Turns::none(), Pace::Unpaced);
    let thread = arena.start(1).unwrap();
    arena.used_up_to(FIRST);
    wait_registered(&arena, FIRST + 3 * MIB).unwrap();
    thread.join();
    assert!(arena.progress.state().stats.all_after.is_some());
}

#[test]
fn one_thread_alone_touches_and_registers_by_turns() {
    let fake = Fake::new(usize::MAX);
    let arena = arena(64 * MIB, &fake, Turns::none(), Pace::Unpaced);
    arena.aim_for(1);
    std::thread::scope(|scope| {
        scope.spawn(|| arena.register_chunks(64 * MIB, false));
        wait_registered(&arena, 2 * MIB).unwrap();
        assert_eq!(arena.progress.touched(), 2 * MIB);
        arena.aim_for(64 * MIB);
        wait_registered(&arena, 64 * MIB).unwrap();
        arena.progress.stop();
    });
}

#[test]
fn memory_that_is_used_again_is_prepared_once_and_only_as_far_as_the_arena_goes() {
    let fake = Fake::new(usize::MAX);
    let mut prepared = memory(94 * MIB, &fake);
    for (capacity, done) in [(20, 22), (38, 38), (10, 38), (93, 94)] {
        prepared.begin(capacity * MIB, Turns::none(), Pace::Unpaced);
        let arena = Arc::new(prepared);
        let thread = arena.start(2).unwrap();
        wait_registered(&arena, capacity * MIB).unwrap();
        thread.join();
        assert_eq!(arena.progress.registered(), done * MIB, "whole chunks");
        assert!(arena.progress.state().stats.all_after.is_some());
        prepared = Arc::into_inner(arena).unwrap();
        let sum: u64 = fake.notes.lock().unwrap().ranges.iter().map(|range| range.1).sum();
        assert_eq!(sum, done * MIB);
    }
    drop(prepared);
    let notes = fake.notes.lock().unwrap();
    assert_eq!(notes.gone.len(), notes.ranges.len());
}
