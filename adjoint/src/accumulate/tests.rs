//! Small problems that can be worked out by hand, and every schedule of random ones.

use std::vec;
use std::vec::Vec;

use super::CheckpointDecision::{Alone, Hold, Raw, Together};
use super::{
    AccumulatePlan, CheckpointDecision, CheckpointProfile, Curve, Effort, End, Mistake, Packer,
    Problem, RunTimes, Simple, Worst, follow, plan,
};
use crate::forecast::Rate;
use unspool_core::Nanos;

const MB: u64 = 1_000_000;
const US: u64 = 1_000;

/// Whether no schedule is better.
fn is_optimal(plan: &AccumulatePlan) -> bool {
    plan.at_least >= plan.outcome.end
}

/// Checkpoints of 2 MB, compressed to a tenth, every 20 us; a link that takes 80 us for one raw and
/// 8 us compressed; copies on the device take 4 us; 128 MB of cache.
fn problem(count: usize, packer: Packer) -> Problem {
    let one = CheckpointProfile { interval: Nanos(20 * US), raw: 2 * MB, packed: MB / 5 };
    let rate = |bytes_per_second| Rate { bytes_per_second, latency: Nanos(0) };
    Problem {
        checkpoints: vec![one; count],
        packer,
        cache: 128 * MB,
        copy: rate(500e9),
        link: rate(25e9),
        end: End::Flushed,
        most_together: u32::MAX,
    }
}

/// A fixed cost of 104 us and 500 GB/s; staged, compacted: nvCOMP's Bitcomp on an H100.
fn nvcomp() -> Packer {
    Packer {
        time: Curve::linear(Nanos(104 * US), 500e9).unwrap(),
        worst: Worst { per_mille: 1002, fixed: 4096 },
        in_place: false,
        compacts: true,
    }
}

/// A fixed cost of 7 us and 1 TB/s; reads in place and writes where the result stays.
fn ours() -> Packer {
    Packer {
        time: Curve::linear(Nanos(7 * US), 1e12).unwrap(),
        worst: Worst { per_mille: 1003, fixed: 4096 },
        in_place: true,
        compacts: false,
    }
}

fn simple(problem: &Problem, simple: Simple) -> RunTimes {
    follow(problem, &simple.decisions(problem)).unwrap()
}

fn best(problem: &Problem) -> AccumulatePlan {
    plan(problem, Effort::for_problem(problem)).unwrap()
}

#[test]
fn times_of_raw_checkpoints_add_up() {
    let found = follow(&problem(2, nvcomp()), &[Raw, Raw]).unwrap();
    // 20 + 4, sent from 24 to 104; the second from 104 to 184, while the application is done at 48.
    assert_eq!(found.end, Nanos(184 * US));
    assert_eq!(
        (found.computing, found.copies, found.last),
        (Nanos(40_000), Nanos(8_000), Nanos(136_000))
    );
    assert_eq!((found.room, found.codec), (Nanos(0), Nanos(0)));
    assert_eq!(found.link_bytes, 4 * MB);
}

#[test]
fn the_fixed_cost_of_the_codec_is_paid_once_for_a_group() {
    let alone = follow(&problem(3, nvcomp()), &[Alone, Alone, Alone]).unwrap();
    assert_eq!(alone.codec, Nanos(3 * 108 * US));
    let together = follow(&problem(3, nvcomp()), &[Hold, Hold, Together]).unwrap();
    assert_eq!(together.codec, Nanos(116 * US));
    // Staged: 3 x 4 us; 600 KB moved to their place: 1.2 us.
    assert_eq!(together.copies, Nanos(13_200));
    assert_eq!(together.end, Nanos((60 + 116 + 24) * US + 13_200));
    assert_eq!(together.counts, [0, 0, 2, 1]);
}

#[test]
fn a_codec_that_reads_in_place_copies_only_what_is_held() {
    assert_eq!(follow(&problem(2, ours()), &[Alone, Alone]).unwrap().copies, Nanos(0));
    assert_eq!(follow(&problem(2, ours()), &[Hold, Together]).unwrap().copies, Nanos(4 * US));
}

