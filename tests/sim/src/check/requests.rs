//! Calls: each is answered once, unless it was withdrawn before.

use std::collections::BTreeMap;

use unspool_core::{CheckpointId, RequestId, Size, TierId, Version};

use super::{Rule, Violation};

/// What was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Room for so many bytes.
    Save {
        /// The name of the checkpoint.
        version: Version,
        /// Its payload.
        bytes: u64,
        /// Whether it has so many bytes, or at most so many.
        size: Size,
    },
    /// The bytes of a version.
    Restore {
        /// The name of the checkpoint.
        version: Version,
    },
    /// That every checkpoint before this id is in its last tier.
    Flush {
        /// The id above those of all checkpoints at the time of the call.
        before: CheckpointId,
    },
}

/// How far a call has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It waits for its answer.
    Waiting,
    /// A save or restore works on a checkpoint in a tier.
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
    /// A call is made.
    pub fn open(&mut self, request: RequestId, call: Call) {
        let old = self.calls.insert(request, (call, Progress::Waiting));
        assert!(old.is_none(), "the executor numbers its calls");
    }

    /// A call is answered; it must be waiting.
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

    /// A call is withdrawn: it is over if it was waiting.
    pub fn withdraw(&mut self, request: RequestId) {
        if let Some((_, progress @ Progress::Waiting)) = self.calls.get_mut(&request) {
            *progress = Progress::Over;
        }
    }

    /// A granted save or served restore reports back: what it worked on.
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

    /// The checkpoint that a granted or served call works on.
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

    /// Calls that were granted or served and have not reported back.
    pub fn is_any_open(&self) -> bool {
        self.calls.values().any(|(_, progress)| matches!(progress, Progress::Open(..)))
    }

    /// Whether a save of `version` waits for room.
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
