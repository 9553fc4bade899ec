//! The decider on programs of touches, against the fewest loads that are possible.

use proptest::prelude::*;

use super::{Ahead, Claim, Decider};

/// A doer without memory: it loads and evicts at once, and sees of the program what faults show.
struct Simulated {
    decider: Decider,
    here: Vec<bool>,
    wired: Vec<bool>,
    room: usize,
    loads: u64,
    /// Loads that the program waited for.
    faults: u64,
    is_idle_between: bool,
}

impl Simulated {
    fn new(chunks: u32, room: usize) -> Simulated {
        let none = vec![false; chunks as usize];
        Simulated {
            decider: Decider::new(chunks, room, 7),
            here: none.clone(),
            wired: none,
            room,
            loads: 0,
            faults: 0,
            is_idle_between: true,
        }
    }

    fn evict(&mut self, chunk: u32) {
        assert!(std::mem::replace(&mut self.here[chunk as usize], false), "{chunk} is there");
        self.decider.evicted(chunk);
    }

    fn load(&mut self, chunk: u32) {
        assert!(!std::mem::replace(&mut self.here[chunk as usize], true), "{chunk} is not there");
        self.loads += 1;
        self.decider.loaded(chunk);
        assert!(self.here.iter().filter(|&&here| here).count() <= self.room);
    }

    fn touch(&mut self, chunk: u32) {
        let wired = std::mem::replace(&mut self.wired[chunk as usize], false);
        if !self.here[chunk as usize] || wired {
            self.decider.touched(chunk);
        }
        if !self.here[chunk as usize] {
            self.faults += 1;
            loop {
                match self.decider.claim(chunk) {
                    Claim::Seated => break,
                    Claim::Evict(victim) => self.evict(victim),
                    answer => panic!("nothing is pinned or going, and the answer is {answer:?}"),
                }
            }
            self.load(chunk);
        }
        while self.is_idle_between {
            match self.decider.ahead() {
                Some(Ahead::Load(next, wire)) => {
                    self.wired[next as usize] = wire.is_some();
                    self.load(next);
                }
                Some(Ahead::Evict(victim)) => self.evict(victim),
                None => break,
            }
        }
    }

    fn run(&mut self, touches: impl IntoIterator<Item = u32>) -> u64 {
        let before = self.loads;
        touches.into_iter().for_each(|chunk| self.touch(chunk));
        self.loads - before
    }
}

/// The fewest loads with which a program can run (Belady 1966).
fn fewest_loads(touches: &[u32], room: usize) -> u64 {
    let mut here: Vec<u32> = Vec::new();
    let mut loads = 0;
    for (now, &chunk) in touches.iter().enumerate() {
        if here.contains(&chunk) {
            continue;
        }
        loads += 1;
        if here.len() == room {
            let next = |other: &u32| touches[now..].iter().position(|next| next == other);
            let victim = (0..room).max_by_key(|&i| next(&here[i]).unwrap_or(usize::MAX));
            here.swap_remove(victim.unwrap());
        }
        here.push(chunk);
    }
    loads
}

fn laps(chunks: u32, count: usize) -> Vec<u32> {
    (0..count).flat_map(|_| 0..chunks).collect()
}

/// Loads a lap of a cyclic sweep: what cannot stay, and what is kept for the stream.
fn expected(chunks: u32, room: usize) -> u64 {
    u64::from(chunks) - room as u64 + (room / 4).max(1) as u64
}

#[test]
fn a_cycle_that_is_given_is_loaded_ahead_and_as_seldom_as_can_be() {
    for (chunks, room) in [(100, 50), (100, 25), (64, 60), (40, 8)] {
        let mut run = Simulated::new(chunks, room);
        assert!(run.decider.expect(Some((0..chunks).collect())));
        run.run(laps(chunks, 2));
        let (faults, loads) = (run.faults, run.run(laps(chunks, 10)));
        assert!(run.faults - faults <= 1, "{chunks} {room}: {} faults", run.faults - faults);
        let most = 10 * expected(chunks, room) + 10;
        assert!(loads <= most, "{chunks} {room}: {loads} loads, {most} at most");
        assert!(loads >= fewest_loads(&laps(chunks, 10), room) - room as u64);
    }
}

