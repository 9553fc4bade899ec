//! Whole schedules: their own cost, what the interpreter counts, and the cheapest possible.

use std::vec::Vec;

use proptest::prelude::*;

use super::grid::{Budget, LevelGrid};
use super::plan::revolve_seconds;
use super::*;
use crate::revolve::advances;
use crate::{Counts, Limits, check};

mod oracle;

const TIERS: [TierKind; MOST] = [TierKind::Device, TierKind::Host, TierKind::Disk];

/// Levels from slots, write and read seconds.
fn levels(of: &[(u64, f64, f64)]) -> Vec<Level> {
    let level = |(&tier, &(slots, write_seconds, read_seconds))| Level {
        tier,
        slots,
        write_seconds,
        read_seconds,
    };
    TIERS.iter().zip(of).map(level).collect()
}

/// What carrying the schedule out costs, within the limits of every level.
fn walked(schedule: &MultiLevel, step_seconds: f64) -> (f64, Counts) {
    let mut limits = Limits::of(schedule);
    for part in &schedule.plan.parts {
        limits = limits.with_tier(part.level.tier, part.level.slots);
    }
    let counts = check(schedule.clone(), limits).unwrap();
    let cost_of = |action| {
        let level = |tier| schedule.plan.parts.iter().find(|part| Some(part.level.tier) == tier);
        match action {
            Action::Save { tier, .. } => level(tier).unwrap().level.write_seconds,
            Action::Restore { tier, .. } => level(tier).unwrap().level.read_seconds,
            _ => 0.0,
        }
    };
    let moved: f64 = schedule.clone().map(cost_of).sum();
    (counts.advances as f64 * step_seconds + moved, counts)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.max(b).max(1.0)
}

/// A schedule for steps of one second, checked.
fn scheduled(steps: u64, of: &[(u64, f64, f64)]) -> MultiLevel {
    let schedule = MultiLevel::new(steps, &levels(of), 1.0).unwrap();
    let (cost, counts) = walked(&schedule, 1.0);
    assert_eq!(counts.reverses, steps);
    assert!(close(cost, schedule.cost_seconds()), "{cost}, {}", schedule.cost_seconds());
    schedule
}

#[test]
fn one_level_without_costs_is_revolve() {
    for slots in [1, 2, 3, 7, 40, u64::MAX] {
        for steps in 1..120 {
            let schedule = scheduled(steps, &[(slots, 0.0, 0.0)]);
            assert_eq!(schedule.cost_seconds(), advances(steps, slots) as f64);
        }
    }
}

#[test]
fn levels_without_costs_are_revolve_with_all_their_slots() {
    for steps in [1, 2, 5, 17, 60, 200] {
        let schedule = scheduled(steps, &[(2, 0.0, 0.0), (3, 0.0, 0.0), (1, 0.0, 0.0)]);
        assert_eq!(schedule.cost_seconds(), advances(steps, 6) as f64);
    }
}

#[test]
fn an_exhaustive_search_finds_nothing_cheaper() {
    // Writes and reads grow from level to level, by nothing, less than a step, or more.
    let growths = [0.0, 0.125, 0.5, 1.0, 3.0];
    let mut numbers = (0u64..).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29) >> 7);
    let mut draw = |below: usize| (numbers.next().unwrap() % below as u64) as usize;
    for case in 0..300 {
        let (mut of, mut write, mut read) = (Vec::new(), 0.0, 0.0);
        for _ in 0..1 + case % 3 {
            write += growths[draw(5)];
            read += growths[draw(5)];
            of.push((1 + draw(3) as u64, write, read));
        }
        let steps = 2 + draw(if of.len() == 3 { 6 } else { 8 }) as u32;
        let cheapest = oracle::cheapest(steps, &levels(&of), 1.0);
        let schedule = scheduled(u64::from(steps), &of);
        assert!(schedule.is_exact());
        assert!(close(schedule.cost_seconds(), cheapest), "{steps} steps, {of:?}: {cheapest}");
    }
}

#[test]
fn a_state_moves_to_a_faster_level_when_its_last_chain_is_reversed() {
    // Two slots of no cost and a slow level: the first state of a block is written there, and when
    // its turn comes it is read once, and the block is reversed from the fast slots.
    let schedule = scheduled(12, &[(2, 0.0, 0.0), (9, 1.0, 1.0)]);
    let actions: Vec<Action> = schedule.collect();
    let (slow, fast) = (Some(TierKind::Host), Some(TierKind::Device));
    assert_eq!(actions[0], Action::Save { step: 0, tier: slow });
    let moved = [
        Action::Restore { step: 0, tier: slow },
        Action::Discard { step: 0, tier: slow },
        Action::Save { step: 0, tier: fast },
    ];
    assert!(actions.windows(3).any(|window| window == moved), "{actions:?}");
}

/// The schedule on a grid whose scales have so many units.
fn on_grid(steps: u64, of: &[(u64, f64, f64)], length: u64) -> MultiLevel {
    let grid = |steps, _: &[Level]| LevelGrid::with_length(steps, length);
    let schedule = MultiLevel::planned(LevelPlan::coarse(steps, &levels(of), 1.0, grid));
    let (cost, _) = walked(&schedule, 1.0);
    assert!(close(cost, schedule.cost_seconds()), "{cost}, {}", schedule.cost_seconds());
    schedule
}

