//! The whole of a schedule at every number of steps, against Revolve and an exhaustive search.

use std::collections::HashMap;
use std::vec::Vec;

use super::*;
use crate::revolve::advances;
use crate::{Counts, Interpreter, Limits};

const STEPS: u64 = 500;
const SLOTS: u64 = 20;

/// Carries out what is left of a schedule.
fn rest(mut schedule: OnlineRevolve, mut interpreter: Interpreter, steps: u64) -> Counts {
    schedule.finish(steps).unwrap();
    assert_eq!(schedule.steps(), Some(steps));
    for action in schedule {
        interpreter.see(&action).unwrap();
    }
    interpreter.finish().unwrap()
}

fn limits(slots: u64) -> Limits {
    Limits { slots, ..Limits::none() }
}

/// What the schedule costs at every number of steps up to `most`, and its kept states there.
fn at_every_end(slots: u64, most: u64) -> Vec<(u64, Counts, Vec<u64>)> {
    let mut schedule = OnlineRevolve::new(slots).unwrap();
    let mut interpreter = Interpreter::new(limits(slots));
    let mut ends = Vec::new();
    while (ends.len() as u64) < most {
        let before = interpreter.clone();
        let action = schedule.next().unwrap();
        if let Action::Forward { from, to } = action {
            for steps in from + 1..=to.min(most) {
                let mut interpreter = before.clone();
                interpreter.see(&Action::Forward { from, to: steps }).unwrap();
                let kept = interpreter.kept().map(|(step, _)| step).collect();
                ends.push((steps, rest(schedule.clone(), interpreter, steps), kept));
            }
        }
        interpreter.see(&action).unwrap();
    }
    ends
}

fn choose(n: u64, k: u64) -> u64 {
    (1..=k).fold(1, |value, i| value * (n - k + i) / i)
}

/// The fewest advances that reverse the steps below `left`, from these copies (bit `n` for state
/// `n`) and no working state: every set of copies that can be kept on the way is tried.
fn exhaustive(copies: u64, left: u64, slots: u64, known: &mut HashMap<(u64, u64), u64>) -> u64 {
    if left == 0 {
        return 0;
    }
    if let Some(&cost) = known.get(&(copies, left)) {
        return cost;
    }
    let (last, wanted) = (63 - u64::from(copies.leading_zeros()), left - 1);
    let cost = if last == wanted {
        exhaustive(copies & !(1 << last), wanted, slots, known)
    } else {
        let passed = (1 << wanted) - (2 << last);
        let others = (copies | passed) & !1;
        let keep = (slots - 1).min(u64::from(others.count_ones()));
        wanted - last + fewest(1, others, keep, wanted, slots, known)
    };
    known.insert((copies, left), cost);
    cost
}

/// As [`exhaustive`], with `keep` copies chosen among these in every possible way.
fn fewest(
    chosen: u64,
    mut others: u64,
    keep: u64,
    left: u64,
    slots: u64,
    known: &mut HashMap<(u64, u64), u64>,
) -> u64 {
    if keep == 0 {
        return exhaustive(chosen, left, slots, known);
    }
    let mut best = u64::MAX;
    while u64::from(others.count_ones()) >= keep {
        let one = others & others.wrapping_neg();
        others &= !one;
        best = best.min(fewest(chosen | one, others, keep - 1, left, slots, known));
    }
    best
}

#[test]
fn up_to_binom_slots_plus_2_over_2_no_schedule_does_with_fewer_steps() {
    for slots in 1..=SLOTS {
        for (steps, counts, _) in at_every_end(slots, choose(slots + 2, 2).min(STEPS)) {
            assert_eq!(counts.advances, advances(steps + 1, slots), "{steps} steps, {slots} slots");
        }
    }
}

#[test]
fn up_to_binom_slots_plus_3_over_3_at_most_two_steps_are_wasted() {
    for slots in 1..=SLOTS {
        for (steps, counts, _) in at_every_end(slots, choose(slots + 3, 3).min(STEPS)) {
            let best = advances(steps + 1, slots);
            let excess = counts.advances - best;
            assert!(excess <= 2, "{steps} steps, {slots} slots: {excess} over {best}");
        }
    }
}

/// The largest ratio to the fewest advances, by slots from 1, for up to 500 steps.
const WORST: [f64; SLOTS as usize] = [
    1.0, 1.122, 1.091, 1.047, 1.031, 1.021, 1.015, 1.012, 1.010, 1.008, 1.007, 1.006, 1.005, 1.005,
    1.004, 1.004, 1.004, 1.003, 1.003, 1.003,
];

