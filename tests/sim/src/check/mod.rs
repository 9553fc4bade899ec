//! The invariants of a run. The checkers derive their own state from events and commands alone;
//! they never query the core for what they check it against.

pub mod copies;
pub mod durable;
pub mod ledger;
pub mod order;
pub mod refusals;
pub mod requests;
pub mod retries;
pub mod room;

use std::fmt;

/// A rule that a run can break.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// Restored bytes are the saved ones; unfilled and freed memory is never read.
    Bytes,
    /// What is held and reserved fits into each tier, aligned, at offsets that exist.
    Capacity,
    /// No two copies share a byte.
    Overlap,
    /// Nothing is freed or overwritten while an unfinished operation uses it.
    InUse,
    /// Every access is ordered after the accesses that it depends on.
    Order,
    /// Every accepted checkpoint is restorable or reported lost; commands name existing objects.
    Known,
    /// A call is only refused for a reason that is true.
    Refusal,
    /// Every call is answered exactly once.
    Answer,
    /// Every transfer is reported exactly once, and within the limits of its link.
    Transfer,
    /// A flush is reported only when it is done, and durable checkpoints survive a crash.
    Durable,
    /// No call waits while nothing moves.
    Stuck,
    /// After the faults stop, all activity ends.
    Rest,
    /// The state of the core agrees with the ledger of the checkers.
    Books,
    /// The core breaks no assertion of its own.
    Assertion,
}

/// A broken rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// Description of the violation.
    pub what: String,
}

impl Violation {
    /// A violation of `rule`.
    #[must_use]
    pub fn new(rule: Rule, what: impl Into<String>) -> Violation {
        Violation { rule, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}

/// Returns a violation of `rule` unless `holds`.
pub fn ensure(holds: bool, rule: Rule, what: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation::new(rule, what())) }
}