#[test]
fn a_cycle_that_is_found_out_is_loaded_ahead_after_a_few_faults() {
    for downwards in [false, true] {
        let lap: Vec<u32> = if downwards { (0..80).rev().collect() } else { (0..80).collect() };
        let mut run = Simulated::new(80, 40);
        let first = run.run(lap.clone());
        assert!(run.faults <= 5 && first <= 90, "{} faults, {first} loads", run.faults);
        run.run(lap.clone());
        let loads = run.run((0..10).flat_map(|_| lap.clone()));
        assert!(run.faults <= 7, "{} faults", run.faults);
        assert!(loads <= 10 * expected(80, 40) + 10, "{loads} loads");
        assert_eq!(run.decider.order(), Some(false));
    }
}

#[test]
fn lru_would_load_everything_in_the_same_cycle() {
    // What the figures above are to be compared with.
    let mut here: Vec<u32> = Vec::new();
    let mut loads = 0;
    for chunk in laps(80, 10) {
        if let Some(i) = here.iter().position(|&other| other == chunk) {
            here.remove(i);
        } else {
            loads += 1;
            here.truncate(39);
        }
        here.insert(0, chunk);
    }
    assert_eq!(loads, 800);
}

#[test]
fn a_sweep_that_turns_round_is_found_out_again() {
    let mut run = Simulated::new(100, 25);
    let there_and_back: Vec<u32> = (0..100).chain((0..100).rev()).collect();
    run.run((0..5).flat_map(|_| there_and_back.clone()));
    assert!(run.faults < 100, "{} faults of 1000 touches", run.faults);
}

#[test]
fn a_program_that_goes_to_and_fro_within_a_sweep_loads_no_more() {
    // Four chunks at a time, three times over, as a product of matrices does.
    let lap = || (0..100_u32).step_by(4).flat_map(|i| (0..12).map(move |j| i + j % 4));
    let mut run = Simulated::new(100, 40);
    run.decider.expect(Some((0..100).collect()));
    run.run(lap());
    let loads = run.run((0..10).flat_map(|_| lap()));
    assert!(loads <= 10 * expected(100, 40) + 10, "{loads} loads");
}

#[test]
fn an_order_that_the_program_does_not_keep_is_not_acted_on() {
    let mut run = Simulated::new(100, 20);
    run.decider.expect(Some((0..100).collect()));
    let touches: Vec<u32> = (0..3000_u64).map(|i| (i * i * 7919 % 97) as u32).collect();
    let loads = run.run(touches.clone());
    assert_eq!(run.decider.order(), None);
    assert!(loads < run.faults + 300, "{loads} loads for {} faults", run.faults);
    run.run(laps(100, 3));
    assert_eq!(run.decider.order(), Some(true), "it is believed again once it is kept");
}

#[test]
fn what_has_to_come_back_often_stays() {
    // Chunks 0 to 9 are touched every other time, the rest at random.
    let mut state = 1_u64;
    let mut draw = move |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % n
    };
    let mut run = Simulated::new(200, 20);
    for _ in 0..20_000 {
        run.touch(draw(10) as u32);
        run.touch(10 + draw(190) as u32);
    }
    let hot = run.decider.order().is_none() && run.faults < 20_000 + 6_000;
    assert!(hot, "{} faults: 20,000 touches are cold", run.faults);
}

