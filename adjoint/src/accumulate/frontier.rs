//! States of which none is as early as another one in both times.

use alloc::vec::Vec;

use super::timeline::Times;

/// A state after some checkpoints, and the last decision or group that led to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PartialPlan {
    pub times: Times,
    /// How many checkpoints the last decision or group took.
    pub count: u32,
    /// The state before that, by its place among the states there.
    pub from: u32,
    /// The last decision was [`CheckpointDecision::Raw`](super::CheckpointDecision::Raw).
    pub raw: bool,
}

/// Which states to keep when there are too many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Thinning {
    /// Keeps in each cell the state that leaves the link free first, so that results can be
    /// reached.
    Keep,
    /// Keeps in each cell the earliest of both times, so that results are lower bounds.
    Corner,
}

#[derive(Default)]
pub(super) struct Frontier {
    states: Vec<PartialPlan>,
    /// The number of states at which the dominated ones are dropped.
    limit: usize,
}

/// States that are collected before the dominated ones are dropped for the first time.
const FIRST: usize = 64;

impl Frontier {
    pub fn push(&mut self, state: PartialPlan) {
        self.states.push(state);
        if self.states.len() >= self.limit.max(FIRST) {
            self.prune();
            self.limit = 2 * self.states.len();
        }
    }

    /// Drops the dominated states and sorts the others by ascending `app` and descending `link`.
    fn prune(&mut self) {
        self.states.sort_unstable_by_key(|state| (state.times.app, state.times.link));
        let mut best = u64::MAX;
        self.states.retain(|state| {
            let earlier = state.times.link < best;
            best = best.min(state.times.link);
            earlier
        });
    }

    /// The states, at most `most` of them, and whether some were dropped for that.
    pub fn finish(mut self, most: usize, thinning: Thinning) -> (Vec<PartialPlan>, bool) {
        self.prune();
        if self.states.len() <= most {
            return (self.states, false);
        }
        (thinned(&self.states, most, thinning), true)
    }
}

/// One state for each of `most` cells of equal width in `app`.
fn thinned(states: &[PartialPlan], most: usize, thinning: Thinning) -> Vec<PartialPlan> {
    let (first, last) = (states[0].times.app, states[states.len() - 1].times.app);
    let width = ((last - first) / most as u64 + 1).max(1);
    let cell = |state: &PartialPlan| (state.times.app - first) / width;
    let mut kept = Vec::with_capacity(most);
    for group in states.chunk_by(|one, next| cell(one) == cell(next)) {
        // The last one of a cell has its earliest link, the first one its earliest application.
        let mut one = group[group.len() - 1];
        if thinning == Thinning::Corner {
            one.times.app = group[0].times.app;
        }
        kept.push(one);
    }
    kept
}
