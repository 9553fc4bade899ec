//! How long a run goes on between two checkpoints.
//!
//! The time between two checkpoints that loses least, when failures come at random: J. T. Daly, "A
//! higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation
//! Computer Systems 22 (2006), equation 37.

use std::time::Duration;

/// The default for the time between two failures of one rank: five years. The training of Llama 3
/// on 16,384 GPUs was interrupted 419 times in 54 days without being planned (Llama team, "The
/// Llama 3 herd of models", 2024, section 3.3.4), which is 5.8 years for one GPU.
pub const RANK_MTBF: Duration = Duration::from_secs(5 * 365 * 86_400);

/// The default for the time between two failures of a job, however few ranks it has: a day, as jobs
/// end for other reasons than broken devices.
pub const JOB_MTBF: Duration = Duration::from_secs(86_400);

/// The largest default share of the run time for which the application waits in saves.
pub const SHARE: f64 = 0.05;

/// What a save is taken to cost as long as none was measured.
const GUESS: Costs = Costs { blocked: 1.0, commit: 0.0 };

/// When a checkpoint is due.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Every {
    /// Each time that the step passes a multiple of this number.
    Steps(u64),
    /// When so much time has passed since the last one.
    Time(Duration),
    /// When the time has passed that loses least.
    Auto,
    /// Only when the run is asked to stop, and when the application says so.
    Never,
}

impl Every {
    /// Whether a copy of the checkpoint of `step` is due at time `now`, when the last one was of
    /// this step at this time: `Auto` is always, and `Never` at the end alone.
    pub(crate) fn is_due_after(self, (last, at): (u64, f64), step: u64, now: f64) -> bool {
        match self {
            Every::Auto => true,
            Every::Never => false,
            Every::Steps(every) => step / every.max(1) > last / every.max(1),
            Every::Time(time) => now - at >= time.as_secs_f64(),
        }
    }
}

/// What a checkpoint costs, in seconds.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Costs {
    /// The time for which the application waits in a save.
    pub blocked: f64,
    /// The time from a save to where it is durable.
    pub commit: f64,
}

impl Costs {
    /// The costs after one more checkpoint: half of what is known and half of what it took.
    #[must_use]
    pub fn and(known: Option<Costs>, new: Costs) -> Costs {
        let half = |a: f64, b: f64| (a + b) / 2.0;
        known.map_or(new, |known| Costs {
            blocked: half(known.blocked, new.blocked),
            commit: half(known.commit, new.commit),
        })
    }

    /// The larger of both.
    #[must_use]
    pub fn max(self, other: Costs) -> Costs {
        Costs { blocked: self.blocked.max(other.blocked), commit: self.commit.max(other.commit) }
    }
}

/// When a checkpoint is due, with what the automatic interval needs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rule {
    /// What was asked for.
    pub every: Every,
    /// The mean time between two failures of the job.
    pub mtbf: Duration,
    /// The largest share of the run time for which the application waits in saves.
    pub share: f64,
}

impl Rule {
    /// `every` for a job of so many ranks, with defaults for all else.
    #[must_use]
    pub fn of(every: Every, ranks: u32) -> Rule {
        Rule { every, mtbf: (RANK_MTBF / ranks.max(1)).min(JOB_MTBF), share: SHARE }
    }

    /// The seconds between the end of a save and the next one; `None` where time does not decide.
    #[must_use]
    pub fn interval(&self, costs: Option<Costs>) -> Option<f64> {
        match self.every {
            Every::Steps(_) | Every::Never => None,
            Every::Time(time) => Some(time.as_secs_f64()),
            Every::Auto => {
                let costs = costs.unwrap_or(GUESS);
                let best = daly(costs.blocked, self.mtbf.as_secs_f64());
                // blocked / (interval + blocked) is at most the share.
                let least = costs.blocked * (1.0 - self.share) / self.share;
                Some(best.max(least).max(costs.commit))
            }
        }
    }
}

/// The interval that loses least, for saves of `cost` seconds and a failure every `mtbf` seconds.
#[must_use]
pub fn daly(cost: f64, mtbf: f64) -> f64 {
    if cost >= 2.0 * mtbf {
        return mtbf;
    }
    let ratio = cost / (2.0 * mtbf);
    (2.0 * cost * mtbf).sqrt() * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - cost
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auto(mtbf: f64, share: f64) -> Rule {
        Rule { every: Every::Auto, mtbf: Duration::from_secs_f64(mtbf), share }
    }

    /// The expected run time of one unit of work (Daly, equation 20, without the restart).
    fn run_time(tau: f64, cost: f64, mtbf: f64) -> f64 {
        mtbf * (((tau + cost) / mtbf).exp() - 1.0) / tau
    }

    #[test]
    fn the_interval_of_daly_loses_least() {
        for (cost, mtbf) in [(1.0, 86_400.0), (300.0, 86_400.0), (60.0, 600.0), (5.0, 40.0)] {
            let tau = daly(cost, mtbf);
            let best = run_time(tau, cost, mtbf);
            for factor in [0.5, 0.8, 1.25, 2.0] {
                assert!(best < run_time(tau * factor, cost, mtbf), "{cost} {mtbf} {factor}");
            }
        }
        assert_eq!(daly(100.0, 50.0), 50.0);
    }

    #[test]
    fn a_save_never_takes_more_than_its_share() {
        let costs = Costs { blocked: 10.0, commit: 0.0 };
        let interval = auto(100.0, 0.05).interval(Some(costs)).unwrap();
        assert!((10.0 / (interval + 10.0) - 0.05).abs() < 1e-9, "{interval}");
    }

    #[test]
    fn checkpoints_are_not_due_before_the_last_one_is_durable() {
        let costs = Costs { blocked: 0.01, commit: 900.0 };
        assert_eq!(auto(3600.0, 0.05).interval(Some(costs)), Some(900.0));
    }

    #[test]
    fn larger_jobs_fail_more_often() {
        let mtbf = |ranks| Rule::of(Every::Auto, ranks).mtbf.as_secs();
        assert_eq!(mtbf(1), 86_400);
        assert_eq!(mtbf(16_384), 5 * 365 * 86_400 / 16_384);
        assert_eq!(mtbf(0), 86_400);
    }

    #[test]
    fn what_was_measured_counts_by_half_with_each_new_checkpoint() {
        let one = Costs { blocked: 1.0, commit: 4.0 };
        let two = Costs::and(Some(one), Costs { blocked: 3.0, commit: 0.0 });
        assert_eq!(Costs::and(None, one), one);
        assert_eq!(two, Costs { blocked: 2.0, commit: 2.0 });
        assert_eq!(one.max(two), Costs { blocked: 2.0, commit: 4.0 });
    }
}
