//! What happens to a spool: the only input of the core.

use crate::types::{CheckpointId, Nanos, RequestId, TierId, TransferId, Version};

/// Something that happened, in the application or in the background.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The application wants to save `bytes` bytes under `version`.
    /// Answered by [`Command::Grant`](crate::Command::Grant) or `Refuse`, now or after a wait.
    Save {
        /// The call that waits.
        request: RequestId,
        /// The name of the checkpoint.
        version: Version,
        /// Bytes of its payload; zero is allowed.
        bytes: u64,
        /// Whether `bytes` is its size, or the most that it can be.
        size: Size,
    },
    /// The call of a granted save is over for the application; what is left is done without it, and
    /// `Saved` or `SaveAborted` follows in any case. From now on the version exists: calls that
    /// want its bytes wait for that report instead of being refused.
    SaveInFlight {
        /// The call that was granted.
        request: RequestId,
    },
    /// The bytes of a granted save are in place.
    Saved {
        /// The call that was granted.
        request: RequestId,
        /// The part of its room that they take; `None`: `[offset, offset + bytes)` as granted.
        kept: Option<Kept>,
    },
    /// A granted save was given up (the copy failed): its room is free again, nothing was saved.
    SaveAborted {
        /// The call that was granted.
        request: RequestId,
    },
    /// The application wants to read `version`.
    /// Answered by [`Command::Serve`](crate::Command::Serve) or `Refuse`, now or after a wait.
    Restore {
        /// The call that waits.
        request: RequestId,
        /// The name of the checkpoint.
        version: Version,
    },
    /// The bytes of a served restore have been copied out.
    Restored {
        /// The call that was served.
        request: RequestId,
    },
    /// A served restore was given up or failed: the checkpoint counts as not restored.
    RestoreAborted {
        /// The call that was served.
        request: RequestId,
    },
    /// A call that waits (save, restore or flush) is withdrawn: its time was up, or it was
    /// interrupted. Ignored when it has already been answered with `Grant` or `Serve`; the caller
    /// then reports `SaveAborted` or `RestoreAborted` instead.
    Withdraw {
        /// The call that waits no longer.
        request: RequestId,
    },
    /// One more entry at the end of the restore order queue.
    Expect {
        /// The version that will be restored after all those expected before.
        version: Version,
    },
    /// As [`Event::Expect`], and the application will discard the version after that restore: until
    /// then its bytes need not go anywhere else. Advice as well: nothing is lost when the discard
    /// does not come.
    ExpectLast {
        /// The version that will be restored for the last time.
        version: Version,
    },
    /// As [`Event::ExpectLast`], and it is discarded here when that restore is done. Until the
    /// first restore nothing is prefetched if it is not saved yet: the forward pass needs the room.
    ExpectOnce {
        /// The version that goes after that restore.
        version: Version,
    },
    /// Forget the whole restore order queue.
    ForgetHints,
    /// Prefetching may start (the default).
    StartPrefetch,
    /// No prefetch is started until [`Event::StartPrefetch`].
    HoldPrefetch,
    /// A saved version should rest in that tier, or a slower one, until its hint is near: it is
    /// flushed there without delay, and from faster tiers it is evicted first. Ignored for versions
    /// that are not saved and for tiers that do not exist.
    Prefer {
        /// The name of the checkpoint.
        version: Version,
        /// The tier in which it should rest.
        tier: TierId,
    },
    /// The application will never read `version` again: free it in every tier.
    /// Unknown versions are ignored (the spool refuses them before).
    Discard {
        /// The name of the checkpoint.
        version: Version,
    },
    /// Bring every checkpoint to the slowest tier that can hold it.
    /// Answered by [`Command::FlushDone`](crate::Command::FlushDone) or `Refuse`.
    Flush {
        /// The call that waits.
        request: RequestId,
    },
    /// A transfer is complete: its bytes are in the target.
    TransferDone {
        /// The transfer that is reported.
        transfer: TransferId,
        /// How long the transfer itself took, without its time in a queue.
        took: Nanos,
    },
    /// A transfer failed; the target holds nothing of it, the source is as it was.
    TransferFailed {
        /// The transfer that is reported.
        transfer: TransferId,
        /// Why.
        failure: Failure,
    },
    /// A transfer was cancelled before it took effect; the target holds nothing of it.
    TransferCancelled {
        /// The transfer that is reported.
        transfer: TransferId,
    },
    /// A store has deleted a frame (or has failed to: the room is given up as lost for now).
    Deleted {
        /// The checkpoint whose frame it was.
        checkpoint: CheckpointId,
        /// The store.
        tier: TierId,
    },
    /// An arena has turned out smaller than it was said to be: only its first `capacity` bytes
    /// exist. What is arriving in the bytes beyond them fails, and its report follows as usual.
    /// Ignored for stores, and where the arena is as small already.
    Shrunk {
        /// The arena.
        tier: TierId,
        /// Its size in bytes from now on, or the end of its last complete copy if that is more.
        capacity: u64,
    },
    /// The memory of an arena is taken from its start on, as copies need it, as that of the host
    /// always is: bytes that no copy has had are used last. Ignored for stores.
    TakenByNeed {
        /// The arena.
        tier: TierId,
    },
    /// An arena that has shrunk has more bytes again: `capacity` in all, at most as many as at
    /// first. Ignored for stores, where the arena is as large already, and while a copy that was
    /// on its way when the arena shrunk, to bytes that it has lost, is not reported yet:
    /// [`Core::capacity`](crate::Core::capacity) says what became of it.
    Grown {
        /// The arena.
        tier: TierId,
        /// Its size in bytes from now on.
        capacity: u64,
    },
    /// An arena takes no bytes any more, and reads of it fail: its device is lost. Copies that
    /// exist elsewhere are used there; what is in this arena alone stays, and fails when it is
    /// moved.
    /// Ignored for stores.
    TierFailed {
        /// The arena.
        tier: TierId,
    },
    /// A checkpoint of an earlier run was found in a store (a durable spool opened again).
    /// Checkpoints are adopted in ascending order of id; one that several stores hold is adopted
    /// once for each of them, with the same id, the slowest store first (so that nothing is
    /// flushed that is there already).
    Recover {
        /// Its id in that run; later saves get ids above it.
        checkpoint: CheckpointId,
        /// The name of the checkpoint.
        version: Version,
        /// Bytes of its payload.
        bytes: u64,
        /// The store that holds it.
        tier: TierId,
    },
    /// Time has passed: the deadline that [`Core::next_deadline`](crate::Core::next_deadline) gave.
    Tick,
}

