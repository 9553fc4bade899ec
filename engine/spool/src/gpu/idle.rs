//! How long a stream of the application had nothing to do while a call waited.
//!
//! Calls on GPU arrays only enqueue work, so the host usually runs ahead of the GPU and waits for
//! room or data while the GPU still computes. That wait costs nothing. What costs is the time
//! between the end of the work that the stream had when the call began to wait, and the end of the
//! wait.

use std::time::Duration;

use unspool_core::Nanos;
use unspool_cuda::{DeviceError, Event, Poll, Stream};

/// The longest wait for the second event: it is recorded on a stream that has nothing to do.
const LIMIT: Duration = Duration::from_secs(1);

/// A stream while a call waits.
#[derive(Debug)]
pub(crate) struct Idle<'a> {
    stream: &'a Stream,
    /// Recorded after the work that the stream had.
    before: Event,
}

impl<'a> Idle<'a> {
    /// The call begins to wait; `None` where no event can be had.
    pub(crate) fn begin(stream: &'a Stream) -> Option<Idle<'a>> {
        if stream.is_capturing().ok()? {
            return None;
        }
        let before = Event::timed(stream.context()).ok()?;
        before.record(stream).ok()?;
        Some(Idle { stream, before })
    }

    /// The call has waited for `waited`: for how long the stream had nothing to do.
    pub(crate) fn end(self, waited: Nanos) -> Nanos {
        match self.before.poll() {
            Poll::NotYet => Nanos(0),
            Poll::Failed(_) => waited,
            Poll::Done => self.since_done().map_or(waited, |idle| idle.min(waited)),
        }
    }

    fn since_done(&self) -> Result<Nanos, DeviceError> {
        let now = Event::timed(self.stream.context())?;
        now.record(self.stream)?;
        now.wait(LIMIT)?;
        let idle = now.since(&self.before)?;
        Ok(Nanos(u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX)))
    }
}
