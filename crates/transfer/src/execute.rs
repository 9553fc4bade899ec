//! The movements themselves, on the thread of a worker.

use std::sync::Arc;

use unspool_codec::Outer;
use unspool_core::{Nanos, Place, TierId, TierKind};
use unspool_tiers::{AnyTier, Arena, ReadGuard, Tier, WriteGuard};

use crate::arenas::{self, Copying, Links};
use crate::clock::Clock;
use crate::error::TransferError;
use crate::frame::{read_frame, staging, write_frame};
use crate::job::{Job, Task, TaskWork};
use crate::staging::Pool;

/// How a job ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The target has the bytes.
    Done,
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
    /// Moves the bytes of the first of `tasks`, and together with it those of the tasks after it
    /// that go over the same link, as far as their bytes are ready. Returns the outcomes, one for
    /// each task that was executed, and the time spent only waiting for the application's work.
    pub(crate) fn run(&self, tasks: &[Arc<Task>]) -> (Vec<Outcome>, Nanos) {
        let mut waited = Nanos(0);
        let (count, moved) = match self.begin(&tasks[0]) {
            Some(Ok(first)) => self.copy(first, tasks, &mut waited),
            Some(Err(error)) => (1, Err(error)),
            None => (1, self.moved(&tasks[0])),
        };
        let outcome = || match &moved {
            Ok(true) => Outcome::Done,
            Ok(false) => Outcome::Cancelled,
            Err(error) => Outcome::Failed(error.clone()),
        };
        (std::iter::repeat_with(outcome).take(count).collect(), waited)
    }

    /// Copies between two arenas. Returns the number of tasks that are over, and whether their
    /// targets have the bytes: they have not when the first was cancelled.
    fn copy(
        &self,
        first: Copying,
        tasks: &[Arc<Task>],
        waited: &mut Nanos,
    ) -> (usize, Result<bool, TransferError>) {
        if tasks[0].is_cancelled() {
            return (1, Ok(false));
        }
        let start = self.clock.now();
        if let Err(error) = first.wait() {
            return (1, Err(error));
        }
        *waited = self.clock.now().since(start);
        let others = if first.is_over_link() { &tasks[1..] } else { &[] };
        // One that is not ready, or refused, gets a turn of its own.
        let others = others.iter().map_while(|task| {
            let copy = self.begin(task)?.ok()?;
            (copy.is_ready() && !task.is_cancelled()).then_some(copy)
        });
        let copies: Vec<_> = std::iter::once(first).chain(others).collect();
        let count = copies.len();
        match arenas::copy(copies, &self.links, &|| tasks[0].is_cancelled()) {
            Ok(false) => (1, Ok(false)),
            moved => (count, moved),
        }
    }

    /// Borrows the bytes of `task` and their room, if it moves them between two arenas.
    fn begin(&self, task: &Task) -> Option<Result<Copying, TransferError>> {
        let TaskWork::Move(job) = &task.work else { return None };
        let (source, target) = (self.arena(job.from)?, self.arena(job.to)?);
        let begin = || {
            let source = source.read(job.checkpoint)?;
            let target = target.create(job.checkpoint, job.to.offset, job.bytes)?;
            Copying::new(source, target)
        };
        Some(begin())
    }

    fn arena(&self, place: Place) -> Option<&Arena> {
        self.tiers[usize::from(place.tier.0)].arena()
    }

    pub(crate) fn tier(&self, id: TierId) -> &dyn Tier {
        self.tiers[usize::from(id.0)].tier()
    }

    /// Moves the bytes of `task` from or to a store. Returns whether the target has them; it has
    /// not when the task was cancelled.
    fn moved(&self, task: &Task) -> Result<bool, TransferError> {
        let TaskWork::Move(job) = &task.work else { return Ok(false) };
        if task.is_cancelled() {
            return Ok(false);
        }
        let tier = |place: Place| &self.tiers[usize::from(place.tier.0)];
        match (tier(job.from), tier(job.to)) {
            (AnyTier::Arena(_), AnyTier::Arena(_)) => Ok(false),
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
