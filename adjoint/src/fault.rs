//! What is wrong with a schedule: the action, its place, and the rule that it breaks.

use core::fmt;

use super::Action;
use unspool_core::TierKind;

/// The first action of a schedule that breaks a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The action's place, counted from 0.
    pub place: u64,
    /// The action; `None` when the schedule stops where one is missing.
    pub action: Option<Action>,
    /// The rule that the action breaks.
    pub rule: Rule,
}

/// A rule, and how it was broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Rule {
    /// Nothing follows `End`.
    AfterEnd,
    /// The last action is `End`.
    NoEnd,
    /// `Forward` goes to a later step.
    NoAdvance,
    /// `Forward` never goes past the state that the next step to be reversed reads.
    TooFar {
        /// Steps that are left to reverse.
        left: u64,
    },
    /// `Forward`, `Save` and `Reverse` need the working state to be the one that they name.
    WrongState {
        /// The state that is needed.
        needed: u64,
        /// The state that is there; `None` after a `Reverse`.
        working: Option<u64>,
    },
    /// A state is kept at most once in each tier.
    KeptAlready,
    /// `Restore` and `Discard` name a copy that is kept, with the tier that it was saved with.
    NotKept,
    /// There are no more copies at a time than slots.
    Full {
        /// The limit.
        slots: u64,
        /// The tier whose limit it is; `None` for the limit on all together.
        tier: Option<TierKind>,
    },
    /// Every step is reversed once, the last first.
    OutOfOrder {
        /// The step that has to be reversed next, if any is left.
        next: Option<u64>,
    },
    /// The number of steps is given once, and not when it is known.
    StepsAreKnown {
        /// The number that is known.
        steps: u64,
    },
    /// The pass ends at a state that the last action led to or past, and not at state 0.
    NotThere {
        /// The state at which the pass is said to have ended.
        steps: u64,
        /// Where the last action began.
        from: Option<u64>,
        /// Where the last action led.
        to: Option<u64>,
    },
    /// At `End` every step was reversed.
    NotReversed {
        /// Steps that are left; `None` when there was no `Reverse` at all.
        left: Option<u64>,
    },
    /// At `End` nothing is kept.
    StillKept {
        /// The number of copies.
        copies: u64,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            Some(action) => write!(f, "action {} ({action:?}): {}", self.place, self.rule),
            None => write!(f, "after {} actions: {}", self.place, self.rule),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Rule::AfterEnd => f.write_str("nothing may follow End"),
            Rule::NoEnd => f.write_str("the schedule stops without End"),
            Rule::NoAdvance => f.write_str("Forward must go to a later step"),
            Rule::TooFar { left } => too_far(f, left),
            Rule::WrongState { needed, working: Some(working) } => {
                write!(f, "it needs the working state to be state {needed}, but it is {working}")
            }
            Rule::WrongState { needed, working: None } => write!(
                f,
                "it needs the working state to be state {needed}, but a Reverse came before: \
                 restore a state first"
            ),
            Rule::KeptAlready => f.write_str("this copy is kept already: discard it first"),
            Rule::NotKept => f.write_str("this copy is not kept: it was not saved, or discarded"),
            Rule::Full { slots, tier } => full(f, slots, tier),
            Rule::OutOfOrder { next: Some(next) } => {
                write!(f, "the step to be reversed next is {next}: the last first, each once")
            }
            Rule::OutOfOrder { next: None } => f.write_str("no step is left to be reversed"),
            Rule::StepsAreKnown { steps } => write!(f, "the number of steps is known: {steps}"),
            Rule::NotThere { steps, from: Some(from), to: Some(to) } => {
                write!(f, "the pass cannot have ended at state {steps}: it is at {from} to {to}")
            }
            Rule::NotThere { steps, .. } => {
                write!(f, "the pass cannot have ended at state {steps}: a Reverse came before")
            }
            Rule::NotReversed { left: Some(left) } => write!(f, "{left} steps were not reversed"),
            Rule::NotReversed { left: None } => f.write_str("no step was reversed"),
            Rule::StillKept { copies } => {
                write!(f, "{copies} copies are still kept: discard each after its last use")
            }
        }
    }
}

fn too_far(f: &mut fmt::Formatter<'_>, left: u64) -> fmt::Result {
    match left.checked_sub(1) {
        Some(last) => write!(f, "it goes past state {last}, the last one that is still needed"),
        None => f.write_str("every step was reversed: no state is needed"),
    }
}

fn full(f: &mut fmt::Formatter<'_>, slots: u64, tier: Option<TierKind>) -> fmt::Result {
    match tier {
        Some(tier) => write!(f, "all {slots} slots of the {tier} tier are taken"),
        None => write!(f, "all {slots} slots are taken"),
    }
}

impl core::error::Error for Fault {}
