//! What holds for every schedule. Lists that are not schedules are refused.

use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::{Limits, Restores, check};

/// One of each kind whose number of steps is known.
fn known(steps: u64, number: u64) -> Vec<AnySchedule> {
    let revolve = Revolve::new(steps, number).unwrap();
    let list: Vec<Action> = revolve.clone().collect();
    std::vec![
        StoreAll::new(steps).unwrap().into(),
        revolve.clone().into(),
        Uniform::new(steps, number).unwrap().into(),
        ZCut::with_cuts(steps, number).unwrap().into(),
        Listed::new(list).unwrap().into(),
        Trace::parse(&Trace::write(revolve)).unwrap().into(),
    ]
}

fn sendable(_: &(impl Send + Sync + Clone + 'static)) {}

#[test]
fn a_schedule_may_be_finished_only_if_its_steps_are_unknown() {
    for mut schedule in known(7, 2) {
        sendable(&schedule);
        assert_eq!(schedule.finish(7), Err(ScheduleError::StepsAreKnown { steps: 7 }));
        assert_eq!(schedule.steps(), Some(7));
    }
    assert_eq!(AnySchedule::from(OnlineRevolve::new(3).unwrap()).steps(), None);
}

#[test]
fn a_list_that_breaks_a_rule_is_no_schedule() {
    let list = std::vec![Action::Reverse { step: 1 }, Action::End];
    assert_eq!(Listed::new(list).unwrap_err().place, 0);
}

proptest! {
    #[test]
    fn every_schedule_passes_the_interpreter(steps in 1u64..400, number in 1u64..60) {
        for mut schedule in known(steps, number) {
            let counts = check(schedule.clone(), Limits::of(&schedule)).unwrap();
            prop_assert_eq!(counts.steps, steps);
            prop_assert_eq!(counts.peak, schedule.slots());
            prop_assert_eq!(counts.saves, counts.discards);
            let tight = Limits { slots: counts.peak.saturating_sub(1), ..Limits::none() };
            prop_assert_eq!(check(schedule.clone(), tight).is_err(), counts.peak > 0);
            prop_assert_eq!(schedule.by_ref().last(), Some(Action::End));
            prop_assert_eq!(schedule.next(), None);
        }
    }

    #[test]
    fn the_dry_run_gives_every_restore_and_each_copy_s_last(
        steps in 1u64..200, number in 1u64..30
    ) {
        for schedule in known(steps, number) {
            let restored: Vec<u64> = schedule
                .clone()
                .filter_map(|action| match action {
                    Action::Restore { step, .. } => Some(step),
                    _ => None,
                })
                .collect();
            let dry: Vec<(u64, bool)> = Restores::new(schedule.clone()).collect();
            prop_assert!(dry.iter().map(|(step, _)| *step).eq(restored));
            let counts = check(schedule.clone(), Limits::none()).unwrap();
            let last = dry.iter().filter(|(_, last)| *last).count();
            prop_assert_eq!(last as u64, counts.discards);
        }
    }

    #[test]
    fn a_schedule_with_an_action_too_many_or_too_few_is_refused(
        steps in 2u64..60, number in 1u64..10, place in any::<prop::sample::Index>(), kind in 0..6
    ) {
        for schedule in known(steps, number) {
            let actions: Vec<Action> = schedule.collect();
            let at = place.index(actions.len());
            let limits = Limits { steps: Some(steps), ..Limits::none() };
            let mut fewer = actions.clone();
            fewer.remove(at);
            prop_assert!(check(fewer, limits).is_err());
            if !matches!(actions[at], Action::Restore { .. }) {
                let mut twice = actions.clone();
                twice.insert(at, actions[at]);
                prop_assert!(check(twice, limits).is_err());
            }
            let mut changed = actions;
            let kept = changed[at];
            changed[at] = other(kept, kind);
            prop_assert!(changed[at] == kept || check(changed, limits).is_err());
        }
    }

    #[test]
    fn random_actions_are_hardly_ever_a_schedule(
        actions in prop::collection::vec((0u64..4, 0..6), 0..30)
    ) {
        let actions: Vec<Action> =
            actions.into_iter().map(|(step, kind)| other(Action::Reverse { step }, kind)).collect();
        // A list that passes is a schedule: every step down from the last was reversed.
        if let Ok(listed) = Listed::new(actions) {
            let reversed: Vec<u64> = listed
                .filter_map(|action| match action {
                    Action::Reverse { step } => Some(step),
                    _ => None,
                })
                .collect();
            prop_assert!((0..reversed.len() as u64).rev().eq(reversed));
        }
    }
}

/// An action of that kind for the same step, or the one after.
fn other(action: Action, kind: i32) -> Action {
    let step = match action {
        Action::Forward { from: step, .. }
        | Action::Save { step, .. }
        | Action::Restore { step, .. }
        | Action::Reverse { step }
        | Action::Discard { step, .. } => step,
        Action::End => 0,
    };
    let tier = None;
    match kind {
        0 => Action::Forward { from: step, to: step + 1 },
        1 => Action::Save { step, tier },
        2 => Action::Restore { step: step + 1, tier },
        3 => Action::Reverse { step },
        4 => Action::Discard { step, tier },
        _ => Action::End,
    }
}
