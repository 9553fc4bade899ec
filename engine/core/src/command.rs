//! What the core wants done: its only output.

use crate::event::Failure;
use crate::types::{CheckpointId, Place, RequestId, TierId, TierKind, TransferId, Version};

/// One thing to do. Commands are given in the order in which they must start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Answer to `Save`: write the bytes to `place`, then report `Saved` or `SaveAborted`.
    Grant {
        /// The call that waited.
        request: RequestId,
        /// The new checkpoint.
        checkpoint: CheckpointId,
        /// Where its bytes go; in an arena `[offset, offset + bytes)` belongs to the caller.
        place: Place,
    },
    /// Answer to `Restore`: read the bytes at `place`, then report `Restored` or `RestoreAborted`.
    /// The bytes stay as they are until that report.
    Serve {
        /// The call that waited.
        request: RequestId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Where its bytes are.
        place: Place,
    },
    /// Answer to `Flush`: every checkpoint is in the slowest tier that can hold it.
    FlushDone {
        /// The call that waited.
        request: RequestId,
    },
    /// Answer to `Save`, `Restore` or `Flush`: it cannot be done.
    Refuse {
        /// The call that waited.
        request: RequestId,
        /// Why.
        refusal: Refusal,
    },
    /// Move a copy of a checkpoint; report `TransferDone`, `TransferFailed` or
    /// `TransferCancelled`, exactly one of them, exactly once.
    Transfer {
        /// The name of this movement.
        transfer: TransferId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Its name for people.
        version: Version,
        /// Bytes of the payload.
        bytes: u64,
        /// Towards a slower tier (flush) or a faster one (prefetch).
        kind: TransferKind,
        /// Where the bytes are; they stay as they are until the report.
        from: Place,
        /// Where they go; nothing else uses that room until the report.
        to: Place,
    },
    /// The result of this transfer is no longer wanted: drop it if it has not begun, abort it if
    /// that is cheap. The report follows all the same.
    Cancel {
        /// The transfer.
        transfer: TransferId,
    },
    /// Remove a frame from a store; report `Deleted`.
    Delete {
        /// The checkpoint whose frame it is.
        checkpoint: CheckpointId,
        /// The store.
        tier: TierId,
    },
    /// A copy in an arena is gone: its room may be overwritten by a later command.
    /// No report follows; arenas use it to forget the entry.
    Evict {
        /// The checkpoint whose copy it was.
        checkpoint: CheckpointId,
        /// Where it was.
        place: Place,
    },
}

/// The direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TransferKind {
    /// To a slower tier.
    Flush,
    /// To a faster tier.
    Prefetch,
}

/// Why a call cannot be served. The spool turns it into an error that a person can act on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The version is already saved.
    Duplicate,
    /// The version was never saved.
    Unknown,
    /// The version was saved and then discarded.
    Discarded,
    /// The version is being saved by another call that has not finished.
    NotYetSaved,
    /// The checkpoint is larger than every tier.
    TooLarge {
        /// The capacity of the largest tier, in bytes.
        largest: u64,
    },
    /// No room can be made in any tier.
    Full {
        /// The tier that stops everything: the slowest one that is full or failing.
        tier: TierKind,
        /// Its capacity in bytes.
        capacity: u64,
        /// Its bytes in use.
        used: u64,
        /// The last failure of a transfer into that tier, when that is the cause.
        failure: Option<Failure>,
    },
    /// The last copy of this checkpoint is lost.
    Lost {
        /// What happened to it.
        failure: Failure,
    },
    /// A flush cannot finish because this checkpoint cannot reach its tier.
    FlushFailed {
        /// The checkpoint that is stuck.
        version: Version,
        /// The tier it cannot reach.
        tier: TierKind,
        /// Why.
        failure: Failure,
    },
}
