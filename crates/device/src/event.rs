//! Events: places in a stream that can be waited for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use unspool_core::order::{Agent, Op};

use crate::context::Context;
use crate::error::{DeviceError, DeviceErrorKind};
use crate::raw::CUevent;
use crate::stream::Stream;
use crate::watch::new_recording;
use crate::{life, result};

/// What a look at an event says. Three answers: "not yet" and "failed" are not the same.
#[derive(Clone, Debug)]
pub enum Poll {
    /// Everything before it is done. So says an event that was never recorded.
    Done,
    /// Something before it is not done.
    NotYet,
    /// Something before it failed; the context may be broken.
    Failed(DeviceError),
}

/// An event of one device.
#[derive(Debug)]
pub struct Event {
    context: Context,
    handle: CUevent,
    /// The number of its last recording, and the last one that the host was seen to know done; 0
    /// before the first.
    recording: AtomicU64,
    known: AtomicU64,
}

// SAFETY: the driver allows an event to be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event that measures no time, which is the cheaper kind.
    ///
    /// # Errors
    /// When the context is broken or out of resources.
    pub fn new(context: &Context) -> Result<Event, DeviceError> {
        Event::make(context, false)
    }

    /// An event that measures time.
    ///
    /// # Errors
    /// When the context is broken or out of resources.
    pub fn timed(context: &Context) -> Result<Event, DeviceError> {
        Event::make(context, true)
    }

    fn make(context: &Context, timing: bool) -> Result<Event, DeviceError> {
        let _scope = context.enter()?;
        let handle = result::create_event(timing)?;
        let (recording, known) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Event { context: context.clone(), handle, recording, known })
    }

    /// Places it behind everything enqueued on `stream` so far. An event can be recorded again;
    /// waits that were enqueued before keep the older place.
    ///
    /// # Errors
    /// When the stream belongs to another device, or the context is broken.
    pub fn record(&self, stream: &Stream) -> Result<(), DeviceError> {
        self.context.require(stream.context().ordinal(), "the stream")?;
        let _scope = self.context.enter()?;
        // SAFETY: both live while they are borrowed.
        unsafe { result::record(self.handle, stream.raw()) }?;
        self.forget();
        let event = new_recording();
        self.context.saw(|| Op::Record { event, on: stream.agent() });
        self.recording.store(event, Ordering::Release);
        Ok(())
    }

    /// Whether everything before it is done. Never waits.
    #[must_use]
    pub fn poll(&self) -> Poll {
        let Ok(_scope) = self.context.enter() else {
            let message = "the context of the event cannot be used any more";
            return Poll::Failed(DeviceError::new(DeviceErrorKind::Driver, message));
        };
        // SAFETY: it lives while it is borrowed.
        match unsafe { result::is_done(self.handle) } {
            Ok(true) => {
                self.told_done();
                Poll::Done
            }
            Ok(false) => Poll::NotYet,
            Err(cause) => Poll::Failed(
                DeviceError::new(DeviceErrorKind::Driver, "work before the event failed")
                    .with_cause(cause),
            ),
        }
    }

    /// Waits until everything before it is done, at most `limit`.
    ///
    /// # Errors
    /// When something before it failed, and when the limit has passed.
    pub fn wait(&self, limit: Duration) -> Result<(), DeviceError> {
        wait_for(|| self.poll(), limit, "an event of the device")
    }

    /// The time from `start` to this event, both done and made by [`Event::timed`].
    ///
    /// # Errors
    /// When one of them is not done or measures no time.
    pub fn since(&self, start: &Event) -> Result<Duration, DeviceError> {
        let _scope = self.context.enter()?;
        // SAFETY: both live while they are borrowed; the driver checks the rest.
        let milliseconds = unsafe { result::elapsed(start.handle, self.handle) }?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }

    /// The number of its last recording, `None` before the first.
    pub(crate) fn recording(&self) -> Option<u64> {
        Some(self.recording.load(Ordering::Acquire)).filter(|&number| number != 0)
    }

    /// The driver says that it is done: from now on the host knows it.
    fn told_done(&self) {
        let Some(event) = self.recording() else { return };
        if self.known.swap(event, Ordering::Relaxed) != event {
            self.context.saw(|| Op::Wait { by: Agent::Host, event });
        }
    }

    /// Nobody will wait for the last recording any more.
    pub(crate) fn forget(&self) {
        let event = self.recording.swap(0, Ordering::AcqRel);
        if event != 0 {
            self.context.saw(|| Op::Forget { event });
        }
    }

    pub(crate) fn raw(&self) -> CUevent {
        self.handle
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.forget();
        if life::driver_lives()
            && let Ok(_scope) = self.context.enter()
        {
            // SAFETY: ours; the driver keeps it until the waits on it are over.
            let _ = unsafe { result::destroy_event(self.handle) };
        }
    }
}

/// For how long a wait spins before it begins to sleep: an event that is nearly there is met
/// within a microsecond, and a long wait costs no core.
const SPIN: Duration = Duration::from_micros(250);
const LONGEST_SLEEP: Duration = Duration::from_micros(500);

/// Polls until the answer is not "not yet", at most `limit`. `what` is named in the error.
pub(crate) fn wait_for(
    mut poll: impl FnMut() -> Poll,
    limit: Duration,
    what: &str,
) -> Result<(), DeviceError> {
    let begin = Instant::now();
    let mut sleep = Duration::from_micros(20);
    loop {
        match poll() {
            Poll::Done => return Ok(()),
            Poll::Failed(error) => return Err(error),
            Poll::NotYet => {}
        }
        let waited = begin.elapsed();
        if waited >= limit {
            let message = format!("{what} was not done after {:.3} s", limit.as_secs_f64());
            return Err(DeviceError::new(DeviceErrorKind::TimedOut, message).with_advice(
                "A kernel may be running for long or hang; nothing was freed or overwritten.",
            ));
        }
        if waited < SPIN {
            std::hint::spin_loop();
        } else {
            std::thread::sleep(sleep.min(limit.saturating_sub(waited)));
            sleep = (sleep * 2).min(LONGEST_SLEEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_first_answer_that_is_not_not_yet() {
        let mut answers = vec![Poll::Done, Poll::NotYet, Poll::NotYet];
        let poll = || answers.pop().unwrap_or(Poll::Done);
        assert!(wait_for(poll, Duration::from_secs(60), "x").is_ok());
        assert!(answers.is_empty());
    }

    #[test]
    fn a_wait_without_an_end_is_an_error_that_names_the_limit() {
        let error = wait_for(|| Poll::NotYet, Duration::from_millis(2), "the copy").unwrap_err();
        assert_eq!(error.kind(), DeviceErrorKind::TimedOut);
        assert!(error.to_string().contains("the copy was not done after 0.002 s"), "{error}");
    }

    #[test]
    fn failed_work_is_told_apart_from_unfinished_work() {
        let failed = || Poll::Failed(DeviceError::new(DeviceErrorKind::Driver, "gone"));
        let error = wait_for(failed, Duration::from_secs(60), "x").unwrap_err();
        assert_eq!(error.kind(), DeviceErrorKind::Driver);
    }
}
