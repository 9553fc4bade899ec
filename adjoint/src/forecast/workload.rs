//! What a process does where no schedule says so: histories in any order, and commits.

use alloc::vec;
use alloc::vec::Vec;

use crate::Counts;
use crate::forecast::plan::{ForecastPlan, Operation};
use crate::forecast::{ForecastError, MAX_ACTIONS};

/// What one process does.
#[derive(Clone, PartialEq, Debug)]
pub enum Workload {
    /// Saves a checkpoint after each step, then restores all of them, with a step after each.
    /// Prefetching begins after the last save.
    Shot {
        /// The bytes of each checkpoint.
        sizes: Vec<u64>,
        /// The checkpoints in the order in which they are restored, each once.
        order: Vec<u64>,
    },
    /// Saves a checkpoint after each step, and in the end waits until all are in the slowest tier.
    Commits {
        /// The bytes of each checkpoint.
        sizes: Vec<u64>,
    },
}

impl Workload {
    fn sizes(&self) -> &[u64] {
        match self {
            Workload::Shot { sizes, .. } | Workload::Commits { sizes } => sizes,
        }
    }

    /// Bytes of all checkpoints.
    pub fn bytes(&self) -> u64 {
        self.sizes().iter().fold(0, |sum, size| sum.saturating_add(*size))
    }

    fn check(&self) -> Result<(), ForecastError> {
        let count = self.sizes().len();
        if count == 0 || count > MAX_ACTIONS / 8 {
            return Err(ForecastError::Job(
                "a process saves one checkpoint or more, below 131,072",
            ));
        }
        let Workload::Shot { order, .. } = self else { return Ok(()) };
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..count as u64) {
            return Err(ForecastError::Job("a shot restores each of its checkpoints once"));
        }
        Ok(())
    }

    /// Its operations; processes that are coupled meet before each step.
    pub(super) fn plan(&self, is_coupled: bool) -> Result<ForecastPlan, ForecastError> {
        self.check()?;
        let mut operations = vec![Operation::Prefetch { starts: false }];
        let mut restores = Vec::new();
        let meet = is_coupled.then_some(Operation::Meet);
        for step in 0..self.sizes().len() as u64 {
            operations.extend(meet);
            operations.push(Operation::Advance { steps: 1 });
            operations.push(Operation::Save { step, for_reverse: false, tier: None });
        }
        match self {
            Workload::Shot { order, .. } => {
                operations.push(Operation::Prefetch { starts: true });
                for step in order {
                    operations.extend(meet);
                    restores.push(operations.len());
                    operations.push(Operation::Restore { step: *step, last: true });
                    operations.push(Operation::Reverse);
                }
            }
            Workload::Commits { .. } => operations.push(Operation::Flush),
        }
        let count = self.sizes().len() as u64;
        let counts = Counts { saves: count, restores: restores.len() as u64, ..Counts::default() };
        let peak = [count, 0];
        let sizes = self.sizes().to_vec();
        Ok(ForecastPlan { operations, restores, counts, known_from: 0, peak, sizes })
    }
}