#[test]
fn the_application_waits_for_room_that_the_link_makes() {
    let mut small = problem(3, nvcomp());
    small.cache = 3 * MB;
    // The second one finds 1 MB free at 44 us and needs 2: those are free when half of the first
    // is sent, at 64 us. It is in the cache at 68, and has gone at 184; the third needs half of it
    // sent: 144 us.
    let found = follow(&small, &[Raw, Raw, Raw]).unwrap();
    assert_eq!(found.room, Nanos(20 * US + 56 * US));
    assert_eq!(found.end, Nanos(264 * US));
}

#[test]
fn a_run_may_end_with_the_application() {
    let mut hasty = problem(2, nvcomp());
    hasty.end = End::Application;
    let found = follow(&hasty, &[Raw, Raw]).unwrap();
    assert_eq!((found.end, found.last), (Nanos(48 * US), Nanos(0)));
    assert_eq!(best(&hasty).decisions, [Raw, Raw]);
}

#[test]
fn decisions_that_cannot_be_taken_are_refused() {
    let three = problem(3, nvcomp());
    let refused = |decisions: &[CheckpointDecision]| follow(&three, decisions).unwrap_err();
    assert_eq!(refused(&[Raw, Together]), Mistake::Length { decisions: 2, checkpoints: 3 });
    assert_eq!(refused(&[Raw, Together, Raw]), Mistake::Impossible { at: 1 });
    assert_eq!(refused(&[Hold, Raw, Together]), Mistake::Impossible { at: 1 });
    assert_eq!(refused(&[Hold, Alone, Together]), Mistake::Impossible { at: 1 });
    assert_eq!(refused(&[Alone, Hold, Hold]), Mistake::Unfinished);
    let mut small = three.clone();
    small.cache = 4 * MB;
    assert_eq!(follow(&small, &[Alone, Raw, Raw]).unwrap_err(), Mistake::Impossible { at: 0 });
}

#[test]
fn every_decision_is_found_by_its_name() {
    for decision in CheckpointDecision::ALL {
        assert_eq!(CheckpointDecision::of(decision.name()), Some(decision));
    }
    assert_eq!(CheckpointDecision::of("U"), None);
}

#[test]
fn problems_without_sense_are_refused() {
    let good = problem(3, nvcomp());
    let with = |change: fn(&mut Problem)| {
        let mut bad = good.clone();
        change(&mut bad);
        plan(&bad, Effort { states: 8 }).unwrap_err()
    };
    assert_eq!(with(|p| p.link.bytes_per_second = 0.0), Mistake::Rate);
    assert_eq!(with(|p| p.copy.bytes_per_second = f64::NAN), Mistake::Rate);
    assert_eq!(with(|p| p.packer.worst.per_mille = 2_000_000), Mistake::Worst);
    assert_eq!(with(|p| p.checkpoints[1].interval = Nanos(u64::MAX)), Mistake::TooLong);
    let raw = 128 * MB + 1;
    assert_eq!(
        with(|p| p.checkpoints[2].raw = 128 * MB + 1),
        Mistake::TooLarge { at: 2, raw, cache: 128 * MB }
    );
}

#[test]
fn no_checkpoints_need_no_decisions() {
    let found = best(&problem(0, nvcomp()));
    assert_eq!((found.decisions.len(), found.outcome.end), (0, Nanos(0)));
    assert!(found.outcome.overhead() == 0.0 && is_optimal(&found));
}

#[test]
fn curves_pass_through_their_points() {
    let points = [(1000, Nanos(50)), (2000, Nanos(100)), (4000, Nanos(80))];
    let curve = Curve::through(&points).unwrap();
    let times = [0, 1000, 1500, 2000, 3000, 4000, 8000].map(|bytes| curve.time(bytes).0);
    assert_eq!(times, [50, 50, 75, 100, 90, 80, 80]);
    let rising = Curve::through(&points[..2]).unwrap();
    assert_eq!(rising.time(10_000), Nanos(500));
    assert_eq!(Curve::through(&points[..1]).unwrap().time(10_000), Nanos(50));
    assert_eq!(Curve::linear(Nanos(5), 1e9).unwrap().time(1000), Nanos(1005));
    assert_eq!(Curve::through(&[]).unwrap_err(), Mistake::Curve);
    assert_eq!(Curve::through(&[points[1], points[0]]).unwrap_err(), Mistake::Curve);
    assert_eq!(Curve::linear(Nanos(5), 0.0).unwrap_err(), Mistake::Curve);
    assert_eq!(Curve::linear(Nanos(5), f64::NAN).unwrap_err(), Mistake::Curve);
}

