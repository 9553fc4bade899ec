//! Forecasts of what a schedule costs: the real core, run in virtual time.
//!
//! The application is one timeline: forward steps and reverse steps take their time, a save waits
//! for its grant and copies, a restore waits until it is served and copies. Beside it every
//! direction of every link is a queue that moves one transfer after the other, at its rate. What
//! moves when is decided by the [`Core`](unspool_core::Core) itself, so the forecast has the
//! evictions, the prefetches and the stalls of the run that it predicts. It is the same on every
//! machine.
//!
//! The model, and what it leaves out:
//! - The driver expects [`ForecastJob::lookahead`] restores before the first action, and one more
//!   at each restore, and says which of them are the last of their copies. For a schedule that does
//!   not know its number of steps it begins at the end of the forward pass. Prefetching is never
//!   held back.
//! - A step that a schedule keeps in two tiers at once is one version of the spool: the second save
//!   moves nothing, the last discard frees it. A copy that the schedule counts to a slower tier
//!   prefers to rest there.
//! - On a GPU the host only enqueues, and the stream executes in order, so that one timeline at
//!   the rates of copies on the device is right. The links to the host disturb it little.
//! - In main memory the background and the application share bandwidth and cores: the application
//!   takes longer by [`LinkSpeed::contention`] for each direction of a link that is busy. Places of
//!   an arena that are written for the first time cost [`ForecastJob::first_touch`] on top.
//! - A link with two workers overlaps the latency of a transfer with the transfer before it,
//!   as far as that is on the link long enough.
//! - What an arena cannot serve, the application's thread reads from the store, at the rate of its
//!   link; the transfer that is under way there meanwhile ends later by as much.
//! - With [`ForecastJob::compression`] a save asks for room for a whole state and keeps a part of
//!   it as soon as it is encoded, without a wait for sizes. Ratio and rates are the same for every
//!   state.
//! - Schedules of more than [`MAX_ACTIONS`] actions are not run: [`forecast_from_sample`].
//! - Several processes that share links run in one virtual time: [`forecast_together`].
//! - Nothing fails, and deletions take the latency of their store's link.

mod error;
mod fair;
#[cfg(test)]
mod fair_tests;
mod job;
mod lanes;
mod plan;
mod run;
mod scaled;
#[cfg(test)]
mod shape_tests;
#[cfg(test)]
mod tests;
mod together;
#[cfg(test)]
mod together_tests;
mod workload;

pub use error::ForecastError;
pub use job::{
    Compression, Forecast, ForecastJob, LinkBytes, LinkSpeed, MAX_ACTIONS, Rate, TierPeak,
};
pub use scaled::forecast_from_sample;
pub use together::{
    LinkUser, ProcessForecast, SharedLink, SharedUse, Together, TogetherJob, forecast_together,
};
pub use workload::Workload;

use crate::Schedule;
use plan::ForecastPlan;

/// Predicts what `schedule` costs on the machine and with the spool that `job` describes.
///
/// # Errors
/// When the job contradicts itself, when the schedule breaks a rule of schedules or is longer than
/// [`MAX_ACTIONS`], and when the tiers cannot hold what it keeps.
pub fn forecast(schedule: impl Schedule, job: &ForecastJob) -> Result<Forecast, ForecastError> {
    job.check()?;
    let plan = ForecastPlan::of(schedule, job)?;
    let (runs, _) = together::run_together(job, core::slice::from_ref(&plan), &[])?;
    debug_assert!(runs.iter().all(run::ForecastRun::keeps_nothing), "a schedule discards all");
    runs.first().map(run::ForecastRun::result).ok_or(ForecastError::Stuck { step: 0 })
}
