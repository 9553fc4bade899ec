//! The dynamic program.

use alloc::vec;
use alloc::vec::Vec;

use super::follow::end_of;
use super::frontier::{Frontier, State, Thinning};
use super::timeline::{Group, Times, hold, nanos, pack, raw};
use super::{Decision, End, Mistake, Outcome, Problem, Simple, follow};
use crate::forecast::Rate;
use unspool_core::Nanos;

/// How much work a search may be.
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
pub struct Plan {
    /// One for each checkpoint.
    pub decisions: Vec<Decision>,
    /// What it costs.
    pub outcome: Outcome,
    /// No schedule ends before this: the end of the plan itself where it is proven to be optimal.
    pub at_least: Nanos,
}

impl Plan {
    /// Whether no schedule is better.
    #[must_use]
    pub fn is_optimal(&self) -> bool {
        self.at_least >= self.outcome.end
    }
}

/// The schedule with the smallest share of blocked time, and thus the earliest end.
///
/// It is never worse than any of the [`Simple`] ones, and optimal if no more than
/// [`Effort::states`] were needed: see [`Plan::is_optimal`].
///
/// # Errors
/// The [`Mistake`] in the problem.
pub fn plan(problem: &Problem, effort: Effort) -> Result<Plan, Mistake> {
    problem.check()?;
    let (simple, known) = best_simple(problem)?;
    let states = effort.states.max(1);
    let mut search = Search::new(problem, known.end.0, states, Thinning::Keep);
    let found = search.run();
    let mut plan = Plan { decisions: simple, outcome: known, at_least: known.end };
    if let Some(decisions) = found {
        let outcome = follow(problem, &decisions)?;
        if outcome.end < plan.outcome.end {
            plan = Plan { decisions, outcome, at_least: outcome.end };
        }
    }
    if search.thinned {
        let mut bounds = Search::new(problem, plan.outcome.end.0, states, Thinning::Corner);
        bounds.run();
        plan.at_least = Nanos(bounds.earliest.min(plan.outcome.end.0));
    }
    Ok(plan)
}

/// The best of the simple schedules, as what the search has to beat.
fn best_simple(problem: &Problem) -> Result<(Vec<Decision>, Outcome), Mistake> {
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

/// How a state came to be, for the way back.
#[derive(Clone, Copy)]
struct Step {
    from: u32,
    count: u32,
    raw: bool,
}

struct Search<'a> {
    problem: &'a Problem,
    /// An end that can be reached: what ends later is of no interest.
    known: u64,
    most: usize,
    thinning: Thinning,
    /// The computing and the time of the link that remain at least, from each checkpoint on.
    rest: Vec<Times>,
    /// The steps that lead to the states after so many checkpoints.
    steps: Vec<Vec<Step>>,
    open: Vec<Frontier>,
    thinned: bool,
    /// The earliest end.
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

    /// The decisions of the earliest end, if one is as early as what is known.
    fn run(&mut self) -> Option<Vec<Decision>> {
        let start = State { times: Times::default(), count: 0, from: 0, raw: false };
        self.open[0].push(start);
        let count = self.problem.checkpoints.len();
        for at in 0..count {
            let states = self.settle(at);
            for (place, state) in states.iter().enumerate() {
                self.expand(at, place as u32, state.times);
            }
        }
        let last = self.settle(count);
        let ends = last.iter().map(|state| end_of(self.problem, state.times));
        let (place, end) = ends.enumerate().min_by_key(|&(_, end)| end)?;
        self.earliest = end;
        Some(self.way_back(place))
    }

    fn settle(&mut self, at: usize) -> Vec<State> {
        let frontier = core::mem::take(&mut self.open[at]);
        let (states, thinned) = frontier.settle(self.most, self.thinning);
        self.thinned |= thinned;
        let step = |state: &State| Step { from: state.from, count: state.count, raw: state.raw };
        self.steps.push(states.iter().map(step).collect());
        states
    }

    /// Everything that can be decided after `at` checkpoints.
    fn expand(&mut self, at: usize, from: u32, times: Times) {
        let problem = self.problem;
        let mut group = Group::at(times);
        for (number, one) in problem.checkpoints[at..].iter().enumerate() {
            let count = number as u32 + 1;
            if number == 0 {
                self.reach(at, raw(problem, group, one), State { times, count, from, raw: true });
            }
            let packed = pack(problem, group, one);
            let fits = packed.is_some();
            self.reach(at, packed, State { times, count, from, raw: false });
            if !fits || count >= problem.most_together {
                break;
            }
            let Some(more) = hold(problem, group, one) else { break };
            group = more;
            if self.too_late(at + number + 1, group.times) {
                break;
            }
        }
    }

    fn reach(&mut self, at: usize, to: Option<Group>, state: State) {
        let Some(Group { times, .. }) = to else { return };
        let next = at + state.count as usize;
        if !self.too_late(next, times) {
            self.open[next].push(State { times, ..state });
        }
    }

    /// Whether what is known ends before anything that goes on like this.
    fn too_late(&self, at: usize, times: Times) -> bool {
        let rest = self.rest[at];
        let app = times.app + rest.app;
        let link = match self.problem.end {
            End::Flushed => times.link + rest.link,
            End::Application => 0,
        };
        app.max(link) > self.known
    }

    fn way_back(&self, place: usize) -> Vec<Decision> {
        let mut decisions = Vec::with_capacity(self.problem.checkpoints.len());
        let (mut at, mut place) = (self.problem.checkpoints.len(), place);
        while at > 0 {
            let step = self.steps[at][place];
            let last = match (step.raw, step.count) {
                (true, _) => Decision::Raw,
                (false, 1) => Decision::Alone,
                (false, _) => Decision::Together,
            };
            decisions.push(last);
            decisions.extend(vec![Decision::Hold; step.count as usize - 1]);
            at -= step.count as usize;
            place = step.from as usize;
        }
        decisions.reverse();
        decisions
    }
}

/// What remains at least from each checkpoint on: all intervals, and the smaller form of each one
/// on the link, without its latency, since a group has only one.
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
