//! States of which none is as early as another one in both times.

use alloc::vec::Vec;

use super::timeline::Times;

/// One way to have done the first checkpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct State {
    pub times: Times,
    /// How many checkpoints the last decision or group took.
    pub count: u32,
    /// The one it came from, by its place among the states before them.
    pub from: u32,
    /// The last decision was U.
    pub raw: bool,
}

/// What to keep of states that are too many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Thinning {
    /// In each cell the state that leaves the link free first: results can be reached.
    Keep,
    /// In each cell the earliest of both times: no state is later, so results are bounds.
    Corner,
}

#[derive(Default)]
pub(super) struct Frontier {
    states: Vec<State>,
    /// Pruned when there are so many.
    limit: usize,
}

/// States that are collected before the dominated ones are dropped for the first time.
const FIRST: usize = 64;

impl Frontier {
    pub fn push(&mut self, state: State) {
        self.states.push(state);
        if self.states.len() >= self.limit.max(FIRST) {
            self.prune();
            self.limit = 2 * self.states.len();
        }
    }

    /// Drops what is dominated: the rest is by ascending `app` and descending `link`.
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
    pub fn settle(mut self, most: usize, thinning: Thinning) -> (Vec<State>, bool) {
        self.prune();
        if self.states.len() <= most {
            return (self.states, false);
        }
        (thinned(&self.states, most, thinning), true)
    }
}

/// One state for each of `most` cells of equal width in `app`.
fn thinned(states: &[State], most: usize, thinning: Thinning) -> Vec<State> {
    let (first, last) = (states[0].times.app, states[states.len() - 1].times.app);
    let width = ((last - first) / most as u64 + 1).max(1);
    let cell = |state: &State| (state.times.app - first) / width;
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