#[test]
fn a_link_that_keeps_up_gets_everything_raw() {
    for packer in [nvcomp(), ours()] {
        let mut calm = problem(40, packer);
        calm.checkpoints.iter_mut().for_each(|one| one.interval = Nanos(200 * US));
        let found = best(&calm);
        // The last one is excepted: compressed by a fast codec, it arrives a little earlier.
        assert_eq!(found.decisions[..39], [Raw; 39]);
    }
}

/// 100 checkpoints at 100 GB/s, a cache of 1 GB, and copies that cost 3 us besides.
fn crowded(bytes: u64, packer: Packer) -> Problem {
    let one = CheckpointProfile { interval: Nanos(bytes / 100), raw: bytes, packed: bytes / 10 };
    let copy = Rate { bytes_per_second: 1.2e12, latency: Nanos(3 * US) };
    Problem { checkpoints: vec![one; 100], cache: 1000 * MB, copy, ..problem(0, packer) }
}

/// How many times as long a run takes in which nothing is accumulated.
fn without_accumulating(crowded: &Problem) -> f64 {
    let apart = best(&Problem { most_together: 1, ..crowded.clone() });
    assert_eq!(apart.outcome.counts[2..], [0, 0]);
    apart.outcome.end.0 as f64 / best(crowded).outcome.end.0 as f64
}

#[test]
fn a_codec_with_a_high_fixed_cost_accumulates() {
    for (mb, gain) in [(2, 1.8), (8, 1.4), (32, 1.1)] {
        let crowded = crowded(mb * MB, nvcomp());
        let found = best(&crowded);
        let [_, alone, held, together] = found.outcome.counts;
        let counts = found.outcome.counts;
        assert!(
            is_optimal(&found) && held > 50 && alone <= 1 && together <= 8,
            "{mb} MB: {counts:?}"
        );
        assert!(without_accumulating(&crowded) > gain, "{mb} MB: {counts:?}");
    }
}

#[test]
fn a_codec_with_a_low_fixed_cost_accumulates_nothing_from_8_mb_on() {
    for mb in [8, 32] {
        let found = best(&crowded(mb * MB, ours()));
        assert!(is_optimal(&found));
        assert_eq!(found.outcome.counts[2..], [0, 0], "{mb} MB");
    }
    // Where a copy costs less than the fixed cost of a call, holding still gains a little.
    assert!(without_accumulating(&crowded(2 * MB, ours())) < 1.07);
}

#[test]
fn a_cache_without_room_to_hold_compresses_alone() {
    let mut small = problem(50, nvcomp());
    small.cache = 5 * MB;
    small.checkpoints.iter_mut().for_each(|one| one.raw = 2 * MB);
    let found = best(&small);
    assert_eq!(found.outcome.counts[2..], [0, 0]);
}

/// The example of the docs, where each greedy rule loses.
#[test]
fn greedy_rules_lose() {
    let mut mixed = problem(60, nvcomp());
    // Bursts with calms between them; only the bursts overflow the link.
    for (at, one) in mixed.checkpoints.iter_mut().enumerate() {
        let burst = at % 20 < 12;
        one.interval = Nanos(if burst { 10 * US } else { 150 * US });
        one.packed = if burst { MB / 4 } else { MB };
    }
    mixed.cache = 32 * MB;
    let found = best(&mixed);
    assert!(is_optimal(&found));
    let blocked = |one| simple(&mixed, one).blocked().0 as f64 / found.outcome.blocked().0 as f64;
    let rules = [Simple::Raw, Simple::Alone, Simple::Full, Simple::Pays, Simple::Batches(4)];
    let times = rules.map(blocked);
    assert!(times.iter().all(|&one| one > 1.05), "{times:?}");
}

