//! The dynamic program.

use alloc::vec;
use alloc::vec::Vec;

use super::follow::end_of;
use super::frontier::{Frontier, PartialPlan, Thinning};
use super::timeline::{BatchTimes, Times, batch, nanos, pack, raw};
use super::{CheckpointDecision, End, Mistake, Problem, RunTimes, Simple, follow};
use crate::forecast::Rate;
use unspool_core::Nanos;

/// The work that a search may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// States that are kept after each checkpoint, at most; at least one is.
    pub states: usize,
}

/// States that are tried with every group, over the whole search: about a second of work.
const WORK: u64 = 16_000_000;

impl Effort {
    /// About a second of work: as many states as that allows, from 8 to 4096.
    #[must_use]
    pub fn for_problem(problem: &Problem) -> Effort {
        let count = problem.checkpoints.len() as u64;
        let bytes: u64 = problem.checkpoints.iter().map(|one| one.raw).sum();
        let held = problem.cache / (bytes / count.max(1)).max(1);
        let group = held.min(u64::from(problem.most_together)).clamp(1, count.max(1));
        let states = (WORK / (count.max(1) * group)).clamp(8, 4096);
        Effort { states: states as usize }
    }
}

/// The best schedule that was found.
#[derive(Clone, PartialEq, Debug)]
pub struct AccumulatePlan {
    /// A decision for each checkpoint.
    pub decisions: Vec<CheckpointDecision>,
    /// The cost of the decisions.
    pub outcome: RunTimes,
    /// No schedule ends before this: the end of the plan itself where it is proven to be optimal.
    pub at_least: Nanos,
}

/// The schedule with the smallest share of blocked time, and thus the earliest end.
///
/// It is never worse than any of the [`Simple`] ones, and optimal if no more than
/// [`Effort::states`] were needed: then [`AccumulatePlan::at_least`] is its own end.
///
/// # Errors
/// The [`Mistake`] in the problem.
pub fn plan(problem: &Problem, effort: Effort) -> Result<AccumulatePlan, Mistake> {
    problem.check()?;
    let (simple, known) = best_simple(problem)?;
    let states = effort.states.max(1);
    let mut search = Search::new(problem, known.end.0, states, Thinning::Keep);
    let found = search.run();
    let mut plan = AccumulatePlan { decisions: simple, outcome: known, at_least: known.end };
    if let Some(decisions) = found {
        let outcome = follow(problem, &decisions)?;
        if outcome.end < plan.outcome.end {
            plan = AccumulatePlan { decisions, outcome, at_least: outcome.end };
        }
    }
    if search.thinned {
        let mut bounds = Search::new(problem, plan.outcome.end.0, states, Thinning::Corner);
        bounds.run();
        plan.at_least = Nanos(bounds.earliest.min(plan.outcome.end.0));
    }
    Ok(plan)
}

/// The best of the simple schedules, which the search has to beat.
fn best_simple(problem: &Problem) -> Result<(Vec<CheckpointDecision>, RunTimes), Mistake> {
    let raw = Simple::Raw.decisions(problem);
    let outcome = follow(problem, &raw)?;
    let mut best = (raw, outcome);
    for simple in [Simple::Alone, Simple::Full, Simple::Pays] {
        let decisions = simple.decisions(problem);
        let outcome = follow(problem, &decisions)?;
        if outcome.end < best.1.end {
            best = (decisions, outcome);
        }
    }
    Ok(best)
}

/// The last step to a state, from which the decisions are read at the end.
#[derive(Clone, Copy)]
struct Step {
    from: u32,
    count: u32,
    raw: bool,
}

