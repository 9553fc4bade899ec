//! What the workers are given to do.

use std::fmt;
use std::sync::Arc;

use unspool_core::{CheckpointId, Nanos, Place, TierId, TransferId, TransferKind, Version};

use crate::frame::Frame;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::text::Bytes;

/// One movement of a checkpoint between two tiers.
#[derive(Clone, Debug)]
pub struct Job {
    /// The name of the movement.
    pub transfer: TransferId,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Its name for people.
    pub version: Version,
    /// Bytes of its payload.
    pub bytes: u64,
    /// The direction.
    pub kind: TransferKind,
    /// Where the bytes are.
    pub from: Place,
    /// Where they go.
    pub to: Place,
    /// What is known of the checkpoint.
    pub frame: Arc<Frame>,
}

/// Whether the report of a job is still to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "when the job never runs, this answer is its only report"]
pub enum Answer {
    /// The sink gets the report, or has got it.
    ReportFollows,
    /// The job never runs; this answer is its report.
    NeverRuns,
}

/// One thing in a lane.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) work: Work,
    pub(crate) queued: Nanos,
    cancelled: AtomicBool,
}

/// What a task is about.
#[derive(Debug)]
pub(crate) enum Work {
    Move(Job),
    Delete { checkpoint: CheckpointId, tier: TierId },
}

impl Task {
    pub(crate) fn new(work: Work, queued: Nanos) -> Task {
        Task { work, queued, cancelled: AtomicBool::new(false) }
    }

    pub(crate) fn is_transfer(&self, transfer: TransferId) -> bool {
        matches!(&self.work, Work::Move(job) if job.transfer == transfer)
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// What people call a movement.
pub(crate) fn label(kind: TransferKind) -> &'static str {
    match kind {
        TransferKind::Flush => "flush",
        TransferKind::Prefetch => "prefetch",
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Move(job) => {
                let name = label(job.kind);
                write!(f, "{name} of version {}, {}", job.version.0, Bytes(job.bytes))
            }
            Work::Delete { checkpoint, .. } => write!(f, "deletion of frame {}", checkpoint.0),
        }
    }
}
