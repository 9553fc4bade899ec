//! Why there is no forecast.

use core::fmt;

use crate::{Fault, ScheduleError};
use unspool_core::ConfigError;
use unspool_core::TierKind;

/// Why there is no forecast.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum ForecastError {
    /// The job contradicts itself: this rule does not hold.
    Job(&'static str),
    /// No spool can have these tiers and links.
    Config(ConfigError),
    /// The schedule does not know its number of steps, and the job does not give it.
    UnknownSteps,
    /// The number of steps that the job gives does not suit the schedule.
    Steps(ScheduleError),
    /// The schedule breaks a rule of schedules.
    Schedule(Fault),
    /// The schedule has more actions than are run.
    TooLong {
        /// The most actions that are run.
        limit: usize,
    },
    /// The sample of a long schedule is not a shorter schedule, or never restores.
    Sample,
    /// The spool would refuse a save of this schedule.
    DoesNotFit {
        /// The slowest tier, which has no room.
        tier: TierKind,
        /// Its capacity in bytes.
        capacity: u64,
        /// The most bytes that the schedule keeps at a time, as that tier counts them.
        needed: u64,
    },
    /// The spool would leave the call for this step without an answer.
    Stuck {
        /// The step that was to be saved or restored.
        step: u64,
    },
}

impl fmt::Display for ForecastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ForecastError::Job(rule) => write!(f, "the job makes no sense: {rule}"),
            ForecastError::Config(cause) => write!(f, "no spool is like this: {cause}"),
            ForecastError::UnknownSteps => {
                f.write_str("the schedule does not know its number of steps: give it in the job")
            }
            ForecastError::Steps(cause) => cause.fmt(f),
            ForecastError::Schedule(fault) => fault.fmt(f),
            ForecastError::TooLong { limit } => {
                write!(f, "the schedule has more than {limit} actions: forecast one of fewer steps")
            }
            ForecastError::Sample => f.write_str(
                "the sample must have fewer steps than the schedule, not more slots, and restores",
            ),
            ForecastError::DoesNotFit { tier, capacity, needed } => write!(
                f,
                "the schedule keeps up to {needed} bytes, and the slowest tier, {tier}, has room \
                 for {capacity}: give it more, or keep fewer states"
            ),
            ForecastError::Stuck { step } => {
                write!(f, "the spool would never answer the call for step {step}")
            }
        }
    }
}

impl core::error::Error for ForecastError {}
