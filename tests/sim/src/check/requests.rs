//! Calls: each is answered once, unless it was withdrawn.

use std::collections::BTreeMap;

use unspool_core::{CheckpointId, RequestId, Size, TierId, Version};

use super::{Rule, Violation};

/// A call of the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Space for a new checkpoint.
    Save {
        /// The version of the checkpoint.
        version: Version,
        /// Size of its payload.
        bytes: u64,
        /// Whether `bytes` is exact or a maximum.
        size: Size,
    },
    /// The bytes of a version.
    Restore {
        /// The version of the checkpoint.
        version: Version,
    },
    /// All checkpoints before an id in their last tier.
    Flush {
        /// The smallest id that was not in use at the time of the call.
        before: CheckpointId,
    },
}

/// The state of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It waits for its answer.
    Waiting,
    /// A save or restore uses a checkpoint in a tier.
    Open(CheckpointId, TierId),
    /// It is over.
    Over,
}

/// All calls of a life.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    calls: BTreeMap<RequestId, (Call, Progress)>,
}

impl Requests {
    /// Enters a new call.
    pub fn open(&mut self, request: RequestId, call: Call) {
        let old = self.calls.insert(request, (call, Progress::Waiting));
        assert!(old.is_none(), "the executor numbers its calls");
    }

    /// Enters an answer; the call must be waiting.
    pub fn answer(&mut self, request: RequestId, next: Progress) -> Result<Call, Violation> {
        match self.calls.get_mut(&request) {
            Some((call, progress @ Progress::Waiting)) => {
                *progress = next;
                Ok(*call)
            }
            other => {
                let what = format!("{request:?} is answered and is {other:?}");
                Err(Violation::new(Rule::Answer, what))
            }
        }
    }

    /// Enters a withdrawal: the call is over if it was waiting.
    pub fn withdraw(&mut self, request: RequestId) {
        if let Some((_, progress @ Progress::Waiting)) = self.calls.get_mut(&request) {
            *progress = Progress::Over;
        }
    }

    /// Ends a granted save or served restore, and returns what it used.
    pub fn close(&mut self, request: RequestId) -> Option<(CheckpointId, TierId)> {
        match self.calls.get_mut(&request) {
            Some((_, progress @ Progress::Open(..))) => {
                let Progress::Open(id, tier) = *progress else { return None };
                *progress = Progress::Over;
                Some((id, tier))
            }
            _ => None,
        }
    }

    /// The checkpoint that a granted or served call uses.
    #[must_use]
    pub fn works_on(&self, request: RequestId) -> Option<CheckpointId> {
        match self.calls.get(&request) {
            Some((_, Progress::Open(id, _))) => Some(*id),
            _ => None,
        }
    }

    /// Calls that wait for an answer.
    pub fn waiting(&self) -> impl Iterator<Item = (RequestId, Call)> + '_ {
        let waiting = self.calls.iter().filter(|(_, (_, p))| *p == Progress::Waiting);
        waiting.map(|(request, (call, _))| (*request, *call))
    }

    /// Whether a granted or served call has not ended.
    pub fn is_any_open(&self) -> bool {
        self.calls.values().any(|(_, progress)| matches!(progress, Progress::Open(..)))
    }

    /// Whether a save of `version` waits for space.
    #[must_use]
    pub fn is_saving(&self, version: Version) -> bool {
        self.waiting().any(|(_, c)| matches!(c, Call::Save { version: v, .. } if v == version))
    }

    /// Whether a restore of `version` waits.
    #[must_use]
    pub fn is_restoring(&self, version: Version) -> bool {
        self.waiting().any(|(_, c)| c == Call::Restore { version })
    }
}
