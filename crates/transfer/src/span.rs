//! What happened when: the raw material of a timeline.

use std::sync::Arc;

use unspool_core::{Nanos, TierKind};

/// One piece of work on the timeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// Whose time it was: a link and direction such as `"host-disk"`, or `"application"`.
    pub lane: Arc<str>,
    /// Which of the lane's threads.
    pub worker: u32,
    /// What was done: `"flush"`, `"prefetch"`, `"delete"`.
    pub label: &'static str,
    /// How it ended: `"done"`, `"cancelled"`, `"failed"`.
    pub outcome: &'static str,
    /// Where the bytes went or were: the target of a movement, the place of a save or restore.
    pub tier: TierKind,
    /// The version that was moved; none for a deletion.
    pub version: Option<i64>,
    /// Bytes of its payload.
    pub bytes: u64,
    /// When it was asked for.
    pub queued: Nanos,
    /// When it began.
    pub start: Nanos,
    /// When it ended.
    pub end: Nanos,
}
