//! Every rule is broken once, and the fault reports where and how.

use alloc::string::ToString;
use std::vec::Vec;

use super::*;
use crate::StoreAll;

fn forward(from: u64, to: u64) -> Action {
    Action::Forward { from, to }
}

fn save(step: u64) -> Action {
    Action::Save { step, tier: None }
}

fn restore(step: u64) -> Action {
    Action::Restore { step, tier: None }
}

fn discard(step: u64) -> Action {
    Action::Discard { step, tier: None }
}

fn reverse(step: u64) -> Action {
    Action::Reverse { step }
}

/// Two steps, both states used.
fn two_steps() -> Vec<Action> {
    std::vec![save(0), forward(0, 1), reverse(1), restore(0), discard(0), reverse(0), Action::End]
}

fn fault_of(actions: &[Action], limits: Limits) -> (u64, Rule) {
    let fault = check(actions.iter().copied(), limits).unwrap_err();
    (fault.place, fault.rule)
}

fn steps(steps: u64) -> Limits {
    Limits { steps: Some(steps), ..Limits::none() }
}

#[test]
fn a_correct_schedule_is_counted() {
    for limits in [Limits::none(), steps(2)] {
        let counts = check(two_steps(), limits).unwrap();
        let expected = Counts {
            steps: 2,
            advances: 1,
            saves: 1,
            restores: 1,
            reverses: 2,
            discards: 1,
            peak: 1,
            tiers: [0; KINDS],
        };
        assert_eq!(counts, expected);
        assert_eq!(counts.recomputed(), 0);
    }
}

#[test]
fn every_missing_action_of_a_correct_schedule_is_a_fault() {
    let actions = two_steps();
    for missing in 0..actions.len() {
        let mut actions = actions.clone();
        let gone = actions.remove(missing);
        assert!(check(actions, steps(2)).is_err(), "without {gone:?}");
    }
}

#[test]
fn the_working_state_is_the_one_that_is_named() {
    let wrong = |needed, working| Rule::WrongState { needed, working };
    assert_eq!(fault_of(&[forward(1, 2)], steps(4)), (0, wrong(1, Some(0))));
    assert_eq!(fault_of(&[forward(0, 2), save(1)], steps(4)), (1, wrong(1, Some(2))));
    assert_eq!(fault_of(&[reverse(0)], steps(2)), (0, Rule::OutOfOrder { next: Some(1) }));
    assert_eq!(fault_of(&[reverse(1)], steps(2)), (0, wrong(1, Some(0))));
}

#[test]
fn nothing_relies_on_the_working_state_after_a_reverse() {
    for last in [save(1), reverse(0), forward(1, 2)] {
        let (place, rule) = fault_of(&[forward(0, 1), reverse(1), last], Limits::none());
        assert_eq!(place, 2);
        assert!(matches!(rule, Rule::WrongState { working: None, .. }), "{rule:?}");
    }
}

#[test]
fn forward_goes_on_and_not_too_far() {
    assert_eq!(fault_of(&[forward(0, 0)], Limits::none()), (0, Rule::NoAdvance));
    assert_eq!(fault_of(&[forward(0, 3)], steps(3)), (0, Rule::TooFar { left: 3 }));
    let late = [save(0), forward(0, 1), reverse(1), restore(0), forward(0, 1)];
    assert_eq!(fault_of(&late, Limits::none()), (4, Rule::TooFar { left: 1 }));
}

#[test]
fn a_copy_is_kept_once_in_each_tier() {
    assert_eq!(fault_of(&[save(0), save(0)], Limits::none()), (1, Rule::KeptAlready));
    let mut interpreter = Interpreter::new(Limits::none());
    for tier in [None, Some(TierKind::Device), Some(TierKind::Disk)] {
        interpreter.see(&Action::Save { step: 0, tier }).unwrap();
    }
    assert_eq!(interpreter.counts().peak, 3);
    assert_eq!(interpreter.counts().peak_of(TierKind::Disk), 1);
    assert_eq!(interpreter.counts().peak_of(TierKind::Host), 0);
    assert_eq!(interpreter.kept().count(), 3);
}

#[test]
fn what_is_restored_or_discarded_is_kept_in_that_tier() {
    let other = Some(TierKind::Host);
    for last in [
        restore(1),
        discard(1),
        Action::Restore { step: 0, tier: other },
        Action::Discard { step: 0, tier: other },
    ] {
        assert_eq!(fault_of(&[save(0), last], Limits::none()), (1, Rule::NotKept));
    }
    assert_eq!(fault_of(&[save(0), discard(0), restore(0)], Limits::none()), (2, Rule::NotKept));
}

#[test]
fn slots_are_limited_in_total_and_in_each_tier() {
    let two = Limits { slots: 2, ..Limits::none() };
    let actions = [save(0), forward(0, 1), save(1), forward(1, 2), save(2)];
    assert_eq!(fault_of(&actions, two), (4, Rule::Full { slots: 2, tier: None }));

    let kind = TierKind::Device;
    let one = Limits::none().with_tier(kind, 1);
    let tier = Some(kind);
    let actions =
        [Action::Save { step: 0, tier }, forward(0, 1), save(1), Action::Save { step: 1, tier }];
    assert_eq!(fault_of(&actions, one), (3, Rule::Full { slots: 1, tier }));
}

