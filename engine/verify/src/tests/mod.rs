//! Planted races of every kind, the orders that are right, and a comparison with a naive check.

mod bounds;
mod orders;
mod races;
mod reference;
mod text;

use super::{Agent, Checker, Fault, Op, Race, Space, Violation};

const HOST: Agent = Agent::Host;
const USER: Agent = Agent::Stream(1);
const FLUSH: Agent = Agent::Stream(2);
const FETCH: Agent = Agent::Stream(3);
const DEVICE: Space = Space::Device(0);

fn access(by: Agent, space: Space, bytes: (u64, u64), write: bool, what: &'static str) -> Op {
    Op::Access { by, space, first: bytes.0, end: bytes.1, write, what }
}

fn writes(by: Agent, bytes: (u64, u64), what: &'static str) -> Op {
    access(by, DEVICE, bytes, true, what)
}

fn reads(by: Agent, bytes: (u64, u64), what: &'static str) -> Op {
    access(by, DEVICE, bytes, false, what)
}

fn record(event: u64, on: Agent) -> Op {
    Op::Record { event, on }
}

fn wait(by: Agent, event: u64) -> Op {
    Op::Wait { by, event }
}

/// Checks all operations; the first violation.
fn check(ops: &[Op]) -> Result<Checker, Violation> {
    let mut checker = Checker::new();
    ops.iter().try_for_each(|op| checker.see(op)).map(|()| checker)
}

/// The race that the last of these operations is, and no earlier one.
fn race(ops: &[Op]) -> Race {
    let violation = check(ops).expect_err("a race was planted");
    assert_eq!(violation.op, ops.len() as u64 - 1, "{violation}");
    let Fault::Unordered(race) = violation.fault else { panic!("{violation}") };
    *race
}
