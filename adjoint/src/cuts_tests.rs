//! Uniform and zCut: what they cost, for all small sizes and some huge ones.

use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::{Counts, Interpreter, Limits, Uniform, check};

fn counts_of(schedule: impl Schedule + Clone) -> Counts {
    let counts = check(schedule.clone(), Limits::of(&schedule)).unwrap();
    assert_eq!(counts.peak, schedule.slots());
    assert_eq!(Some(counts.reverses), schedule.steps());
    assert_eq!(counts.restores, counts.steps - 1);
    counts
}

fn saved(schedule: impl Schedule) -> Vec<u64> {
    schedule
        .filter_map(|action| match action {
            Action::Save { step, .. } => Some(step),
            _ => None,
        })
        .collect()
}

#[test]
fn one_step_needs_no_copy() {
    let schedules = [
        ZCut::with_cuts(1, 3).unwrap(),
        ZCut::with_length(1, 3).unwrap(),
        ZCut::with_slots(1, 0).unwrap(),
    ];
    for schedule in schedules {
        assert_eq!((schedule.slots(), schedule.advances(), schedule.cuts()), (0, 0, 1));
        assert!(schedule.eq([Action::Reverse { step: 0 }, Action::End]));
    }
    let schedule = Uniform::new(1, 0).unwrap();
    assert_eq!((schedule.slots(), schedule.advances()), (0, 0));
    assert!(schedule.eq([Action::Reverse { step: 0 }, Action::End]));
}

#[test]
fn what_cannot_be_is_refused() {
    for refused in [ZCut::with_cuts(0, 1), ZCut::with_length(0, 1), ZCut::with_slots(0, 1)] {
        assert_eq!(refused, Err(ScheduleError::NoSteps));
    }
    assert_eq!(ZCut::with_cuts(5, 0), Err(ScheduleError::NoCuts));
    assert_eq!(ZCut::with_length(5, 0), Err(ScheduleError::NoCuts));
    let few = |slots, needed| Err(ScheduleError::TooFewSlots { slots, needed });
    assert_eq!(ZCut::with_slots(100, 17), few(17, 18));
    assert_eq!(Uniform::new(0, 1), Err(ScheduleError::NoSteps));
    assert_eq!(Uniform::new(2, 0), Err(ScheduleError::TooFewSlots { slots: 0, needed: 1 }));
}

#[test]
fn equal_cuts_cost_what_the_documentation_says() {
    for length in 2..30 {
        for cuts in 1..30 {
            let steps = cuts * length;
            let schedule = ZCut::with_cuts(steps, cuts).unwrap();
            assert_eq!((schedule.cuts(), schedule.length()), (cuts, length));
            let counts = counts_of(schedule.clone());
            assert_eq!(counts.peak, cuts + length - 2);
            assert_eq!(counts.saves, steps - cuts);
            assert_eq!(counts.advances, 2 * steps - length - cuts);
            assert_eq!(counts.advances, schedule.advances());
        }
    }
}

#[test]
fn a_shorter_last_cut_keeps_no_more() {
    for steps in 1..90 {
        for length in 1..steps + 3 {
            let schedule = ZCut::with_length(steps, length).unwrap();
            let counts = counts_of(schedule.clone());
            assert_eq!(counts.advances, schedule.advances(), "{steps} steps, length {length}");
            assert!(counts.peak <= copies(steps, length.min(steps)));
        }
    }
}

#[test]
fn cuts_are_where_they_should_be() {
    assert_eq!(saved(ZCut::with_length(10, 4).unwrap()), [0, 4, 8, 5, 6, 1, 2]);
    assert_eq!(saved(ZCut::with_length(9, 4).unwrap()), [0, 4, 5, 6, 1, 2]);
    assert_eq!(saved(ZCut::with_length(4, 1).unwrap()), [0, 1, 2]);
    assert_eq!(ZCut::with_cuts(10, 6).unwrap().cuts(), 5);
    assert_eq!(ZCut::with_cuts(10, 99).unwrap().length(), 1);
    assert_eq!(saved(Uniform::new(11, 3).unwrap()), [0, 4, 7]);
    assert_eq!(saved(Uniform::new(4, 9).unwrap()), [0, 1, 2]);
}