#[test]
fn at_any_end_little_more_than_the_fewest_steps_is_advanced_over() {
    for slots in 1..=SLOTS {
        let bound = WORST[slots as usize - 1];
        for (steps, counts, _) in at_every_end(slots, STEPS) {
            let ratio = counts.advances as f64 / advances(steps + 1, slots) as f64;
            assert!(ratio <= bound, "{steps} steps, {slots} slots: {ratio}");
            assert_eq!((counts.steps, counts.reverses), (steps, steps));
            assert_eq!(counts.discards, counts.saves);
            assert!(counts.peak <= slots);
        }
    }
}

#[test]
fn from_the_kept_states_no_reverse_sweep_does_with_fewer_steps() {
    for (slots, most) in [(1, 20), (2, 60), (3, 50), (4, 20), (5, 15), (6, 12)] {
        let mut known = HashMap::new();
        for (steps, counts, kept) in at_every_end(slots, most) {
            let copies = kept.iter().fold(0, |all, step| all | 1 << step);
            let best = exhaustive(copies, steps, slots, &mut known);
            assert_eq!(counts.advances, steps + best, "{steps} steps, {slots} slots, {kept:?}");
        }
    }
}

#[test]
fn a_copy_leaps_where_its_gap_is_too_long() {
    // From 0, 35 and 40 with 45 steps Revolve for each gap would take 121 advances.
    let (steps, counts, kept) = at_every_end(3, 45).pop().unwrap();
    assert_eq!((steps, kept), (45, std::vec![0, 35, 40]));
    assert_eq!(counts.advances, 45 + 120);
}

#[test]
fn many_steps_with_few_and_with_many_slots() {
    for (slots, steps, bound) in [(2, 100_000, 1.02), (10, 100_000, 1.05), (2000, 100_000, 1.0)] {
        let mut schedule = OnlineRevolve::new(slots).unwrap();
        let mut interpreter = Interpreter::new(limits(slots));
        loop {
            match schedule.next().unwrap() {
                Action::Forward { from, to } if to >= steps => {
                    interpreter.see(&Action::Forward { from, to: steps }).unwrap();
                    break;
                }
                action => interpreter.see(&action).unwrap(),
            }
        }
        let counts = rest(schedule, interpreter, steps);
        let ratio = counts.advances as f64 / advances(steps + 1, slots) as f64;
        assert!(ratio <= bound, "{slots} slots: {ratio}");
    }
}

#[test]
fn an_end_where_the_working_state_cannot_be_is_refused_and_may_be_corrected() {
    let mut schedule = OnlineRevolve::new(3).unwrap();
    let not_there = |steps, from, to| Err(ScheduleError::NotThere { steps, from, to });
    assert_eq!(schedule.finish(0), Err(ScheduleError::NoSteps));
    assert_eq!(schedule.finish(1), not_there(1, 0, 0));
    let (from, to) = schedule
        .by_ref()
        .find_map(|action| match action {
            Action::Forward { from, to } if to >= 20 => Some((from, to)),
            _ => None,
        })
        .unwrap();
    // Earlier than the last copy, which cannot be taken back, and later than the pass may be.
    assert_eq!(schedule.finish(from - 1), not_there(from - 1, from, to));
    assert_eq!(schedule.finish(to + 1), not_there(to + 1, from, to));
    assert_eq!(schedule.finish(0), Err(ScheduleError::NoSteps));
    assert_eq!(schedule.steps(), None);
    schedule.finish(to).unwrap();
    assert_eq!(schedule.finish(to), Err(ScheduleError::StepsAreKnown { steps: to }));
    assert_eq!(schedule.last(), Some(Action::End));
}

#[test]
fn an_end_right_after_a_save_or_between_a_discard_and_its_save_is_reversed() {
    for taken in 1..40 {
        let mut schedule = OnlineRevolve::new(3).unwrap();
        let mut interpreter = Interpreter::new(limits(3));
        for action in schedule.by_ref().take(taken) {
            interpreter.see(&action).unwrap();
        }
        let steps = interpreter.working().unwrap();
        if steps > 0 {
            assert_eq!(rest(schedule, interpreter, steps).reverses, steps);
        }
    }
}

#[test]
fn one_slot_is_never_asked_for_anything_before_the_end() {
    let mut schedule = OnlineRevolve::new(1).unwrap();
    assert_eq!(schedule.next(), Some(Action::Save { step: 0, tier: None }));
    assert_eq!(schedule.next(), Some(Action::Forward { from: 0, to: u64::MAX }));
    assert_eq!(schedule.next(), None);
    schedule.finish(2).unwrap();
    assert_eq!(schedule.count(), 7);
    let none = ScheduleError::TooFewSlots { slots: 0, needed: 1 };
    assert_eq!(OnlineRevolve::new(0).unwrap_err(), none);
}
