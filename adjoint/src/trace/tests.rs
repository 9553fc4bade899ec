//! Texts that are schedules, and texts that are not.

use alloc::format;
use alloc::string::ToString;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::{Revolve, StoreAll, Uniform, ZCut};

const THREE_STEPS: &str = "\
# Revolve, three steps and one slot
0 SAVE
0 FORWARD
1 FORWARD

2 FIRSTURN
0 RESTORE
0 FORWARD   # again
1 BACKWARD
0 RESTORE
0 BACKWARD
-1 TERMINATE
";

fn refused(text: &str) -> (usize, TraceFault) {
    let error = Trace::parse(text).unwrap_err();
    (error.line, error.why)
}

/// `THREE_STEPS` with one line replaced.
fn with_line(line: usize, content: &str) -> String {
    let mut lines: Vec<&str> = THREE_STEPS.lines().collect();
    lines[line - 1] = content;
    lines.join("\n")
}

#[test]
fn lines_are_read_as_actions() {
    let trace = Trace::parse(THREE_STEPS).unwrap();
    assert_eq!((trace.steps(), trace.slots()), (Some(3), 1));
    assert!(trace.eq(Revolve::new(3, 1).unwrap()));
}

#[test]
fn zcut_has_a_word_of_its_own_for_a_save() {
    let text = Trace::write(ZCut::with_cuts(20, 4).unwrap());
    let words = text.replace("17 SAVE", "17 SAVE_INTERMEDIARY");
    assert!(words != text);
    assert_eq!(Trace::parse(&words).unwrap(), Trace::parse(&text).unwrap());
}

#[test]
fn a_copy_is_given_up_after_its_last_use() {
    let text = "0 SAVE\n0 FORWARD\n1 SAVE\n1 FORWARD\n2 FIRSTURN\n0 RESTORE\n0 FORWARD\n1 SAVE\n\
                1 RESTORE\n1 BACKWARD\n0 RESTORE\n0 BACKWARD\n0 TERMINATE\n";
    let trace = Trace::parse(text).unwrap();
    let counts = trace.listed().counts();
    // The first copy of state 1 is not read before the second is made.
    assert_eq!((counts.saves, counts.discards, counts.restores, counts.peak), (3, 3, 3, 2));
    let discard = Action::Discard { step: 1, tier: None };
    assert_eq!(trace.listed().actions()[3], discard);
}

#[test]
fn a_line_that_cannot_be_read_is_named() {
    assert_eq!(refused(&with_line(3, "0")), (3, TraceFault::NotTwoWords));
    assert_eq!(refused(&with_line(3, "0 FORWARD 1")), (3, TraceFault::NotTwoWords));
    for word in ["x", "-1", "1.5", "18446744073709551615", "18446744073709551616"] {
        let line = format!("{word} FORWARD");
        assert_eq!(refused(&with_line(3, &line)), (3, TraceFault::NotAStep(word.to_string())));
    }
    let unknown = TraceFault::NoSuchAction("forward".to_string());
    assert_eq!(refused(&with_line(3, "0 forward")), (3, unknown));
    assert_eq!(refused(&with_line(9, "1 FIRSTURN")), (9, TraceFault::LateTurn));
}

#[test]
fn a_line_that_breaks_a_rule_is_named() {
    let (line, why) = refused(&with_line(8, "1 FORWARD"));
    let broken = Rule::WrongState { needed: 1, working: Some(0) };
    assert_eq!((line, why), (8, TraceFault::Breaks(broken)));
    assert_eq!(refused(&with_line(2, "")), (7, TraceFault::Breaks(Rule::NotKept)));
    assert_eq!(refused(&with_line(12, "")), (11, TraceFault::Breaks(Rule::NoEnd)));
    assert_eq!(refused(""), (0, TraceFault::Breaks(Rule::NoEnd)));
    let after = format!("{THREE_STEPS}0 SAVE\n");
    assert_eq!(refused(&after), (13, TraceFault::Breaks(Rule::AfterEnd)));
    let message = Trace::parse(&with_line(2, "")).unwrap_err().to_string();
    assert_eq!(message, "line 7: this copy is not kept: it was not saved, or discarded");
}

proptest! {
    #[test]
    fn a_written_schedule_reads_back_as_it_was(steps in 1u64..200, number in 1u64..30) {
        let same = |schedule: &mut dyn Iterator<Item = Action>| {
            let actions: Vec<Action> = schedule.collect();
            let read = Trace::parse(&Trace::write(actions.iter().copied())).unwrap();
            assert_eq!(read.listed().actions(), actions);
        };
        same(&mut StoreAll::new(steps).unwrap());
        same(&mut Revolve::new(steps, number).unwrap());
        same(&mut Uniform::new(steps, number).unwrap());
        same(&mut ZCut::with_cuts(steps, number).unwrap());
    }

    #[test]
    fn any_text_is_read_or_refused(text in "([0-9]{1,2} [A-Z]{4,7}\n| |#|[0-3] (SAVE|RESTORE|\
        FORWARD|BACKWARD|TERMINATE|FIRSTURN)\n){0,20}") {
        if let Err(error) = Trace::parse(&text) {
            prop_assert!(error.line <= text.lines().count());
        }
    }
}
