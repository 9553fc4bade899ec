//! Spans: the pieces of work on a timeline.

use std::sync::Arc;

use unspool_core::{Nanos, TierKind};

/// One piece of work on the timeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// The lane of the work: a link and direction such as `"host-disk"`, or `"application"`.
    pub lane: Arc<str>,
    /// Number of the thread in the lane.
    pub worker: u32,
    /// Kind of work: `"flush"`, `"prefetch"`, `"delete"`.
    pub label: &'static str,
    /// Outcome: `"done"`, `"cancelled"`, `"failed"`.
    pub outcome: &'static str,
    /// The target of a movement, the place of a save or restore, or the tier of a deletion.
    pub tier: TierKind,
    /// The version that was moved; `None` for a deletion.
    pub version: Option<i64>,
    /// Bytes of its payload.
    pub bytes: u64,
    /// Time of the request.
    pub queued: Nanos,
    /// Time at which the work began.
    pub start: Nanos,
    /// Time at which the work ended.
    pub end: Nanos,
}