/// What is known of the size of a checkpoint before it is saved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Size {
    /// The checkpoint has exactly the bytes that were asked for.
    #[default]
    Exact,
    /// The checkpoint has at most the bytes that were asked for (it is being compressed): `Saved`
    /// says how many.
    AtMost,
}

/// The bytes that a checkpoint takes once it is saved. A save that was granted
/// `[offset, offset + bytes)` of an arena owns this room and what the saves before it in the same
/// arena have not kept; it keeps any part of that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// Where the bytes begin, a multiple of the tier's alignment; it may lie before the granted
    /// offset. Meaningless in a store.
    pub offset: u64,
    /// Bytes of the payload, at most as many as were asked for.
    pub bytes: u64,
}

/// Why a transfer failed, as far as the core needs to know in order to decide what comes next.
/// The text for people stays with the code that reported the failure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Failure {
    /// The target has no room (ENOSPC, EDQUOT): trying again helps only after something was freed.
    NoSpace,
    /// The device reported an error that may pass (EIO, a time-out): worth another try.
    Io,
    /// The bytes that came back are not those that were written: this copy is lost.
    Corrupt,
    /// The frame is not there: this copy is lost.
    Missing,
    /// Nothing that trying again could help (permission, read-only file system).
    Permanent,
}

impl Failure {
    /// Whether it can be the fault of the place that the bytes went to.
    pub(crate) fn is_of_target(self) -> bool {
        !matches!(self, Failure::Corrupt | Failure::Missing)
    }
}
