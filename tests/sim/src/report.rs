//! Execution of a plan, and the report of a failure.

use std::fmt::{self, Write};

use crate::check::Violation;
use crate::check::ledger::Ledger;
use crate::history::History;
use crate::plan::Plan;
use crate::world::{RunFigures, World};

/// Number of lines of history in the report of a failure.
const LINES: usize = 40;

/// A run that broke a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The plan of the run.
    pub plan: Plan,
    /// The rule and how it was broken.
    pub violation: Violation,
    /// Number of events that the core had received in this life.
    pub step: u64,
    /// The history of the run.
    pub history: History,
    /// The ledger at the end.
    pub ledger: Ledger,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { plan, violation, step, history, ledger } = self;
        writeln!(f, "seed {} breaks a rule at step {step}", plan.seed)?;
        writeln!(f, "{violation}")?;
        writeln!(f, "the last {LINES} lines of its history:")?;
        writeln!(f, "{}", history.tail(LINES))?;
        write!(f, "{}", layout(ledger))?;
        write!(f, "again: cargo run -p unspool-sim -- --seed {} --verbose", plan.seed)
    }
}

/// The layout of every tier as text.
fn layout(ledger: &Ledger) -> String {
    let mut text = String::new();
    for (tier, config) in ledger.tiers().iter().enumerate() {
        let capacity = config.capacity;
        let used = ledger.used(tier);
        let (kind, unit) = (config.kind, config.alignment);
        writeln!(text, "tier {tier}, {kind}: {used} of {capacity} bytes, alignment {unit}")
            .expect("a string takes everything");
        let mut held: Vec<_> =
            ledger.all().filter_map(|b| b.holdings[tier].map(|h| (h.offset, b, h))).collect();
        held.sort_by_key(|(offset, books, _)| (*offset, books.id));
        for (offset, books, holding) in held {
            let fences = [
                (holding.filling, "filling"),
                (holding.deleting, "deleting"),
                (holding.bad, "bad"),
                (holding.readers > 0, "being read"),
                (holding.sources > 0, "being moved"),
            ];
            let fences: Vec<&str> = fences.iter().filter(|m| m.0).map(|m| m.1).collect();
            let (id, version, size, stage) =
                (books.id.0, books.version.0, holding.size, books.stage);
            let end = offset + size;
            writeln!(
                text,
                "  {offset}..{end} checkpoint {id}, version {version}, {stage:?} {fences:?}"
            )
            .expect("a string takes everything");
        }
    }
    text
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
    run_world(World::new(plan)).1
}

/// Runs a prepared world and returns its history in any case.
pub fn run_world(mut world: World) -> (History, Result<RunFigures, Box<Failure>>) {
    let ended = world.run();
    world.history.order = world.order.take_text();
    let history = world.history.clone();
    let result = match ended {
        Ok(()) => Ok(world.figures()),
        Err(violation) => Err(Box::new(Failure {
            violation,
            step: world.events,
            history: world.history,
            ledger: world.ledger,
            plan: world.plan,
        })),
    };
    (history, result)
}
