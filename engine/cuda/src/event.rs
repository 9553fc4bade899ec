//! Events: places in a stream that can be waited for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use unspool_verify::{Agent, Op};

use crate::context::{Context, Scope};
use crate::driver::raw::CUevent;
use crate::driver::result;
use crate::error::{DeviceError, DeviceErrorKind};
use crate::life;
use crate::stream::Stream;
use crate::waiting::{Poll, wait_for};
use crate::watch::new_recording;

/// An event of one device.
#[derive(Debug)]
pub struct Event {
    context: Context,
    handle: CUevent,
    /// The number of the last recording, and of the last one that the host knows to be done; 0
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

    /// Places the event after everything enqueued on `stream` so far. It can be recorded again;
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
        match self.enter() {
            Ok(_scope) => self.poll_entered(),
            Err(error) => Poll::Failed(error),
        }
    }

    fn enter(&self) -> Result<Scope, DeviceError> {
        self.context.enter().map_err(|cause| {
            let message = "the context of the event cannot be used any more";
            DeviceError::new(DeviceErrorKind::Driver, message).with_cause(cause)
        })
    }

    /// [`poll`](Self::poll) when a context is current already, of this or another device.
    pub(crate) fn poll_entered(&self) -> Poll {
        // SAFETY: it lives while it is borrowed.
        match unsafe { result::is_done(self.handle) } {
            Ok(true) => {
                self.report_done();
                Poll::Done
            }
            Ok(false) => Poll::NotYet,
            Err(cause) => Poll::Failed(
                DeviceError::new(DeviceErrorKind::Driver, "work before the event failed")
                    .with_cause(cause),
            ),
        }
    }

    /// Waits until everything before it is done, at most `limit`. It sleeps most of the time, so it
    /// notices the end up to 30 microseconds late, or by a sixty-fourth of the time waited if that
    /// is longer (at most 0.5 ms).
    ///
    /// # Errors
    /// When something before it failed, and when the limit has passed.
    pub fn wait(&self, limit: Duration) -> Result<(), DeviceError> {
        let _scope = self.enter()?;
        wait_for(|| self.poll_entered(), limit, "an event of the device")
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

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// The number of its last recording, `None` before the first.
    pub(crate) fn recording(&self) -> Option<u64> {
        Some(self.recording.load(Ordering::Acquire)).filter(|&number| number != 0)
    }

    /// Records that the host has seen the last recording done.
    fn report_done(&self) {
        let Some(event) = self.recording() else { return };
        if self.known.load(Ordering::Acquire) != event {
            // The watch is notified first: a thread that reads `known` may enqueue work at once,
            // and the watch must have seen the wait by then. Two notifications do no harm.
            self.context.saw(|| Op::Wait { by: Agent::Host, event });
            self.known.store(event, Ordering::Release);
        }
    }

    /// Ends the use of the last recording: nothing will wait for it.
    pub(crate) fn forget(&self) {
        let event = self.recording.swap(0, Ordering::AcqRel);
        if event != 0 {
            self.context.saw(|| Op::Forget { event });
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.forget();
        if life::driver_lives()
            && let Ok(_scope) = self.context.enter()
        {
            // SAFETY: owned by this value; the driver keeps it until the waits on it are over.
            let _ = unsafe { result::destroy_event(self.handle) };
        }
    }
}

impl Stream {
    /// Makes everything that is enqueued later wait for `event`. The host does not wait. For an
    /// event that is known to be done nothing is enqueued: it is before everything that the host
    /// enqueues.
    ///
    /// # Errors
    /// When the context is broken.
    pub fn wait_for(&self, event: &Event) -> Result<(), DeviceError> {
        let _scope = self.context().enter()?;
        if matches!(event.poll_entered(), Poll::Done) {
            return Ok(());
        }
        // SAFETY: both live while they are borrowed; the driver keeps what it still needs.
        unsafe { result::stream_wait(self.raw(), event.handle) }?;
        if let Some(event) = event.recording() {
            self.context().saw(|| Op::Wait { by: self.agent(), event });
        }
        Ok(())
    }

    /// A new event recorded after everything enqueued so far.
    ///
    /// # Errors
    /// When the context is broken or out of resources.
    pub fn record(&self) -> Result<Event, DeviceError> {
        let event = Event::new(self.context())?;
        event.record(self)?;
        Ok(event)
    }

    /// Waits until everything enqueued so far is done, at most `limit`.
    ///
    /// # Errors
    /// When something before it failed, and when the limit has passed.
    pub fn sync(&self, limit: Duration) -> Result<(), DeviceError> {
        self.record()?.wait(limit)
    }
}
