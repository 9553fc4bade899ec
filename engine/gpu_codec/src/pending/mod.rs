//! The pending result of an asynchronous encoder: a [`Pending`] for each checkpoint, whose result
//! the device itself writes to host memory. Polling it costs two loads and no call of the driver;
//! no thread waits for the device to learn a size.

mod decoded;
mod result;
mod slots;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use unspool_cuda::Fence;
use unspool_cuda::Stream;
use unspool_cuda::{DeviceError, DeviceErrorKind};
use unspool_cuda::{Poll, wait_for};

pub use decoded::DecodeStatus;
pub use result::{CheckpointResult, EncodeError, EncodeErrorKind, JobResult};
pub(crate) use slots::Slot;
pub use slots::Slots;

use slots::LaunchedSlot;

/// The begin of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a> {
    /// At this address of the device, a multiple of 64.
    At(u64),
    /// Where the checkpoint of `pending` ends, rounded up to a multiple of `align`, a power of two
    /// from 64 on. The device reads that itself, so the host need not know it.
    After {
        /// The checkpoint before, whose limit is at most the limit of this one.
        pending: &'a Pending,
        /// Alignment of the begin.
        align: u64,
    },
    /// As `After`, for the checkpoint before it in the same call.
    Next {
        /// Alignment of the begin.
        align: u64,
    },
}

/// A checkpoint in flight. Clones share one result.
#[derive(Clone, Debug)]
pub struct Pending(Arc<PendingInner>);

#[derive(Debug)]
struct PendingInner {
    place: Arc<LaunchedSlot>,
    fence: Fence,
    /// The end of the memory that may be written.
    limit: u64,
    /// The result, after it was read once.
    known: OnceLock<Result<CheckpointResult, EncodeError>>,
}

impl Pending {
    pub(super) fn new(place: Arc<LaunchedSlot>, fence: Fence, limit: u64) -> Pending {
        Pending(Arc::new(PendingInner { place, fence, limit, known: OnceLock::new() }))
    }

    /// The result, or `None` while the device has not written it. Makes no call of the driver, so
    /// it does not notice that the device has failed: [`wait`](Self::wait) does.
    #[must_use]
    pub fn try_result(&self) -> Option<Result<CheckpointResult, EncodeError>> {
        if let Some(known) = self.0.known.get() {
            return Some(known.clone());
        }
        let words = self.0.place.words()?;
        // The record of the checkpoint before is not read any more.
        self.0.place.release_before();
        Some(self.0.known.get_or_init(|| result::read(&words, self.0.limit)).clone())
    }

    /// The result, waiting at most `limit`.
    ///
    /// # Errors
    /// When the checkpoint could not be encoded, the device failed, or the limit has passed.
    pub fn wait(&self, limit: Duration) -> Result<CheckpointResult, EncodeError> {
        let mut last_look = false;
        let mut result = None;
        let poll = || {
            result = self.try_result();
            if result.is_some() {
                return Poll::Done;
            }
            if last_look {
                return Poll::Failed(DeviceError::new(
                    DeviceErrorKind::Kernel,
                    "the encoder ended without a result",
                ));
            }
            match self.0.fence.poll() {
                // The launch is done: the result is present now, or there will be none.
                Poll::Done => {
                    last_look = true;
                    Poll::NotYet
                }
                other => other,
            }
        };
        wait_for(poll, limit, "the encoding of a checkpoint")?;
        result.unwrap_or_else(|| Err(EncodeError::lost()))
    }

    /// Why there will be no result: the device has failed. Makes calls of the driver.
    #[must_use]
    pub fn failure(&self) -> Option<EncodeError> {
        if self.try_result().is_some() {
            return None;
        }
        match self.0.fence.poll() {
            Poll::Failed(cause) => Some(cause.into()),
            // The launch is done: the result is present now, or there will be none.
            Poll::Done => self.try_result().is_none().then(EncodeError::lost),
            Poll::NotYet => None,
        }
    }

    /// The end of the memory that may be written.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// A fence after the launch: work that waits for it finds the checkpoint encoded.
    #[must_use]
    pub fn fence(&self) -> &Fence {
        &self.0.fence
    }

    /// Keeps the record of this checkpoint in place until `slot` is done.
    pub(crate) fn stay_for(&self, slot: &mut Slot) {
        slot.keep(&self.0.place);
    }

    /// Makes work that is enqueued on `stream` later see the record of this checkpoint, and keeps
    /// the record in place for `slot`. Enqueues nothing if the host knows the launch to be done.
    pub(crate) fn lead(&self, stream: &Stream, slot: &mut Slot) -> Result<u64, DeviceError> {
        if self.0.place.words().is_none() {
            stream.wait_for(&self.0.fence)?;
        }
        self.stay_for(slot);
        Ok(self.0.place.record())
    }
}
