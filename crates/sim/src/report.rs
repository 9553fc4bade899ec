//! Running a plan, and saying what went wrong.

use std::fmt;

use crate::check::Violation;
use crate::history::History;
use crate::plan::Plan;
use crate::world::{RunFigures, World};

/// The lines of history that a failure shows.
const LINES: usize = 40;

/// A run that broke a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was run.
    pub plan: Plan,
    /// The rule and how it was broken.
    pub violation: Violation,
    /// How many events the core had taken in this life.
    pub step: u64,
    /// Everything that happened.
    pub history: History,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { plan, violation, step, history } = self;
        writeln!(f, "seed {} breaks a rule at step {step}", plan.seed)?;
        writeln!(f, "{violation}")?;
        writeln!(f, "the last {LINES} lines of its history:")?;
        writeln!(f, "{}", history.tail(LINES))?;
        write!(f, "again: cargo run -p unspool-sim -- --seed {} --verbose", plan.seed)
    }
}

/// Runs the plan of a seed.
///
/// # Errors
/// When a rule is broken.
pub fn run_seed(seed: u64) -> Result<RunFigures, Box<Failure>> {
    run_plan(Plan::of_seed(seed))
}

/// Runs a plan.
///
/// # Errors
/// When a rule is broken.
pub fn run_plan(plan: Plan) -> Result<RunFigures, Box<Failure>> {
    run_world(World::new(plan))
}

/// Runs a world that was prepared.
pub(crate) fn run_world(mut world: World) -> Result<RunFigures, Box<Failure>> {
    match world.run() {
        Ok(()) => Ok(world.figures()),
        Err(violation) => Err(Box::new(Failure {
            violation,
            step: world.events,
            history: world.history,
            plan: world.plan,
        })),
    }
}
