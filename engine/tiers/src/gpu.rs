//! The device under a spool's arenas: its context, a stream for copies that nobody else orders, and
//! the events that say how far work has come.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use unspool_core::Failure;
use unspool_cuda::{Context, DeviceError, DeviceErrorKind, Driver, Fence, FencePool, Stream};

use crate::error::TierError;

/// A device and what is needed to copy to and from its memory. See the module.
pub struct Gpu {
    context: Context,
    stream: Stream,
    fences: Arc<FencePool>,
    limit: Duration,
}

impl Gpu {
    /// The device `ordinal`, whose primary context is started if nobody has yet. Every wait for
    /// work on it takes at most `limit`.
    ///
    /// # Errors
    /// When the driver or the device is missing, or a context cannot be made on it.
    pub fn open(ordinal: u32, limit: Duration) -> Result<Arc<Gpu>, DeviceError> {
        let context = Context::new(&Driver::load()?, ordinal)?;
        let (stream, fences) = (Stream::new(&context)?, FencePool::new(&context));
        Ok(Arc::new(Gpu { context, stream, fences, limit }))
    }

    /// Its context.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Its number.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.context.ordinal()
    }

    /// A stream of our own, for those who have none.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The longest wait for work on it.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// A fence after everything enqueued on `stream` so far.
    ///
    /// # Errors
    /// When the context is broken or out of resources.
    pub fn fence(&self, stream: &Stream) -> Result<Fence, DeviceError> {
        self.fences.record(stream)
    }

    /// A fence after everything enqueued on `stream` so far. Where none can be had, which happens
    /// when the device has no memory left, this waits until the stream has nothing left to do and
    /// gives `None`.
    ///
    /// # Errors
    /// When the work on the stream failed, or was not done in time: it may still be under way.
    pub fn fence_or_wait(&self, stream: &Stream) -> Result<Option<Fence>, DeviceError> {
        match self.fence(stream) {
            Ok(fence) => Ok(Some(fence)),
            Err(_) => stream.drain(self.limit).map(|()| None),
        }
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpu").field("ordinal", &self.ordinal()).finish_non_exhaustive()
    }
}

/// An error of the device while doing `operation` at `location`, as a tier reports it.
pub(crate) fn device_failed(
    operation: &'static str,
    location: impl Into<String>,
    cause: &DeviceError,
) -> TierError {
    let reason = cause.to_string();
    TierError::new(failure_of(cause), operation, location, reason.trim_end_matches('.'))
}

/// What a failure of the device means to the core.
#[must_use]
pub fn failure_of(error: &DeviceError) -> Failure {
    match error.kind() {
        DeviceErrorKind::OutOfMemory => Failure::NoSpace,
        DeviceErrorKind::TimedOut => Failure::Io,
        _ => Failure::Permanent,
    }
}
