//! What a given schedule costs.

use super::timeline::{BatchTimes, Times, Waits, batch, pack, raw};
use super::{CheckpointDecision, End, Mistake, Problem};
use unspool_core::Nanos;

/// Where the time of a run goes, and what it moved. The parts add up to `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunTimes {
    /// From the beginning to the end of the run.
    pub end: Nanos,
    /// Between checkpoints.
    pub computing: Nanos,
    /// Waits for room in the cache.
    pub room: Nanos,
    /// Waits for copies within the device.
    pub copies: Nanos,
    /// Waits for the codec.
    pub codec: Nanos,
    /// The wait for the last transfers, after the last checkpoint.
    pub last: Nanos,
    /// Checkpoints by decision, in the order of [`CheckpointDecision::ALL`].
    pub counts: [u64; 4],
    /// Bytes of the checkpoints.
    pub raw_bytes: u64,
    /// Bytes that the link carried.
    pub link_bytes: u64,
}

impl RunTimes {
    /// The time for which the application was blocked.
    #[must_use]
    pub fn blocked(&self) -> Nanos {
        self.end.since(self.computing)
    }

    /// The share of the run for which the application was blocked: the objective; 0 for an empty
    /// run.
    #[must_use]
    pub fn overhead(&self) -> f64 {
        if self.end.0 == 0 { 0.0 } else { self.blocked().0 as f64 / self.end.0 as f64 }
    }
}

/// Follows `decisions`, one for each checkpoint.
///
/// # Errors
/// The problem is wrong, or a decision cannot be taken.
pub fn follow(problem: &Problem, decisions: &[CheckpointDecision]) -> Result<RunTimes, Mistake> {
    problem.check()?;
    let (decided, asked) = (decisions.len(), problem.checkpoints.len());
    if decided != asked {
        return Err(Mistake::Length { decisions: decided, checkpoints: asked });
    }
    let mut group = BatchTimes::default();
    let mut found = RunTimes { computing: problem.computing(), ..RunTimes::default() };
    for (at, (one, &decision)) in problem.checkpoints.iter().zip(decisions).enumerate() {
        let done = match decision {
            CheckpointDecision::Hold => batch(problem, group, one),
            CheckpointDecision::Raw if group.count == 0 => raw(problem, group, one),
            CheckpointDecision::Alone if group.count == 0 => pack(problem, group, one),
            CheckpointDecision::Together if group.count > 0 => pack(problem, group, one),
            _ => None,
        };
        group = done.ok_or(Mistake::Impossible { at })?;
        found.counts[decision as usize] += 1;
        found.raw_bytes += one.raw;
        found.link_bytes += if decision == CheckpointDecision::Raw { one.raw } else { one.packed };
    }
    if group.count > 0 {
        return Err(Mistake::Unfinished);
    }
    Ok(ended(problem, found, group.times, group.waits))
}

fn ended(problem: &Problem, found: RunTimes, times: Times, waits: Waits) -> RunTimes {
    let end = end_of(problem, times);
    let found = RunTimes {
        end: Nanos(end),
        room: Nanos(waits.room),
        copies: Nanos(waits.copies),
        codec: Nanos(waits.codec),
        last: Nanos(end - times.app),
        ..found
    };
    debug_assert_eq!(
        found.end.0,
        found.computing.0 + found.room.0 + found.copies.0 + found.codec.0 + found.last.0,
        "the parts are the whole"
    );
    found
}

/// When the run ends whose last decision left these times.
pub(super) fn end_of(problem: &Problem, times: Times) -> u64 {
    match problem.end {
        End::Flushed => times.app.max(times.link),
        End::Application => times.app,
    }
}
