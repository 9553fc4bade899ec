//! The tasks of the workers.

use std::fmt;
use std::sync::Arc;

use unspool_core::{CheckpointId, Nanos, Place, TierId, TransferId, TransferKind, Version};

use crate::frame::Frame;
use crate::sync::atomic::{AtomicBool, Ordering};
use unspool_cuda::Bytes;

/// One movement of a checkpoint between two tiers.
#[derive(Clone, Debug)]
pub struct Job {
    /// Identifier of the movement.
    pub transfer: TransferId,
    /// Identifier of the checkpoint.
    pub checkpoint: CheckpointId,
    /// Version of the checkpoint, for messages and the timeline.
    pub version: Version,
    /// Bytes of its payload.
    pub bytes: u64,
    /// Flush or prefetch.
    pub kind: TransferKind,
    /// Source of the bytes.
    pub from: Place,
    /// Destination of the bytes.
    pub to: Place,
    /// The metadata of the checkpoint.
    pub frame: Arc<Frame>,
}

/// Whether the report of a job is still to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "when the job never runs, this answer is its only report"]
pub enum Submitted {
    /// The sink receives the report, or has received it.
    ReportFollows,
    /// The job never runs; this answer is its report.
    NeverRuns,
}

/// A task in a lane.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) work: TaskWork,
    pub(crate) queued: Nanos,
    cancelled: AtomicBool,
}

/// The work of a task.
#[derive(Debug)]
pub(crate) enum TaskWork {
    Move(Job),
    Delete { checkpoint: CheckpointId, tier: TierId },
}

impl Task {
    pub(crate) fn new(work: TaskWork, queued: Nanos) -> Task {
        Task { work, queued, cancelled: AtomicBool::new(false) }
    }

    pub(crate) fn is_transfer(&self, transfer: TransferId) -> bool {
        matches!(&self.work, TaskWork::Move(job) if job.transfer == transfer)
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// The name of a kind of movement in messages.
pub(crate) fn label(kind: TransferKind) -> &'static str {
    match kind {
        TransferKind::Flush => "flush",
        TransferKind::Prefetch => "prefetch",
    }
}

impl fmt::Display for TaskWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaskWork::Move(job) => {
                let name = label(job.kind);
                write!(f, "{name} of version {}, {:#}", job.version.0, Bytes(job.bytes))
            }
            TaskWork::Delete { checkpoint, .. } => write!(f, "deletion of frame {}", checkpoint.0),
        }
    }
}