#[test]
fn a_search_with_few_states_says_how_far_off_it_may_be() {
    let mut dice = Dice(7);
    let hard = dice.problem(60);
    let exact = plan(&hard, Effort { states: usize::MAX }).unwrap();
    assert!(is_optimal(&exact));
    for states in [1, 2, 8, 32, 128] {
        let rough = plan(&hard, Effort { states }).unwrap();
        assert!(rough.at_least <= exact.outcome.end, "{states} states: a false bound");
        assert!(rough.outcome.end >= exact.outcome.end, "{states} states: better than the best");
    }
}

#[test]
fn long_runs_are_planned_with_fewer_states() {
    let states = |count| Effort::for_problem(&problem(count, nvcomp())).states;
    assert_eq!([states(0), states(100), states(10_000), states(1_000_000)], [4096, 2500, 25, 8]);
}

/// All schedules of up to 12 random checkpoints: the plan has the cost of the best one, always.
#[test]
fn plans_are_as_good_as_the_best_of_all_schedules() {
    for seed in 0..600 {
        let mut dice = Dice(seed);
        let count = 1 + dice.below(if seed % 20 == 0 { 12 } else { 9 }) as usize;
        let asked = dice.problem(count);
        let mut every = Every { problem: &asked, best: None, decisions: Vec::new(), tried: 0 };
        every.extend();
        let found = best(&asked);
        assert!(is_optimal(&found));
        let again = follow(&asked, &found.decisions).unwrap();
        assert_eq!(again, found.outcome);
        assert_eq!(Some(found.outcome.end), every.best, "seed {seed}: {asked:?}");
        assert!(every.tried >= 1);
    }
}

/// Tries every schedule, knowing nothing but `follow`.
struct Every<'a> {
    problem: &'a Problem,
    best: Option<Nanos>,
    decisions: Vec<CheckpointDecision>,
    tried: u64,
}

impl Every<'_> {
    fn extend(&mut self) {
        if self.decisions.len() == self.problem.checkpoints.len() {
            if let Ok(outcome) = follow(self.problem, &self.decisions) {
                self.tried += 1;
                self.best = Some(self.best.map_or(outcome.end, |best| best.min(outcome.end)));
            }
            return;
        }
        let holds = self.decisions.last() == Some(&Hold);
        let next: &[CheckpointDecision] =
            if holds { &[Hold, Together] } else { &[Raw, Alone, Hold] };
        for &decision in next {
            self.decisions.push(decision);
            self.extend();
            self.decisions.pop();
        }
    }
}

/// Numbers that look random (xorshift*), the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0xd1b5_4a32_d192_ed03);
        let mixed = (self.0 ^ (self.0 >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 32)) % end
    }

    fn rate(&mut self, most: u64) -> Rate {
        let latency = Nanos([0, 0, 3 * US, 10 * US][self.below(4) as usize]);
        Rate { bytes_per_second: (1 + self.below(most)) as f64 * 1e9, latency }
    }

    fn problem(&mut self, count: usize) -> Problem {
        let (same, pace) = (self.below(2) == 0, 1 + self.below(200) * US);
        let size = 1 + self.below(3 * MB);
        let mut checkpoint = || {
            let raw = if same { size } else { 1 + self.below(3 * MB) };
            let interval = Nanos(self.below(pace));
            CheckpointProfile { interval, raw, packed: raw / (1 + self.below(12)) }
        };
        let checkpoints: Vec<CheckpointProfile> = (0..count).map(|_| checkpoint()).collect();
        let time = if self.below(3) == 0 {
            let points = [1, 2, 5, 20].map(|mb| (mb * MB, Nanos(self.below(150 * US))));
            Curve::through(&points).unwrap()
        } else {
            let rate = (1 + self.below(900)) as f64 * 1e9;
            Curve::linear(Nanos(self.below(120 * US)), rate).unwrap()
        };
        let packer = Packer {
            time,
            worst: Worst { per_mille: 1000 + self.below(30), fixed: self.below(MB) },
            in_place: self.below(2) == 0,
            compacts: self.below(2) == 0,
        };
        let largest = checkpoints.iter().map(|one| one.raw).max().unwrap_or(0);
        Problem {
            checkpoints,
            packer,
            cache: largest + self.below(24 * MB),
            copy: self.rate(800),
            link: self.rate(60),
            end: if self.below(5) == 0 { End::Application } else { End::Flushed },
            most_together: u32::MAX,
        }
    }
}