#[test]
fn pinned_chunks_stay_and_leave_room_for_others() {
    let mut run = Simulated::new(10, 4);
    for chunk in [3, 5, 7, 9] {
        assert_eq!(run.decider.pin(chunk), chunk < 9, "three of four may be pinned");
        run.touch(chunk);
    }
    run.decider.unpin(7);
    run.is_idle_between = false;
    run.run((0..200).map(|i| i * 7 % 10));
    assert!(run.here[3] && run.here[5]);
    run.decider.unpin(3);
    run.decider.unpin(5);
    run.run([0, 1, 2, 6, 8, 9, 4, 0, 1, 2, 6, 8, 9, 4, 0, 1, 2, 6, 8, 9]);
    assert!(!run.here[3] || !run.here[5]);
}

#[test]
fn what_cannot_be_evicted_is_not_tried_without_end() {
    let mut decider = Decider::new(4, 2, 1);
    for chunk in [0, 1] {
        decider.touched(chunk);
        assert_eq!(decider.claim(chunk), Claim::Seated);
        decider.loaded(chunk);
    }
    decider.touched(2);
    let Claim::Evict(victim) = decider.claim(2) else { panic!("it is full") };
    decider.stays(victim);
    decider.seat(2);
    decider.loaded(2);
    assert_eq!(decider.ahead(), None, "not again before the program goes on");
    decider.touched(3);
    assert!(matches!(decider.ahead(), Some(Ahead::Evict(_))), "it holds one too many");
}

#[test]
fn a_claim_waits_for_what_others_move_and_is_full_only_when_all_has_to_stay() {
    let mut decider = Decider::new(4, 2, 1);
    assert_eq!((decider.claim(0), decider.claim(1)), (Claim::Seated, Claim::Seated));
    assert_eq!(decider.claim(2), Claim::Wait, "both are coming");
    decider.loaded(0);
    assert_eq!(decider.claim(2), Claim::Evict(0));
    decider.loaded(1);
    assert!(decider.pin(1));
    assert_eq!(decider.claim(2), Claim::Wait, "one is going");
    decider.stays(0);
    assert_eq!(decider.claim(2), Claim::Evict(0));
    decider.evicted(0);
    assert_eq!(decider.claim(2), Claim::Seated);
    decider.failed(2);
    decider.seat(3);
    decider.failed(3);
    assert_eq!(decider.claim(2), Claim::Seated);
}

#[test]
fn orders_beyond_the_array_are_refused() {
    let mut decider = Decider::new(4, 2, 1);
    assert!(!decider.expect(Some(vec![0, 4])) && !decider.expect(Some(vec![])));
    assert!(decider.expect(None) && decider.expect(Some(vec![3])));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Any program, with any order promised: never more in memory than there is room (checked at
    /// each load), and never fewer loads than are possible (or the simulation is wrong).
    #[test]
    fn no_program_goes_wrong(
        touches in prop::collection::vec(0_u32..24, 1..400),
        order in prop::option::of(prop::collection::vec(0_u32..24, 1..60)),
        room in 1_usize..24,
        idle: bool,
    ) {
        let mut run = Simulated::new(24, room);
        run.is_idle_between = idle;
        run.decider.expect(order);
        let loads = run.run(touches.clone());
        prop_assert!(loads >= fewest_loads(&touches, room));
    }

    /// Any order that is kept costs at most twice the fewest loads with the room that does not
    /// stream, and a lap at the beginning. Mostly it costs much less, but keepers are spread
    /// evenly, whatever a lap repeats.
    #[test]
    fn an_order_that_is_kept_is_near_the_bound(
        lap in prop::collection::vec(0_u32..32, 8..80),
        room in 4_usize..32,
    ) {
        let touches: Vec<u32> = (0..12).flat_map(|_| lap.clone()).collect();
        let mut run = Simulated::new(32, room);
        run.decider.expect(Some(lap.clone()));
        let loads = run.run(touches.clone());
        let fewest = fewest_loads(&touches, room - (room / 4).max(1));
        let most = 2 * fewest + lap.len() as u64;
        prop_assert!(loads <= most, "{loads} loads, {fewest} with less room");
    }
}
