//! What a spool has done so far, as plain numbers.

use std::time::Duration;

use unspool_core::{Lead, TierKind};

use crate::coding::{AutoStats, CodecStats, LaunchStats};
use crate::figure::figures;

figures!(ApplicationStats:
    saves saved_bytes restores restored_bytes hinted_restores hints discards checkpoints unflushed
    unflushed_bytes dropped_spans;
    save_stall_seconds = save_stall
    restore_stall_seconds = restore_stall
    kernels_seconds = kernels
);
figures!(TierStats: used peak copies evictions restores;);
figures!(DirectionStats: transfers bytes cancelled failed retried in_flight; busy_seconds = busy);

/// What a spool has done since it was opened.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Stats {
    /// The application's calls and its waits.
    pub application: ApplicationStats,
    /// Every tier, fastest first.
    pub tiers: Vec<TierStats>,
    /// `links[i]` lies between `tiers[i]` and `tiers[i + 1]`.
    pub links: Vec<LinkStats>,
    /// Every codec that was used, for checkpoints of which at least one region was encoded.
    pub codecs: Vec<CodecStats>,
    /// How many launches a GPU has encoded checkpoints with.
    pub launches: LaunchStats,
    /// What the run has chosen by itself, where that was left to it.
    pub auto: Option<AutoStats>,
}

/// The application's calls and its waits.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ApplicationStats {
    /// Saves that were committed.
    pub saves: u64,
    /// Payload bytes of those saves, as they are stored.
    pub saved_bytes: u64,
    /// Restores that were finished.
    pub restores: u64,
    /// Payload bytes of those restores, as they are stored.
    pub restored_bytes: u64,
    /// Time that saves waited for room, and for a store when no arena had room.
    pub save_stall: Duration,
    /// Time that restores waited for their data, direct reads of a store included.
    pub restore_stall: Duration,
    /// What of both was for kernels of the codecs, and of arrays with gaps, to be loaded: a few
    /// milliseconds each, or seconds on a device that none were shipped for, where they are
    /// compiled once a machine.
    pub kernels: Duration,
    /// The longest single wait.
    pub longest_stall: Option<Stall>,
    /// Over the restores that the restore order announced: how many of the restores after each
    /// had their bytes in the fastest tier already, without a break.
    pub prefetch_lead: Lead,
    /// Restores that the restore order announced.
    pub hinted_restores: u64,
    /// Entries of the restore order that are still to come.
    pub hints: u64,
    /// Checkpoints that were discarded, by the user or after their last restore.
    pub discards: u64,
    /// Checkpoints that are saved and not discarded.
    pub checkpoints: u64,
    /// Those of them that are not in the slowest tier that can hold them yet: what a flush waits
    /// for.
    pub unflushed: u64,
    /// Their payload bytes, as they are stored.
    pub unflushed_bytes: u64,
    /// Spans that did not fit into the trace.
    pub dropped_spans: u64,
    /// What went wrong without stopping anything, in sentences for people.
    pub notes: Vec<String>,
}

/// One wait of the application.
#[derive(Clone, PartialEq, Debug)]
pub struct Stall {
    /// The call that waited: `"save"` or `"restore"`.
    pub call: &'static str,
    /// The version that it named.
    pub version: i64,
    /// How long it waited.
    pub time: Duration,
    /// What it waited for, in words.
    pub awaited: String,
}

/// One tier.
#[derive(Clone, PartialEq, Debug)]
pub struct TierStats {
    /// What it is made of.
    pub kind: TierKind,
    /// Where it is, for people: a directory, "memory".
    pub location: String,
    /// Bytes that it may hold; `u64::MAX` when only the medium itself sets a limit.
    pub capacity: u64,
    /// Bytes from its start that are copied at full speed: less than the capacity while pinned
    /// memory is still being registered.
    pub ready: u64,
    /// Bytes in use, reservations included.
    pub used: u64,
    /// The most bytes that were in use at once.
    pub peak: u64,
    /// Copies of checkpoints in it.
    pub copies: u64,
    /// Copies that made room for others.
    pub evictions: u64,
    /// Restores that were served from it.
    pub restores: u64,
    /// What was found out about the medium and what it fell back to, in sentences for people.
    pub notes: Vec<String>,
}

/// The movement between two neighbouring tiers.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkStats {
    /// The faster tier.
    pub fast: TierKind,
    /// The slower tier.
    pub slow: TierKind,
    /// Movement to the slower tier.
    pub flush: DirectionStats,
    /// Movement to the faster tier.
    pub prefetch: DirectionStats,
    /// Flushes that were not needed any more: nobody will read those bytes.
    pub flushes_skipped: u64,
    /// The last failure on this link, in sentences for people.
    pub last_failure: Option<String>,
}

/// The movement in one direction of a link.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct DirectionStats {
    /// Transfers that were completed.
    pub transfers: u64,
    /// Payload bytes of those.
    pub bytes: u64,
    /// The time that they took, summed over transfers, without their time in a queue.
    pub busy: Duration,
    /// Transfers that were cancelled before they took effect.
    pub cancelled: u64,
    /// Transfers that failed.
    pub failed: u64,
    /// Failed transfers that were tried again.
    pub retried: u64,
    /// Transfers that are under way now.
    pub in_flight: u32,
    /// The rate that was learned from the transfers, in bytes per second.
    pub rate: f64,
}
