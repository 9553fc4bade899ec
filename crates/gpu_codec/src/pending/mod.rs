//! What encoders on the device hand back before they are done: a [`Pending`] for each checkpoint,
//! whose result the device itself writes to host memory. To look at it costs two loads and no call
//! of the driver; nobody waits for the device to learn a size.

mod decoded;
mod result;
mod slots;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use unspool_cuda::Mark;
use unspool_cuda::Stream;
use unspool_cuda::{DeviceError, DeviceErrorKind};
use unspool_cuda::{Poll, wait_for};

pub use decoded::DecodeStatus;
pub use result::{CheckpointResult, EncodeError, EncodeErrorKind, JobResult};
pub(crate) use slots::Slot;
pub use slots::Slots;

use slots::Place;

/// Where a checkpoint begins.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a> {
    /// At this address of the device, a multiple of 64.
    At(u64),
    /// Where the checkpoint of `pending` ends, rounded up to a multiple of `align`, a power of
    /// two from 64 on. The device reads that itself, so the host need not know it.
    After {
        /// What it begins behind. Its limit must not be above that of this one.
        pending: &'a Pending,
        /// The unit of addresses.
        align: u64,
    },
    /// As `After`, behind the one before it in the same call.
    Next {
        /// The unit of addresses.
        align: u64,
    },
}

/// A checkpoint that is being encoded. Clones name the same one.
#[derive(Clone, Debug)]
pub struct Pending(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    place: Arc<Place>,
    mark: Mark,
    /// The address at or beyond which nothing is written.
    limit: u64,
    /// The result, once it was read.
    known: OnceLock<Result<CheckpointResult, EncodeError>>,
}

impl Pending {
    pub(super) fn new(place: Arc<Place>, mark: Mark, limit: u64) -> Pending {
        Pending(Arc::new(Inner { place, mark, limit, known: OnceLock::new() }))
    }

    /// The result, or `None` while the device has not written it. Makes no call of the driver, so
    /// it does not notice a device that has failed: [`wait`](Self::wait) does.
    #[must_use]
    pub fn try_result(&self) -> Option<Result<CheckpointResult, EncodeError>> {
        if let Some(known) = self.0.known.get() {
            return Some(known.clone());
        }
        let words = self.0.place.words()?;
        // What it began behind is not read any more.
        self.0.place.release_before();
        Some(self.0.known.get_or_init(|| result::read(&words, self.0.limit)).clone())
    }

    /// The result, after at most `limit`.
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
            match self.0.mark.poll() {
                // The result is there by now, if it ever will be.
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

    /// Why there will be no result: the device has failed. Asks the driver.
    #[must_use]
    pub fn failure(&self) -> Option<EncodeError> {
        if self.try_result().is_some() {
            return None;
        }
        match self.0.mark.poll() {
            Poll::Failed(cause) => Some(cause.into()),
            // Done without a result: it is there now, or never will be.
            Poll::Done => self.try_result().is_none().then(EncodeError::lost),
            Poll::NotYet => None,
        }
    }

    /// The address at or beyond which nothing is written.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// A mark behind the launch: work that waits for it finds the checkpoint encoded.
    #[must_use]
    pub fn mark(&self) -> &Mark {
        &self.0.mark
    }

    /// Keeps the record of this checkpoint in place until `slot` is done.
    pub(crate) fn stay_for(&self, slot: &mut Slot) {
        slot.keep(&self.0.place);
    }

    /// Lets what is enqueued on `stream` from now on find the record of this checkpoint, and keeps
    /// that in place for `slot`. Costs nothing where the host knows already that it is there.
    pub(crate) fn lead(&self, stream: &Stream, slot: &mut Slot) -> Result<u64, DeviceError> {
        if self.0.place.words().is_none() {
            stream.wait_for(&self.0.mark)?;
        }
        self.stay_for(slot);
        Ok(self.0.place.record())
    }
}