struct Search<'a> {
    problem: &'a Problem,
    /// An end that can be reached: states that end later are dropped.
    known: u64,
    most: usize,
    thinning: Thinning,
    /// The least time of computing and of the link that remains from each checkpoint on.
    rest: Vec<Times>,
    /// The steps that lead to the states after so many checkpoints.
    steps: Vec<Vec<Step>>,
    open: Vec<Frontier>,
    thinned: bool,
    /// The earliest end that was found.
    earliest: u64,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, known: u64, most: usize, thinning: Thinning) -> Search<'a> {
        let count = problem.checkpoints.len();
        let mut open: Vec<Frontier> = Vec::with_capacity(count + 1);
        open.resize_with(count + 1, Frontier::default);
        Search {
            problem,
            known,
            most,
            thinning,
            rest: rest_of(problem),
            steps: Vec::with_capacity(count + 1),
            open,
            thinned: false,
            earliest: u64::MAX,
        }
    }

    /// The decisions that end earliest, if any end as early as `known`.
    fn run(&mut self) -> Option<Vec<CheckpointDecision>> {
        let start = PartialPlan { times: Times::default(), count: 0, from: 0, raw: false };
        self.open[0].push(start);
        let count = self.problem.checkpoints.len();
        for at in 0..count {
            let states = self.close(at);
            for (place, state) in states.iter().enumerate() {
                self.expand(at, place as u32, state.times);
            }
        }
        let last = self.close(count);
        let ends = last.iter().map(|state| end_of(self.problem, state.times));
        let (place, end) = ends.enumerate().min_by_key(|&(_, end)| end)?;
        self.earliest = end;
        Some(self.way_back(place))
    }

    fn close(&mut self, at: usize) -> Vec<PartialPlan> {
        let frontier = core::mem::take(&mut self.open[at]);
        let (states, thinned) = frontier.finish(self.most, self.thinning);
        self.thinned |= thinned;
        let step =
            |state: &PartialPlan| Step { from: state.from, count: state.count, raw: state.raw };
        self.steps.push(states.iter().map(step).collect());
        states
    }

    /// Tries every decision after `at` checkpoints.
    fn expand(&mut self, at: usize, from: u32, times: Times) {
        let problem = self.problem;
        let mut group = BatchTimes::at(times);
        for (number, one) in problem.checkpoints[at..].iter().enumerate() {
            let count = number as u32 + 1;
            if number == 0 {
                self.reach(
                    at,
                    raw(problem, group, one),
                    PartialPlan { times, count, from, raw: true },
                );
            }
            let packed = pack(problem, group, one);
            let fits = packed.is_some();
            self.reach(at, packed, PartialPlan { times, count, from, raw: false });
            if !fits || count >= problem.most_together {
                break;
            }
            let Some(more) = batch(problem, group, one) else { break };
            group = more;
            if self.too_late(at + number + 1, group.times) {
                break;
            }
        }
    }

    fn reach(&mut self, at: usize, to: Option<BatchTimes>, state: PartialPlan) {
        let Some(BatchTimes { times, .. }) = to else { return };
        let next = at + state.count as usize;
        if !self.too_late(next, times) {
            self.open[next].push(PartialPlan { times, ..state });
        }
    }

    /// Whether everything that follows from these times ends after `known`.
    fn too_late(&self, at: usize, times: Times) -> bool {
        let rest = self.rest[at];
        let app = times.app + rest.app;
        let link = match self.problem.end {
            End::Flushed => times.link + rest.link,
            End::Application => 0,
        };
        app.max(link) > self.known
    }

    fn way_back(&self, place: usize) -> Vec<CheckpointDecision> {
        let mut decisions = Vec::with_capacity(self.problem.checkpoints.len());
        let (mut at, mut place) = (self.problem.checkpoints.len(), place);
        while at > 0 {
            let step = self.steps[at][place];
            let last = match (step.raw, step.count) {
                (true, _) => CheckpointDecision::Raw,
                (false, 1) => CheckpointDecision::Alone,
                (false, _) => CheckpointDecision::Together,
            };
            decisions.push(last);
            decisions.extend(vec![CheckpointDecision::Hold; step.count as usize - 1]);
            at -= step.count as usize;
            place = step.from as usize;
        }
        decisions.reverse();
        decisions
    }
}

/// The least time that remains from each checkpoint on: all intervals, and the smaller form of each
/// checkpoint on the link, without latencies, since a group has only one.
fn rest_of(problem: &Problem) -> Vec<Times> {
    let count = problem.checkpoints.len();
    let wire = Rate { latency: Nanos(0), ..problem.link };
    let mut rest = vec![Times::default(); count + 1];
    let mut bytes = 0;
    for (at, one) in problem.checkpoints.iter().enumerate().rev() {
        bytes += one.raw.min(one.packed);
        // One less, for times are rounded transfer by transfer.
        let least = nanos(&wire, bytes).saturating_sub((count - at) as u64);
        rest[at] = Times { app: rest[at + 1].app + one.interval.0, link: least };
    }
    rest
}
