//! Several processes in one virtual time: each has a core and links of its own, and some of these
//! links share something, such as the link that two GPUs have to their host, the disk of a node, or
//! a file system.
//!
//! The model, beyond that of a forecast: what moves at a time through something that is shared
//! divides it by max-min fair shares, from each event to the next. A transfer keeps its share for
//! its latency as well, which is short beside it.

use alloc::vec;
use alloc::vec::Vec;

use crate::forecast::fair::{Demand, fair_rates};
use crate::forecast::run::{ForecastRun, seconds};
use crate::forecast::{Forecast, ForecastError, ForecastJob, ForecastPlan, Workload};
use unspool_core::{Nanos, TransferKind};

/// Something that the links of several processes go through.
#[derive(Clone, PartialEq, Debug)]
pub struct SharedLink {
    /// What it carries in a second, in all.
    pub bytes_per_second: f64,
    /// Who goes through it.
    pub users: Vec<LinkUser>,
}

/// One direction of one link of one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkUser {
    /// The number of the process.
    pub process: usize,
    /// The link, counted from the fastest.
    pub link: usize,
    /// Its direction.
    pub way: TransferKind,
}

/// Processes with the same spool and the same machine each.
#[derive(Clone, PartialEq, Debug)]
pub struct TogetherJob {
    /// The spool, the speeds and the steps of a process; its checkpoints are those of the workload.
    pub job: ForecastJob,
    /// What each process does.
    pub workloads: Vec<Workload>,
    /// What they share.
    pub shared: Vec<SharedLink>,
    /// Whether all wait for each other before every step.
    pub is_coupled: bool,
}

/// What is forecast of processes that share links.
#[derive(Clone, PartialEq, Debug)]
pub struct Together {
    /// One for each process.
    pub processes: Vec<ProcessForecast>,
    /// One for each thing that is shared.
    pub shared: Vec<SharedUse>,
}

/// What is forecast of one process.
#[derive(Clone, PartialEq, Debug)]
pub struct ProcessForecast {
    /// Its times. `seconds` is the sum of the four after it, of the meetings and the flush.
    pub forecast: Forecast,
    /// Bytes of its checkpoints.
    pub bytes: u64,
    /// The time for which it was blocked in saves: stalls and copies.
    pub save_seconds: f64,
    /// The same in restores.
    pub restore_seconds: f64,
    /// Waits for the other processes.
    pub meeting_seconds: f64,
    /// The wait at the end of commits until everything is in the slowest tier.
    pub flush_seconds: f64,
}

/// What went through something that is shared.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SharedUse {
    /// Bytes.
    pub bytes: f64,
    /// The most bytes a second.
    pub most: f64,
}

/// Predicts what each process takes while all run.
///
/// # Errors
/// Those of [`forecast`](crate::forecast::forecast), and when the job names processes or links that
/// are not there.
pub fn forecast_together(asked: &TogetherJob) -> Result<Together, ForecastError> {
    asked.check()?;
    let plan = |workload: &Workload| workload.plan(asked.is_coupled);
    let plans = asked.workloads.iter().map(plan).collect::<Result<Vec<_>, _>>()?;
    let (runs, shared) = run_together(&asked.job, &plans, &asked.shared)?;
    let processes = runs.iter().zip(&asked.workloads).map(|(run, workload)| {
        let spent = run.spent();
        ProcessForecast {
            forecast: run.result(),
            bytes: workload.bytes(),
            save_seconds: seconds(spent.save_stall.plus(spent.save_copies)),
            restore_seconds: seconds(spent.restore_stall.plus(spent.restore_copies)),
            meeting_seconds: seconds(spent.meetings),
            flush_seconds: seconds(spent.flush),
        }
    });
    Ok(Together { processes: processes.collect(), shared })
}

impl TogetherJob {
    fn check(&self) -> Result<(), ForecastError> {
        self.job.check()?;
        if self.workloads.is_empty() {
            return Err(ForecastError::Job("there is a process or more"));
        }
        let (processes, links) = (self.workloads.len(), self.job.links.len());
        for one in &self.shared {
            if !(one.bytes_per_second.is_finite() && one.bytes_per_second > 0.0) {
                return Err(ForecastError::Job("what is shared has a finite rate above zero"));
            }
            if one.users.iter().any(|user| user.process >= processes || user.link >= links) {
                return Err(ForecastError::Job(
                    "what is shared names processes and links there are",
                ));
            }
        }
        Ok(())
    }
}

