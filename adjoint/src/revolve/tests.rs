//! Revolve against a dynamic programme that knows nothing of binomial coefficients.

use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::{Counts, Limits, StoreAll, check};

const STEPS: usize = 400;
const SLOTS: usize = 40;

/// `[slots][steps]`: the fewest advances and, with those, the fewest copies without the first
/// state's: one advance over `m` steps, then the steps after them with a slot less, then the `m`.
fn optima() -> Vec<Vec<(u64, u64)>> {
    let mut table = std::vec![std::vec![(0, 0); STEPS + 1]; SLOTS + 1];
    for slots in 1..=SLOTS {
        for steps in 2..=STEPS {
            // Without a copy at `m`, only the last step can be reversed from there.
            let alone = table[slots][steps - 1];
            let mut best = (steps as u64 - 1 + alone.0, alone.1);
            for m in 1..if slots == 1 { 1 } else { steps - 1 } {
                let (after, before) = (table[slots - 1][steps - m], table[slots][m]);
                best = best.min((m as u64 + after.0 + before.0, 1 + after.1 + before.1));
            }
            table[slots][steps] = best;
        }
    }
    table
}

fn counts_of(steps: u64, slots: u64) -> Counts {
    let schedule = Revolve::new(steps, slots).unwrap();
    check(schedule.clone(), Limits::of(&schedule)).unwrap()
}

#[test]
fn advances_and_copies_are_the_fewest_possible() {
    for (slots, row) in (1..).zip(optima().into_iter().skip(1)) {
        for (steps, (fewest, copies)) in (2..).zip(row.into_iter().skip(2)) {
            assert_eq!(advances(steps, slots), fewest, "{steps} steps, {slots} slots");
            assert_eq!(saves(steps, slots), copies + 1, "{steps} steps, {slots} slots");
            let counts = counts_of(steps, slots);
            assert_eq!(counts.advances, fewest, "{steps} steps, {slots} slots");
            assert_eq!(counts.saves, copies + 1, "{steps} steps, {slots} slots");
            assert_eq!(counts.restores, steps - 1);
            assert_eq!(counts.peak, slots.min(steps - 1));
        }
    }
}

#[test]
fn one_step_needs_no_copy() {
    for slots in [0, 1, 5, u64::MAX] {
        let actions: Vec<Action> = Revolve::new(1, slots).unwrap().collect();
        assert_eq!(actions, [Action::Reverse { step: 0 }, Action::End]);
        assert_eq!((advances(1, slots), saves(1, slots)), (0, 0));
    }
}

#[test]
fn impossible_schedules_are_refused() {
    assert_eq!(Revolve::new(0, 5).unwrap_err(), ScheduleError::NoSteps);
    let few = ScheduleError::TooFewSlots { slots: 0, needed: 1 };
    assert_eq!(Revolve::new(2, 0).unwrap_err(), few);
    assert_eq!((advances(2, 0), saves(2, 0)), (u64::MAX, 0));
    let mut schedule = Revolve::new(2, 1).unwrap();
    assert_eq!(schedule.finish(2), Err(ScheduleError::StepsAreKnown { steps: 2 }));
}

#[test]
fn with_a_slot_for_every_state_it_stores_all() {
    for steps in 1..60 {
        for slots in [steps - 1, steps, u64::MAX] {
            let revolve = Revolve::new(steps, slots).unwrap();
            assert!(revolve.eq(StoreAll::new(steps).unwrap()), "{steps} steps, {slots} slots");
        }
    }
}

#[test]
fn ten_steps_with_three_slots_are_split_as_worked_out_by_hand() {
    // beta(3, 2) = 10: the longest chain of three slots with two advances over each step.
    let starts: Vec<u64> = Revolve::new(10, 3)
        .unwrap()
        .filter_map(|action| match action {
            Action::Save { step, .. } => Some(step),
            _ => None,
        })
        .collect();
    assert_eq!(starts, [0, 4, 7, 5, 1, 2]);
    assert_eq!(advances(10, 3), 15);
}

#[test]
fn numbers_near_the_largest_overflow_nothing() {
    const MAX: u64 = u64::MAX;
    assert_eq!(advances(MAX, 1), MAX);
    assert_eq!(advances(1 << 32, 1), (1 << 31) * ((1 << 32) - 1));
    assert_eq!(advances(MAX, MAX), MAX - 1);
    assert_eq!(saves(MAX, MAX), MAX - 1);
    assert_eq!(saves(MAX, 1), 1);
    for slots in [1, 2, 3, 4, 10, 63, 64, 65, 1000, 1 << 32, MAX - 2, MAX - 1, MAX] {
        assert!(advances(MAX, slots) >= MAX - 1);
        assert!(saves(MAX, slots) < MAX);
        let mut schedule = Revolve::new(MAX, slots).unwrap();
        let mut interpreter = crate::Interpreter::new(Limits::of(&schedule));
        for action in schedule.by_ref().take(10_000) {
            interpreter.see(&action).unwrap();
        }
    }
}

#[test]
fn memory_grows_with_the_slots_alone() {
    for (steps, slots) in [(1000, 10), (300_000, 10), (300_000, 1000)] {
        let mut schedule = Revolve::new(steps, slots).unwrap();
        assert_eq!(schedule.by_ref().last(), Some(Action::End));
        assert!(schedule.kept.capacity() as u64 <= 2 * slots);
    }
}

#[test]
fn a_million_steps_cost_what_the_closed_form_says() {
    for slots in [3, 100, 1000] {
        let counts = counts_of(1_000_000, slots);
        assert_eq!(counts.advances, advances(1_000_000, slots));
        assert_eq!(counts.saves, saves(1_000_000, slots));
        assert_eq!(counts.peak, slots);
    }
}

proptest! {
    #[test]
    fn every_size_costs_what_the_closed_form_says(steps in 1u64..30_000, slots in 1u64..300) {
        let counts = counts_of(steps, slots);
        prop_assert_eq!(counts.steps, steps);
        prop_assert_eq!(counts.reverses, steps);
        prop_assert_eq!(counts.advances, advances(steps, slots));
        prop_assert_eq!(counts.saves, saves(steps, slots));
        prop_assert_eq!(counts.discards, counts.saves);
        prop_assert_eq!(counts.restores, steps - 1);
        prop_assert_eq!(counts.peak, slots.min(steps - 1));
    }

    #[test]
    fn a_chain_of_any_size_is_split_as_from_scratch(
        length in 3u64..u64::MAX, slots in prop_oneof![2u64..12, 2u64..100_000], part in 0.0..1.0
    ) {
        let slots = slots.min(length - 1);
        let whole = Split::new(length, slots);
        let before = whole.advance(length);
        let after = length - before;
        prop_assert!(before >= 1 && after >= 1);
        if after >= 2 && slots > 1 {
            let after_slots = (slots - 1).min(after - 1);
            let scratch = Split::new(after, after_slots).advance(after);
            prop_assert_eq!(whole.after(after).advance(after), scratch);
        }
        let shorter = (length as f64 * part) as u64;
        if (2..length).contains(&shorter) && slots > 2 {
            let mut split = whole;
            split.shorten(shorter);
            let scratch = Split::new(shorter, slots.min(shorter - 1)).advance(shorter);
            prop_assert_eq!(split.advance(shorter), scratch);
        }
    }
}
