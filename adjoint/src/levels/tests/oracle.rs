//! The cheapest schedule, by a search over everything that the actions allow.
//!
//! Dijkstra's algorithm over what is left to reverse, the working state, and the sets of copies at
//! each level: any state may be saved at any level at any time, in the place of any other.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::vec::Vec;

use crate::Level;

/// Steps that are left, the working state's step if it is of use, and the copies as bits.
type State = (u32, Option<u32>, [u32; 3]);

struct Search<'a> {
    levels: &'a [Level],
    costs: HashMap<State, f64>,
    /// Costs are not negative, so their bits are ordered as they are.
    open: BinaryHeap<Reverse<(u64, State)>>,
}

/// What the cheapest schedule for so many steps of `step_seconds` costs.
pub fn cheapest(steps: u32, levels: &[Level], step_seconds: f64) -> f64 {
    let (costs, open) = (HashMap::new(), BinaryHeap::new());
    let mut search = Search { levels, costs, open };
    search.reach((steps, Some(0), [0; 3]), 0.0);
    while let Some(Reverse((bits, state))) = search.open.pop() {
        let cost = f64::from_bits(bits);
        if cost > search.costs[&state] {
            continue;
        }
        if state.0 == 0 {
            return cost;
        }
        search.leave(state, cost, step_seconds);
    }
    f64::INFINITY
}

impl Search<'_> {
    fn reach(&mut self, state: State, cost: f64) {
        let known = self.costs.entry(state).or_insert(f64::INFINITY);
        if cost < *known {
            *known = cost;
            self.open.push(Reverse((cost.to_bits(), state)));
        }
    }

    fn leave(&mut self, (left, working, copies): State, cost: f64, step_seconds: f64) {
        if working == Some(left - 1) {
            let useful = copies.map(|set| set & ((1 << (left - 1)) - 1));
            self.reach((left - 1, None, useful), cost);
            return;
        }
        if let Some(at) = working {
            self.reach((left, Some(at + 1), copies), cost + step_seconds);
            for level in 0..self.levels.len() {
                self.save((left, working, copies), at, level, cost);
            }
        }
        for (level, set) in copies.iter().enumerate() {
            for step in (0..32).filter(|step| set & (1 << step) != 0) {
                let read = self.levels[level].read_seconds;
                self.reach((left, Some(step), copies), cost + read);
            }
        }
    }

    fn save(&mut self, (left, working, copies): State, at: u32, level: usize, cost: f64) {
        let (set, cost) = (copies[level], cost + self.levels[level].write_seconds);
        let full = u64::from(set.count_ones()) >= self.levels[level].slots;
        let given_up: Vec<u32> = match full {
            true => (0..32).map(|step| set & (1 << step)).filter(|one| *one != 0).collect(),
            false => [0].to_vec(),
        };
        for one in given_up {
            let mut copies = copies;
            copies[level] = set & !one | 1 << at;
            self.reach((left, working, copies), cost);
        }
    }
}
