//! The order in which checkpoints were saved, by which old ones go, and the number under which one
//! is saved. Pure.
//!
//! Versions say nothing of it: a program may go back to an early one, or save them all once more.

use std::collections::BTreeMap;

use unspool_restart::Run;

/// What orders checkpoints of a name by age: those of earlier runs come before those of this one.
pub(crate) type Age = (u128, u64);

/// The saves of a run.
#[derive(Debug)]
pub(crate) struct Order {
    run: Run,
    /// How many were saved before, by step and number of the run.
    saved: BTreeMap<(u64, Run), u64>,
}

impl Order {
    /// That of a run that has saved nothing yet.
    pub(crate) fn of(run: Run) -> Order {
        Order { run, saved: BTreeMap::new() }
    }

    /// The number of the run under which `step` is saved now. Saved once more it has another one,
    /// so that parts of both are not taken for one checkpoint.
    pub(crate) fn save(&mut self, step: u64) -> Run {
        let next = self.saved.len() as u64;
        let times = self.saved.range((step, Run(0))..=(step, Run(u128::MAX))).count();
        let run = Run(self.run.0 + times as u128);
        self.saved.insert((step, run), next);
        run
    }

    /// The age of what has this step and number. What another rank has saved in this run, and this
    /// one has not yet, is the newest of all.
    pub(crate) fn age(&self, step: u64, run: Run) -> Age {
        match self.saved.get(&(step, run)) {
            Some(before) => (u128::MAX, *before),
            None if run >= self.run => (u128::MAX, u64::MAX),
            None => (run.0, step),
        }
    }
}

/// The age of the oldest that stays when the newest `keep` of these stay; `None` when all do, also
/// for 0.
pub(crate) fn oldest_kept(ages: impl IntoIterator<Item = Age>, keep: usize) -> Option<Age> {
    let mut ages: Vec<Age> = ages.into_iter().collect();
    ages.sort_unstable();
    ages.len().checked_sub(keep).filter(|_| keep > 0).map(|oldest| ages[oldest])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_later_is_newer_whatever_its_version() {
        let mut order = Order::of(Run(70));
        let runs: Vec<Run> = [5, 3, 5].map(|step| order.save(step)).into();
        assert_eq!(runs, [Run(70), Run(70), Run(71)]);
        let ages = [order.age(900, Run(69)), order.age(5, runs[0]), order.age(3, runs[1])];
        assert!(ages.is_sorted(), "{ages:?}");
        assert!(order.age(5, runs[2]) > ages[2]);
        assert!(order.age(4, Run(70)) > order.age(5, runs[2]), "another rank is ahead");
        assert!(order.age(1, Run(69)) < order.age(2, Run(69)));
    }

    #[test]
    fn as_many_stay_as_are_kept() {
        let ages = [(1, 200), (2, 110), (1, 300)];
        assert_eq!(oldest_kept(ages, 1), Some((2, 110)));
        assert_eq!(oldest_kept(ages, 2), Some((1, 300)));
        assert_eq!(oldest_kept(ages, 3), Some((1, 200)));
        assert_eq!((oldest_kept(ages, 0), oldest_kept(ages, 4)), (None, None));
    }
}
