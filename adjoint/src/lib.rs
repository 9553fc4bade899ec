//! Which steps of an adjoint to keep, to restore, to compute again: schedules as iterators of plain
//! [`Action`]s.
//!
//! A schedule covers the forward pass and the reverse sweep. It never advances past the state
//! before the last step: reversing that step begins the reverse sweep.
//!
//! | schedule | copies at a time | steps computed again |
//! | --- | --- | --- |
//! | [`StoreAll`] | one for every step but the last | none |
//! | [`Revolve`] | at most as many as given | as few as those copies allow |
//! | [`OnlineRevolve`] | at most as many as given | nearly as few, for an unknown number of steps |
//! | [`Uniform`] | at most as many as given | quadratic in the steps of an interval |
//! | [`ZCut`] | of the order of the steps' square root, or more | each once at most |
//! | [`MultiLevel`] | at most as many as given for each tier | such that the costs are least |
//! | [`Listed`], [`Trace`] | as written down | as written down |
//!
//! The [`Interpreter`] follows any of them, checks every action and counts:
//!
//! ```
//! use unspool_schedule::{Limits, Revolve, check};
//!
//! let schedule = Revolve::new(300, 6).expect("300 steps, 6 slots");
//! let counts = check(schedule, Limits::none()).expect("it breaks no rule");
//! assert_eq!((counts.advances, counts.recomputed(), counts.peak), (1170, 871, 6));
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod accumulate;
mod action;
mod any;
pub mod check;
mod fault;
pub mod forecast;
mod levels;
mod listed;
mod online;
mod restores;
pub mod revolve;
mod store_all;
mod trace;
mod uniform;
mod walk;
mod zcut;

pub use action::Action;
pub use any::AnySchedule;
pub use check::{Counts, Interpreter, Limits, check};
pub use fault::{Fault, Rule};
pub use levels::{Level, MultiLevel};
pub use listed::Listed;
pub use online::OnlineRevolve;
pub use restores::Restores;
pub use revolve::Revolve;
pub use store_all::StoreAll;
pub use trace::{Trace, TraceError, TraceFault};
pub use uniform::Uniform;
pub use zcut::ZCut;

/// An iterator of actions whose last item is [`Action::End`].
pub trait Schedule: Iterator<Item = Action> {
    /// The number of steps, or `None` while it is not known.
    fn steps(&self) -> Option<u64>;

    /// The most copies that it keeps at any time, in all tiers together.
    fn slots(&self) -> u64;

    /// Reports that the forward pass has ended with the working state being state `steps`.
    ///
    /// # Errors
    /// The number of steps was known already, or it cannot be that one.
    fn finish(&mut self, steps: u64) -> Result<(), ScheduleError> {
        Err(ScheduleError::StepsAreKnown { steps: self.steps().unwrap_or(steps) })
    }
}

/// Why a schedule cannot be made, or cannot go on.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ScheduleError {
    /// There are no steps.
    NoSteps,
    /// There must be at least this many slots.
    TooFewSlots {
        /// The slots that were given.
        slots: u64,
        /// The slots that are needed.
        needed: u64,
    },
    /// zCut needs at least one cut, of at least one step.
    NoCuts,
    /// [`Schedule::finish`] of a schedule whose number of steps is known.
    StepsAreKnown {
        /// The number of steps.
        steps: u64,
    },
    /// There are no levels of storage, or too many, or they are not in the order of their tiers.
    Levels {
        /// The most that there may be.
        most: usize,
    },
    /// A cost is negative or not a finite number, or their sum might not be.
    BadCost,
    /// [`Schedule::finish`] at a state that the working state cannot be.
    NotThere {
        /// The state at which the pass is said to have ended.
        steps: u64,
        /// The earliest state that the working state can be.
        from: u64,
        /// The latest state that the working state can be.
        to: u64,
    },
}

impl core::fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            ScheduleError::NoSteps => f.write_str("a schedule needs at least one step"),
            ScheduleError::TooFewSlots { slots, needed } => {
                write!(f, "{slots} slots are too few: at least {needed} are needed")
            }
            ScheduleError::NoCuts => f.write_str("there must be a cut, of one step or more"),
            ScheduleError::StepsAreKnown { steps } => {
                write!(f, "the number of steps is known: {steps}")
            }
            ScheduleError::Levels { most } => write!(
                f,
                "levels of storage are wrong: give 1 to {most} of different tiers, fastest first"
            ),
            ScheduleError::BadCost => f.write_str(
                "seconds are wrong: each must be 0 or more and finite, and so must their sum",
            ),
            ScheduleError::NotThere { steps, from, to } => write!(
                f,
                "the forward pass cannot end at state {steps}: the working state is one of {from} \
                 to {to}; say finish with its step, before asking for the next action"
            ),
        }
    }
}

impl core::error::Error for ScheduleError {}
