//! The movements themselves, in the thread of a worker.

use std::sync::Arc;

use unspool_core::{Failure, TierId, TierKind};
use unspool_tiers::{Arena, Tier};

use crate::error::TransferError;
use crate::frame::{read_frame, staging, write_frame};
use crate::job::{Job, Task};
use crate::staging::Pool;

/// A copy between arenas looks for its cancellation after so many bytes.
const CHUNK: usize = 4 << 20;

/// How a job ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The bytes are in the target.
    Done,
    /// The target holds nothing, as asked.
    Cancelled,
    /// The target holds nothing.
    Failed(TransferError),
}

/// What workers need in order to move bytes.
#[derive(Debug)]
pub(crate) struct Mover {
    pub(crate) tiers: Vec<Arc<dyn Tier>>,
    /// What each of them is.
    pub(crate) kinds: Vec<TierKind>,
    pub(crate) buffers: Arc<Pool>,
    pub(crate) verify: bool,
}

impl Mover {
    /// Moves the bytes of `job`; `task` tells when it was cancelled.
    pub(crate) fn run(&self, job: &Job, task: &Task) -> Outcome {
        if task.is_cancelled() {
            return Outcome::Cancelled;
        }
        match self.moved(job, task) {
            Ok(true) => Outcome::Done,
            Ok(false) => Outcome::Cancelled,
            Err(error) => Outcome::Failed(error),
        }
    }

    pub(crate) fn tier(&self, id: TierId) -> &dyn Tier {
        &*self.tiers[usize::from(id.0)]
    }

    /// Whether the bytes are in the target; `false` when the job was cancelled on the way.
    fn moved(&self, job: &Job, task: &Task) -> Result<bool, TransferError> {
        let (from, to) = (self.tier(job.from.tier), self.tier(job.to.tier));
        match (from.memory(), to.memory()) {
            (Some(source), Some(target)) => copy(job, task, source, target),
            (Some(source), None) => {
                let payload = source.read(job.checkpoint)?;
                write_frame(to, job.checkpoint, &job.frame, &payload, &self.buffers)?;
                Ok(true)
            }
            (None, Some(target)) => {
                let mut room = target.create(job.checkpoint, job.to.offset, job.bytes)?;
                self.read(job, from, &mut room)?;
                room.commit();
                Ok(true)
            }
            (None, None) => {
                let mut payload = staging(&self.buffers, job.bytes)?;
                self.read(job, from, &mut payload)?;
                write_frame(to, job.checkpoint, &job.frame, &payload, &self.buffers)?;
                Ok(true)
            }
        }
    }

    fn read(&self, job: &Job, from: &dyn Tier, payload: &mut [u8]) -> Result<(), TransferError> {
        read_frame(from, job.checkpoint, &job.frame, self.verify, payload, &self.buffers)
    }
}

fn copy(job: &Job, task: &Task, source: &Arena, target: &Arena) -> Result<bool, TransferError> {
    let bytes = source.read(job.checkpoint)?;
    let mut room = target.create(job.checkpoint, job.to.offset, job.bytes)?;
    if bytes.len() != room.len() {
        let message = format!("{} bytes cannot become {} bytes.", bytes.len(), room.len());
        return Err(TransferError::new(Failure::Permanent, message));
    }
    for (from, to) in bytes.chunks(CHUNK).zip(room.chunks_mut(CHUNK)) {
        if task.is_cancelled() {
            return Ok(false);
        }
        to.copy_from_slice(from);
    }
    room.commit();
    Ok(true)
}
