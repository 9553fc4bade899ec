//! The movements themselves, on the thread of a worker.

use std::sync::Arc;

use unspool_codec::Outer;
use unspool_core::{Nanos, Place, TierId, TierKind};
use unspool_tiers::{AnyTier, ReadGuard, Tier, WriteGuard};

use crate::arenas::{self, Links};
use crate::clock::Clock;
use crate::error::TransferError;
use crate::frame::{read_frame, staging, write_frame};
use crate::job::{Job, Task};
use crate::staging::Pool;

/// How a job ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The target has the bytes.
    Done {
        /// Time spent only waiting for the application's work on the bytes.
        waited: Nanos,
    },
    /// The job was cancelled; the target holds nothing.
    Cancelled,
    /// The job failed; the target holds nothing.
    Failed(TransferError),
}

/// The tiers and settings that workers need to move bytes.
#[derive(Debug)]
pub(crate) struct Mover {
    pub(crate) tiers: Vec<AnyTier>,
    /// The kind of each tier.
    pub(crate) kinds: Vec<TierKind>,
    pub(crate) buffers: Arc<Pool>,
    pub(crate) verify: bool,
    /// The outer codec, which packs payloads on their way into a store.
    pub(crate) outer: Option<Outer>,
    pub(crate) links: Links,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Mover {
    /// Moves the bytes of `job`; `task` knows whether it was cancelled.
    pub(crate) fn run(&self, job: &Job, task: &Task) -> Outcome {
        if task.is_cancelled() {
            return Outcome::Cancelled;
        }
        let mut waited = Nanos(0);
        match self.moved(job, task, &mut waited) {
            Ok(true) => Outcome::Done { waited },
            Ok(false) => Outcome::Cancelled,
            Err(error) => Outcome::Failed(error),
        }
    }

    pub(crate) fn tier(&self, id: TierId) -> &dyn Tier {
        self.tiers[usize::from(id.0)].tier()
    }

    /// Returns whether the target has the bytes; `false` when the job was cancelled on the way.
    fn moved(&self, job: &Job, task: &Task, waited: &mut Nanos) -> Result<bool, TransferError> {
        let tier = |place: Place| &self.tiers[usize::from(place.tier.0)];
        let (from, to) = (tier(job.from), tier(job.to));
        match (from, to) {
            (AnyTier::Arena(source), AnyTier::Arena(target)) => {
                let source = source.read(job.checkpoint)?;
                let target = target.create(job.checkpoint, job.to.offset, job.bytes)?;
                let start = self.clock.now();
                arenas::wait_for_both(&source, &target)?;
                *waited = self.clock.now().since(start);
                arenas::copy(source, target, &self.links, &|| task.is_cancelled())
            }
            (AnyTier::Arena(source), AnyTier::Store(to)) => {
                let payload = source.read(job.checkpoint)?;
                self.write(job, &**to, &payload)?;
                Ok(true)
            }
            (AnyTier::Store(from), AnyTier::Arena(target)) => {
                let mut room = target.create(job.checkpoint, job.to.offset, job.bytes)?;
                self.fill(job, &**from, &mut room)?;
                room.commit();
                Ok(true)
            }
            (AnyTier::Store(from), AnyTier::Store(to)) => {
                let mut payload = staging(&self.buffers, job.bytes)?;
                self.read(job, &**from, &mut payload)?;
                write_frame(
                    &**to,
                    job.checkpoint,
                    &job.frame,
                    &payload,
                    self.outer,
                    &self.buffers,
                )?;
                Ok(true)
            }
        }
    }

    /// Writes the bytes of an arena to the store `to`.
    fn write(&self, job: &Job, to: &dyn Tier, payload: &ReadGuard) -> Result<(), TransferError> {
        let (id, frame) = (job.checkpoint, &job.frame);
        if let Some(bytes) = payload.bytes() {
            return write_frame(to, id, frame, bytes, self.outer, &self.buffers);
        }
        let mut staged = staging(&self.buffers, payload.len())?;
        self.links.download(payload, &mut staged)?;
        write_frame(to, id, frame, &staged, self.outer, &self.buffers)
    }

    /// Reads a frame of the store `from` into an arena.
    fn fill(&self, job: &Job, from: &dyn Tier, room: &mut WriteGuard) -> Result<(), TransferError> {
        if let Some(bytes) = room.bytes() {
            return self.read(job, from, bytes);
        }
        let mut staged = staging(&self.buffers, job.bytes)?;
        self.read(job, from, &mut staged)?;
        Ok(self.links.upload(&staged, room)?)
    }

    fn read(&self, job: &Job, from: &dyn Tier, payload: &mut [u8]) -> Result<(), TransferError> {
        read_frame(from, job.checkpoint, &job.frame, self.verify, payload, &self.buffers)
    }
}