/// Slots and costs of machines where a step is as long as ten copies, as one, as a tenth; where the
/// slow level can hold everything and where it cannot.
const MACHINES: [&[(u64, f64, f64)]; 8] = [
    &[(4, 0.0, 0.0), (u64::MAX, 3.0, 3.0)],
    &[(8, 0.0, 0.0), (20, 0.5, 0.5), (u64::MAX, 3.0, 2.0)],
    &[(3, 0.01, 0.01), (10, 0.1, 0.1), (100, 1.0, 1.0)],
    &[(5, 0.01, 0.01), (20, 0.5, 0.5), (40, 3.0, 3.0)],
    &[(2, 0.1, 0.1), (6, 1.0, 1.0), (u64::MAX, 10.0, 10.0)],
    &[(10, 0.0, 0.0), (10, 2.0, 2.0), (10, 20.0, 10.0)],
    &[(u64::MAX, 2.0, 1.0)],
    &[(25, 0.3, 0.2)],
];

#[test]
fn a_grid_costs_a_few_percent_more_than_the_cheapest() {
    for of in MACHINES {
        for steps in [200, 1000] {
            let cheapest = scheduled(steps, of);
            for (length, bound) in [(17, 1.09), (40, 1.04), (64, 1.04), (100, 1.03)] {
                let grid = on_grid(steps, of, length);
                assert!(cheapest.is_exact() && !grid.is_exact());
                let ratio = grid.cost_seconds() / cheapest.cost_seconds();
                assert!(ratio > 1.0 - 1e-9, "{steps} steps, {of:?}: cheaper than the cheapest");
                assert!(ratio <= bound, "{steps} steps, {of:?}, {length} units: {ratio}");
            }
        }
    }
}

#[test]
fn no_single_level_costs_less() {
    for of in MACHINES {
        for steps in [2, 10, 100, 700] {
            let (cheapest, grid) = (scheduled(steps, of), on_grid(steps, of, 20));
            for level in levels(of) {
                let alone = MultiLevel::new(steps, &[level], 1.0).unwrap();
                assert!(cheapest.cost_seconds() <= alone.cost_seconds() + 1e-6);
                assert!(grid.cost_seconds() <= revolve_seconds(steps, &level, 1.0) + 1e-6);
            }
        }
    }
}

#[test]
fn tables_without_the_limit_agree_with_those_for_enough_slots() {
    for of in MACHINES.into_iter().filter(|of| of.last().unwrap().0 == u64::MAX) {
        let mut bounded = of.to_vec();
        bounded.last_mut().unwrap().0 = 299;
        let (unlimited, enough) = (scheduled(300, of), scheduled(300, &bounded));
        assert!(close(unlimited.cost_seconds(), enough.cost_seconds()), "{of:?}");
    }
}

#[test]
fn more_steps_than_tables_bear_are_planned_on_a_grid() {
    for of in &MACHINES[1..4] {
        let schedule = scheduled(30_000, of);
        assert!(!schedule.is_exact());
        let later = MultiLevel::new(u64::MAX, &levels(of), 1.0).unwrap();
        assert!(later.take(1000).all(|action| action != Action::End));
    }
}

#[test]
fn a_budget_that_is_too_small_gives_no_table() {
    let of = levels(&[(3, 0.5, 0.5), (9, 1.0, 1.0)]);
    assert!(LevelPlan::exact(100_000, &of, 1.0, Budget::default()).is_none());
    assert!(LevelPlan::exact(u64::MAX, &of, 1.0, Budget::unlimited()).is_none());
    assert!(LevelPlan::exact(300, &of, 1.0, Budget::unlimited()).is_some());
}

#[test]
fn impossible_schedules_are_refused() {
    let level = levels(&[(2, 0.5, 0.5)])[0];
    let refused = |steps, levels: &[Level], step| MultiLevel::new(steps, levels, step).unwrap_err();
    assert_eq!(refused(0, &[level], 1.0), ScheduleError::NoSteps);
    let wrong = ScheduleError::Levels { most: 3 };
    let slower = Level { tier: TierKind::Host, ..level };
    assert_eq!(refused(5, &[], 1.0), wrong);
    assert_eq!(refused(5, &[slower, level], 1.0), wrong);
    assert_eq!(refused(5, &[level, level], 1.0), wrong);
    for cost in [-1.0, f64::NAN, f64::INFINITY, 1e308] {
        assert_eq!(refused(5, &[level], cost), ScheduleError::BadCost);
        let bad = Level { read_seconds: cost, ..level };
        assert_eq!(refused(5, &[bad], 1.0), ScheduleError::BadCost);
    }
    let none = Level { slots: 0, ..level };
    assert_eq!(refused(2, &[none], 1.0), ScheduleError::TooFewSlots { slots: 0, needed: 1 });
    let mut one = MultiLevel::new(1, &[none], 1.0).unwrap();
    assert_eq!(one.finish(1), Err(ScheduleError::StepsAreKnown { steps: 1 }));
    assert!(one.eq([Action::Reverse { step: 0 }, Action::End]));
}

proptest! {
    #[test]
    fn any_levels_give_a_schedule_that_costs_what_it_says(
        steps in 1u64..250,
        of in prop::collection::vec((0u64..12, 0.0..3.0, 0.0..3.0), 1..=3),
        step in prop_oneof![Just(0.0), 0.001..5.0],
        length in 17u64..60,
    ) {
        prop_assume!(of.iter().any(|level| level.0 > 0));
        let cheapest = MultiLevel::new(steps, &levels(&of), step).unwrap();
        let of: Vec<Level> = levels(&of).into_iter().filter(|level| level.slots > 0).collect();
        let scales = |steps, _: &[Level]| LevelGrid::with_length(steps, length);
        let grid = MultiLevel::planned(LevelPlan::coarse(steps, &of, step, scales));
        for schedule in [&cheapest, &grid] {
            let (cost, counts) = walked(schedule, step);
            prop_assert_eq!(counts.reverses, steps);
            prop_assert!(close(cost, schedule.cost_seconds()), "{}", cost);
        }
        prop_assert!(cheapest.cost_seconds() <= grid.cost_seconds() * (1.0 + 1e-9));
    }
}