#[test]
fn the_fewest_cuts_are_chosen_that_fit_and_of_equal_length() {
    for steps in 1..150 {
        for slots in 0..steps + 2 {
            let fewest = (1..=steps).find(|cuts| copies(steps, steps.div_ceil(*cuts)) <= slots);
            let chosen = ZCut::with_slots(steps, slots);
            match fewest {
                Some(cuts) => assert_eq!(chosen, ZCut::with_cuts(steps, cuts)),
                None => {
                    let needed = (1..=steps).map(|length| copies(steps, length)).min().unwrap();
                    assert_eq!(chosen, Err(ScheduleError::TooFewSlots { slots, needed }));
                }
            }
        }
    }
}

#[test]
fn as_many_cuts_of_another_length_keep_and_compute_no_less() {
    for steps in 1..150 {
        for chosen in (0..steps + 2).filter_map(|slots| ZCut::with_slots(steps, slots).ok()) {
            let others = (1..=steps).filter_map(|length| ZCut::with_length(steps, length).ok());
            for other in others.filter(|other| other.cuts() == chosen.cuts()) {
                assert!(chosen.advances() <= other.advances(), "{chosen:?}, {other:?}");
                assert!(chosen.slots() <= other.slots(), "{chosen:?}, {other:?}");
            }
        }
        let most = ZCut::with_slots(steps, steps).unwrap();
        assert_eq!(most.advances(), steps - 1, "a slot for every state");
    }
}

#[test]
fn numbers_near_the_largest_overflow_nothing() {
    const MAX: u64 = u64::MAX;
    let uniform = |slots| Uniform::new(MAX, slots).unwrap();
    assert_eq!([uniform(1).advances(), uniform(MAX).advances()], [MAX, MAX - 1]);
    for slots in [1, 2, 3, 1 << 32, MAX - 2, MAX] {
        begins_well(uniform(slots));
    }
    for number in [1, 2, 3, 1 << 32, MAX - 2, MAX - 1, MAX] {
        for schedule in [ZCut::with_cuts(MAX, number), ZCut::with_length(MAX, number)] {
            let schedule = schedule.unwrap();
            assert!(schedule.advances() >= MAX - 1);
            assert!(schedule.slots() < MAX);
            begins_well(schedule);
        }
    }
    assert!(ZCut::with_slots(MAX, 1 << 32).is_err());
    let schedule = ZCut::with_slots(MAX, 1 << 34).unwrap();
    assert!(schedule.slots() <= 1 << 34);
    begins_well(schedule);
    assert_eq!(ZCut::with_slots(MAX, MAX).unwrap().length(), MAX);
}

fn begins_well(schedule: impl Schedule) {
    let mut interpreter = Interpreter::new(Limits::of(&schedule));
    for action in schedule.take(1000) {
        interpreter.see(&action).unwrap();
    }
    assert!(interpreter.counts().saves > 0);
}

proptest! {
    #[test]
    fn every_size_costs_what_the_closed_form_says(
        steps in 1u64..5000, cuts in 1u64..100, slots in 1u64..200
    ) {
        let schedule = ZCut::with_cuts(steps, cuts).unwrap();
        let counts = counts_of(schedule.clone());
        prop_assert!(schedule.cuts() <= cuts);
        prop_assert_eq!(counts.advances, schedule.advances());
        if schedule.length() > 1 && steps % schedule.length() != 1 {
            prop_assert_eq!(counts.saves, steps - schedule.cuts());
        }
        let schedule = Uniform::new(steps.min(2000), slots).unwrap();
        let counts = counts_of(schedule.clone());
        prop_assert_eq!(counts.advances, schedule.advances());
        prop_assert_eq!(counts.saves, slots.min(steps.min(2000) - 1));
    }
}
