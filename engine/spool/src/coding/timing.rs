//! How long encoders and decoders take on a GPU: two events around what is enqueued, which are
//! looked at when a codec is chosen next. No call waits for them.

use std::time::Duration;

use unspool_cuda::{Event, Poll};

/// Whose time is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    /// Bytes of the values.
    pub(crate) bytes: u64,
    pub(crate) is_decoder: bool,
}

/// A codec whose time is not known yet.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) bytes: u64,
    pub(crate) is_decoder: bool,
    pub(crate) ends: [Event; 2],
    /// For how long the host was busy with it.
    pub(crate) host: Duration,
}

impl Reading {
    /// The time of the device or of the host, whichever is longer: that is what the application
    /// can lose. `None` while the device is not done.
    pub(crate) fn time(&self) -> Option<Result<Duration, ()>> {
        match self.ends[1].poll() {
            Poll::NotYet => None,
            Poll::Done => {
                let device = self.ends[1].since(&self.ends[0]);
                Some(device.map(|device| device.max(self.host)).map_err(drop))
            }
            Poll::Failed(_) => Some(Err(())),
        }
    }
}