#[test]
fn steps_are_reversed_once_and_in_order() {
    let skipped = [save(0), forward(0, 2), restore(0), reverse(0)];
    assert_eq!(fault_of(&skipped, Limits::none()), (3, Rule::OutOfOrder { next: Some(1) }));
    let twice =
        [save(0), forward(0, 1), reverse(1), restore(0), reverse(0), restore(0), reverse(0)];
    assert_eq!(fault_of(&twice, Limits::none()), (6, Rule::OutOfOrder { next: None }));
    let last = fault_of(&[reverse(u64::MAX)], Limits::none());
    assert!(matches!(last, (0, Rule::OutOfOrder { .. } | Rule::WrongState { .. })), "{last:?}");
}

#[test]
fn the_pass_may_have_stopped_behind_the_last_step() {
    let online = [
        save(0),
        forward(0, 1),
        save(1),
        forward(1, 2),
        restore(1),
        discard(1),
        reverse(1),
        restore(0),
        discard(0),
        reverse(0),
        Action::End,
    ];
    assert_eq!(check(online, Limits::none()).unwrap().steps, 2);
}

#[test]
fn a_pass_is_cut_short_within_its_last_forward() {
    let there = |steps, from, to| Rule::NotThere { steps, from: Some(from), to: Some(to) };
    let mut interpreter = Interpreter::new(Limits::none());
    assert_eq!(interpreter.stopped_at(0).unwrap_err().rule, there(0, 0, 0));
    assert_eq!(interpreter.stopped_at(1).unwrap_err().rule, there(1, 0, 0));
    for action in [save(0), forward(0, 2), forward(2, 8)] {
        interpreter.see(&action).unwrap();
    }
    assert_eq!(interpreter.stopped_at(1).unwrap_err().rule, there(1, 2, 8));
    assert_eq!(interpreter.stopped_at(9).unwrap_err().rule, there(9, 2, 8));
    interpreter.stopped_at(3).unwrap();
    assert_eq!((interpreter.counts().advances, interpreter.counts().steps), (3, 3));
    assert_eq!(interpreter.working(), Some(3));
    assert_eq!(interpreter.stopped_at(3).unwrap_err().rule, Rule::StepsAreKnown { steps: 3 });
    for action in [restore(0), forward(0, 2), reverse(2)] {
        interpreter.see(&action).unwrap();
    }
    assert_eq!(interpreter.counts().advances, 5);
}

#[test]
fn a_pass_may_stop_where_its_last_forward_began_and_where_it_led() {
    for steps in [2, 5, 8] {
        let mut interpreter = Interpreter::new(Limits::none());
        for action in [save(0), forward(0, 2), forward(2, 8)] {
            interpreter.see(&action).unwrap();
        }
        interpreter.stopped_at(steps).unwrap();
        assert_eq!((interpreter.working(), interpreter.counts().advances), (Some(steps), steps));
    }
    let mut interpreter = Interpreter::new(Limits::none());
    for action in [forward(0, 2), save(2)] {
        interpreter.see(&action).unwrap();
    }
    interpreter.stopped_at(2).unwrap();
    let mut reversing = Interpreter::new(Limits::none());
    for action in [forward(0, 1), reverse(1)] {
        reversing.see(&action).unwrap();
    }
    assert_eq!(reversing.stopped_at(1).unwrap_err().rule, Rule::StepsAreKnown { steps: 2 });
}

#[test]
fn a_schedule_is_held_to_the_steps_and_slots_that_it_names() {
    let limits = Limits::of(&StoreAll::new(2).unwrap());
    check(two_steps(), limits).unwrap();
    assert_eq!(fault_of(&[reverse(0)], limits), (0, Rule::OutOfOrder { next: Some(1) }));
    let two = [save(0), forward(0, 1), save(1)];
    assert_eq!(fault_of(&two, limits), (2, Rule::Full { slots: 1, tier: None }));
}

#[test]
fn the_end_comes_last_with_nothing_kept_or_left() {
    let missing = check([save(0)], Limits::none()).unwrap_err();
    assert_eq!((missing.place, missing.action, missing.rule), (1, None, Rule::NoEnd));
    assert_eq!(fault_of(&[Action::End], Limits::none()), (0, Rule::NotReversed { left: None }));
    assert_eq!(fault_of(&[Action::End], steps(0)), (0, Rule::NotReversed { left: None }));
    assert_eq!(fault_of(&[Action::End], steps(2)), (0, Rule::NotReversed { left: Some(2) }));
    let kept = [save(0), reverse(0), Action::End];
    assert_eq!(fault_of(&kept, Limits::none()), (2, Rule::StillKept { copies: 1 }));
    let after = [reverse(0), Action::End, Action::End];
    assert_eq!(fault_of(&after, Limits::none()), (2, Rule::AfterEnd));
}

#[test]
fn a_fault_says_action_place_and_rule() {
    let fault = check([save(0), save(0)], Limits::none()).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "action 1 (Save { step: 0, tier: None }): this copy is kept already: discard it first"
    );
}

#[test]
fn storing_all_computes_no_step_twice() {
    for steps in 1..50 {
        let schedule = StoreAll::new(steps).unwrap();
        let counts = check(schedule.clone(), Limits::of(&schedule)).unwrap();
        assert_eq!((counts.steps, counts.advances, counts.recomputed()), (steps, steps - 1, 0));
        assert_eq!((counts.saves, counts.restores), (steps - 1, steps - 1));
        assert_eq!(counts.peak, schedule.slots());
    }
}