/// Runs a plan for each process, from the first operation to the last of all.
pub(super) fn run_together<'a>(
    job: &'a ForecastJob,
    plans: &'a [ForecastPlan],
    shared: &[SharedLink],
) -> Result<(Vec<ForecastRun<'a>>, Vec<SharedUse>), ForecastError> {
    let runs = plans.iter().map(|plan| ForecastRun::new(job, plan));
    let mut runs = runs.collect::<Result<Vec<_>, _>>()?;
    let mut shares = Shares::new(shared, plans.len(), job.links.len());
    while !runs.iter().all(ForecastRun::has_ended) {
        let Some(now) = runs.iter().filter_map(ForecastRun::next_time).min() else {
            let waits = runs.iter().find(|run| !run.has_ended() && !run.meets());
            return Err(waits.map_or(ForecastError::Stuck { step: 0 }, ForecastRun::stuck));
        };
        for run in runs.iter_mut().filter(|run| run.next_time() == Some(now)) {
            run.advance(now)?;
        }
        meet(&mut runs, now)?;
        shares.spread(&mut runs, now);
    }
    Ok((runs, shares.used))
}

/// Lets all go on when nobody is on the way any more.
fn meet(runs: &mut [ForecastRun<'_>], now: Nanos) -> Result<(), ForecastError> {
    let mut there = 0;
    for run in &*runs {
        if run.meets() {
            there += 1;
        } else if !run.has_ended() {
            return Ok(());
        }
    }
    debug_assert!(there <= runs.len(), "each is there once");
    runs.iter_mut().filter(|run| run.meets()).try_for_each(|run| run.met(now))
}

/// What is shared, and how it is divided now.
struct Shares {
    capacities: Vec<f64>,
    /// The numbers of what is shared, by process, link and direction.
    through: Vec<Vec<[Vec<usize>; 2]>>,
    /// Bytes a second through each since the last event.
    load: Vec<f64>,
    since: Nanos,
    used: Vec<SharedUse>,
}

impl Shares {
    fn new(shared: &[SharedLink], processes: usize, links: usize) -> Shares {
        let mut through = vec![vec![[Vec::new(), Vec::new()]; links]; processes];
        for (number, one) in shared.iter().enumerate() {
            for user in &one.users {
                let way = usize::from(user.way == TransferKind::Prefetch);
                through[user.process][user.link][way].push(number);
            }
        }
        Shares {
            capacities: shared.iter().map(|one| one.bytes_per_second).collect(),
            through,
            load: vec![0.0; shared.len()],
            since: Nanos(0),
            used: vec![SharedUse { bytes: 0.0, most: 0.0 }; shared.len()],
        }
    }

    /// Gives everything that moves its share from `now` on.
    fn spread(&mut self, runs: &mut [ForecastRun<'_>], now: Nanos) {
        if self.capacities.is_empty() {
            return;
        }
        self.count_until(now);
        let mut flows = Vec::new();
        let mut demands = Vec::new();
        for (process, run) in runs.iter().enumerate() {
            for flow in run.flows() {
                let (link, way) = flow.lane;
                let ways = self.through[process][link..flow.last].iter().map(|pair| &pair[way]);
                demands
                    .push(Demand { most: flow.rate, through: ways.flatten().copied().collect() });
                flows.push((process, flow.lane));
            }
        }
        self.load.fill(0.0);
        let rates = fair_rates(&demands, &self.capacities);
        for (((process, lane), demand), rate) in flows.into_iter().zip(&demands).zip(rates) {
            runs[process].share(lane, (rate / demand.most).min(1.0), now);
            demand.through.iter().for_each(|link| self.load[*link] += rate);
        }
        for (used, load) in self.used.iter_mut().zip(&self.load) {
            used.most = used.most.max(*load);
        }
    }

    fn count_until(&mut self, now: Nanos) {
        let passed = seconds(now.since(self.since));
        for (used, load) in self.used.iter_mut().zip(&self.load) {
            used.bytes += load * passed;
        }
        self.since = now;
    }
}
