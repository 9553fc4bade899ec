//! How much memory there is to promise. An arena costs nothing until it is written, so a machine
//! that cannot hold it would only show that by killing the process, hours later: it is refused at
//! the start instead. Pinned arenas and these share one account, in `unspool_cuda`.

use unspool_core::{Failure, TierKind};
use unspool_cuda::MemoryLeft;

use crate::error::TierError;

/// The memory that an arena may come to need. Dropping it takes the promise back. The core fills
/// an arena from its start, so the bytes below the highest that was borrowed count as written.
#[derive(Debug)]
pub(super) struct ArenaPromise(unspool_cuda::MemoryPromise);

impl ArenaPromise {
    /// Promises `len` bytes.
    ///
    /// # Errors
    /// When the machine does not have them besides what is in use and promised.
    pub(super) fn make(kind: TierKind, len: u64) -> Result<ArenaPromise, TierError> {
        unspool_cuda::MemoryPromise::make(0..len)
            .map(ArenaPromise)
            .map_err(|left| refusal(kind, len, &left))
    }

    /// The bytes below `end` are about to be written.
    pub(super) fn kept_up_to(&self, end: u64) {
        self.0.kept_up_to(end);
    }
}

fn refusal(kind: TierKind, len: u64, left: &MemoryLeft) -> TierError {
    TierError::new(Failure::NoSpace, "reserve", format!("{kind} memory"), left.refusal(len))
        .with_progress(len, 0)
        .with_advice(left.advice(&kind.to_string()))
}

#[cfg(test)]
#[cfg(not(miri))]
#[path = "limit_tests.rs"]
mod tests;
