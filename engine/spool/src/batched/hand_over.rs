//! Handing a batch to the spool.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unspool_cuda::Stream;

use super::SharedBatch;
use super::waiting::BatchedCheckpoint;
use crate::error::{Error, ErrorKind};
use crate::gpu::{DeviceArray, Gpu};
use crate::runtime::deferred::{Unsaved, as_one_error};
use crate::save::Checkpoint;
use crate::wait::Wait;

impl SharedBatch {
    /// What failed after its call had returned, before a call does anything.
    pub(super) fn report(&self) -> Result<(), Error> {
        let shared = self.spool.shared();
        let mut state = shared.enter()?;
        shared.report_deferred(&mut state)?;
        drop(state);
        let Some(error) = self.waiting.take_failure() else { return Ok(()) };
        let message = format!("{error} This call did nothing.");
        Err(error.saying(message))
    }

    /// When a call with this wait ends.
    fn until(&self, wait: &Wait<'_>) -> Instant {
        Instant::now() + wait.timeout.unwrap_or(self.spool.shared().settings.timeout)
    }

    /// Whether a checkpoint may wait for others.
    pub(super) fn may_keep(&self, checkpoint: &Checkpoint<'_>) -> Result<bool, Error> {
        let version = checkpoint.version();
        let is_new = !self.waiting.has(version) && !self.spool.contains(version)?;
        Ok(is_new && self.store.takes(checkpoint))
    }

    /// Hands over all that waits.
    ///
    /// # Errors
    /// As [`Batched::hand_over`](super::Batched::hand_over).
    pub(super) fn hand_over(&self, wait: &Wait<'_>) -> Result<(), Error> {
        let until = self.until(wait);
        let mut turn = self.waiting.take(until, wait)?;
        if turn.kept.is_empty() {
            return Ok(());
        }
        let Some(gpu) = self.spool.gpu() else { return Ok(()) };
        // What cannot be begun waits on.
        let lane = self.ready_lane(gpu, &turn.kept).map_err(|cause| unsaved(&turn.kept, &cause))?;
        let arrays: Vec<Vec<DeviceArray>> =
            turn.kept.iter().map(BatchedCheckpoint::arrays).collect();
        let batch = turn.kept.iter().zip(&arrays).map(|(kept, arrays)| kept.on(lane, arrays));
        let mut batch = batch.collect::<Result<Vec<_>, _>>()?;
        let left = until.saturating_duration_since(Instant::now());
        let saved = self.spool.save_many(&mut batch, &Wait { timeout: Some(left), ..*wait });
        let read = gpu.fence(lane);
        let stays = |version: i64| match &saved {
            Ok(()) => false,
            Err(error) if error.unsaved().is_empty() => true,
            Err(error) => {
                let found = error.unsaved().iter().find(|(unsaved, _)| *unsaved == version);
                found.is_some_and(|(_, kind)| kind.is_retryable())
            }
        };
        let kept = std::mem::take(&mut turn.kept);
        for mut kept in kept {
            if stays(kept.version()) {
                turn.kept.push_back(kept);
            } else if let Ok(read) = &read {
                kept.pieces.iter_mut().for_each(|piece| piece.lease.done(read.clone()));
            } else {
                kept.pieces.iter_mut().for_each(|piece| piece.lease.begin());
            }
        }
        saved
    }

    /// The stream on which the values of these are ready.
    fn ready_lane(&self, gpu: &Gpu, kept: &VecDeque<BatchedCheckpoint>) -> Result<&Stream, Error> {
        let lane = self.store.lane(gpu)?;
        let pieces = kept.iter().flat_map(|kept| &kept.pieces);
        pieces.map(|piece| &piece.ready).try_for_each(|ready| lane.wait_for(ready))?;
        Ok(lane)
    }

    /// The life of the thread: hands over what has waited for long enough. It waits for no room:
    /// what has none waits on, and the next call that needs it waits.
    pub(super) fn run(&self) {
        while self.waiting.wait_for_oldest(self.most.held_at_most) {
            let Err(error) = self.hand_over(&Wait::at_most(Duration::ZERO)) else { continue };
            let is_final = |(_, kind): &(i64, _)| !ErrorKind::is_retryable(*kind);
            if error.unsaved().is_empty() && !error.is_retryable()
                || error.unsaved().iter().any(is_final)
            {
                self.waiting.fail(error);
            }
        }
    }
}

/// The error of a batch that could not be begun.
fn unsaved(kept: &VecDeque<BatchedCheckpoint>, cause: &Error) -> Error {
    let one = |kept: &BatchedCheckpoint| Unsaved { version: kept.version(), error: cause.again() };
    as_one_error(kept.iter().map(one).collect()).unwrap_or_else(|| cause.again())
}

impl BatchedCheckpoint {
    /// Its values in the ring.
    fn arrays(&self) -> Vec<DeviceArray> {
        self.pieces.iter().map(|piece| DeviceArray::of(piece.lease.span())).collect()
    }

    /// The checkpoint, with its values ready on `lane`.
    fn on<'a>(&self, lane: &'a Stream, arrays: &'a [DeviceArray]) -> Result<Checkpoint<'a>, Error> {
        let mut checkpoint = Checkpoint::of(Arc::clone(&self.prepared));
        for (piece, array) in self.pieces.iter().zip(arrays) {
            checkpoint.put(piece.region, array, lane)?;
        }
        Ok(checkpoint)
    }
}
