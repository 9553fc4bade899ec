//! Checkpointing with recomputation in the manner of Revolve (Griewank and Walther, 2000): a few
//! states are kept, each is restored several times, and discarded versions are saved again. The
//! splits are not optimal, but the pattern of calls is realistic.

use unspool_core::Version;

use super::sizes::Sizes;
use crate::plan::script::Step;
use crate::random::Random;

/// The steps of the application, with or without hints.
pub(super) fn steps(random: &mut Random, sizes: &Sizes, base: i64) -> Vec<Step> {
    let length = random.magnitude(3.0, 50.0) as i64;
    let states = random.range(1, 5) as u32;
    let mut pass = Pass { random, sizes, base, steps: Vec::new() };
    pass.save(0);
    pass.reverse(0, length, states);
    pass.discard(0);
    let steps = pass.steps;
    if random.chance(0.6) { with_hints(steps) } else { steps }
}

fn with_hints(steps: Vec<Step>) -> Vec<Step> {
    let hint = |step: &Step| match step {
        Step::Restore { version, .. } => Some(Step::Expect(*version)),
        _ => None,
    };
    let hints: Vec<Step> = steps.iter().filter_map(hint).collect();
    [hints, steps].concat()
}

struct Pass<'a> {
    random: &'a mut Random,
    sizes: &'a Sizes,
    base: i64,
    steps: Vec<Step>,
}

impl Pass<'_> {
    /// Reverses the time steps `first..end`; the state at `first` is saved.
    fn reverse(&mut self, first: i64, end: i64, states: u32) {
        if end - first <= 1 || states == 0 {
            for _ in first..end {
                self.steps.push(Step::restore(self.base + first));
            }
            return;
        }
        let middle = first + 1 + self.random.below((end - first - 1) as u64) as i64;
        self.steps.push(Step::restore(self.base + first));
        self.save(middle);
        self.reverse(middle, end, states - 1);
        self.discard(middle);
        self.reverse(first, middle, states);
    }

    fn save(&mut self, version: i64) {
        self.steps.push(Step::save(self.base + version, self.sizes.draw(self.random)));
    }

    fn discard(&mut self, version: i64) {
        self.steps.push(Step::Discard(Version(self.base + version)));
    }
}
