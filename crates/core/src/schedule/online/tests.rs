//! The whole of a schedule at every number of steps, against Revolve and an exhaustive search.

use std::collections::HashMap;
use std::vec::Vec;

use super::*;
use crate::schedule::revolve::advances;
use crate::schedule::{Counts, Interpreter, Limits};

const STEPS: u64 = 500;
const SLOTS: u64 = 20;

/// Carries the schedule out from where it and the interpreter are.
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

#[test]
fn up_to_the_second_range_no_schedule_does_with_fewer_steps() {
    for slots in 1..=SLOTS {
        for (steps, counts, _) in at_every_end(slots, choose(slots + 2, 2).min(STEPS)) {
            assert_eq!(counts.advances, advances(steps + 1, slots), "{steps} steps, {slots} slots");
        }
    }
}
#[test]
fn print_ratios() {
    for slots in 1..=SLOTS {
        let third = choose(slots + 3, 3);
        let mut worst = (1.0, 0);
        let mut w3 = (0, 0);
        let mut wall = (0, 0);
        let mut sv = 0;
        for (steps, counts, _) in at_every_end(slots, STEPS) {
            let best = advances(steps + 1, slots);
            let r = counts.advances as f64 / best as f64;
            if r > worst.0 {
                worst = (r, steps);
            }
            let ex = counts.advances - best;
            if ex > wall.0 {
                wall = (ex, steps);
            }
            if steps <= third && ex > w3.0 {
                w3 = (ex, steps);
            }
            sv = counts.saves;
            assert_eq!(counts.reverses, steps);
        }
        std::println!(
            "{slots}: worst {:.4} at {}, excess third {w3:?}, all {wall:?} saves {sv} of {}",
            worst.0,
            worst.1,
            crate::schedule::revolve::saves(501, slots)
        );
    }
}
