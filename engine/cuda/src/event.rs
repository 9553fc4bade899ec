//! Events: places in a stream that can be waited for.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use unspool_verify::{Agent, Op};

use crate::context::{Context, Scope};
use crate::error::{DeviceError, DeviceErrorKind};
use crate::raw::CUevent;
use crate::stream::Stream;
use crate::watch::new_recording;
use crate::{life, result};

/// The state of an event. "Not yet" and "failed" are different answers.
#[derive(Clone, Debug)]
pub enum Poll {
    /// Everything before it is done, or it was never recorded.
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
            // SAFETY: owned by this value; the driver keeps it until the waits on it are over.
            let _ = unsafe { result::destroy_event(self.handle) };
        }
    }
}

/// For how long a wait spins before it begins to sleep: about the duration of a copy of 4 MiB. A
/// long wait then does not occupy a core.
const SPIN: Duration = Duration::from_micros(100);
/// The pause between two polls of a wait that spins, at least and at most. A poll takes a lock of
/// the driver: without pauses, calls of other threads take several times as long.
const SHORTEST_PAUSE: Duration = Duration::from_micros(1);
const LONGEST_PAUSE: Duration = Duration::from_micros(10);
const SHORTEST_SLEEP: Duration = Duration::from_micros(25);
const LONGEST_SLEEP: Duration = Duration::from_micros(500);

/// The sleep between two polls after having waited for `waited`: a fixed part of it, so that the
/// delay stays small relative to the wait, and the polls cost ever less.
fn sleep_after(waited: Duration) -> Duration {
    (waited / 64).clamp(SHORTEST_SLEEP, LONGEST_SLEEP)
}

/// The pause between two polls after having spun for `waited`.
fn pause_after(waited: Duration) -> Duration {
    (waited / 4).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

/// Polls until the answer is not "not yet", at most `limit`. The error names `what`.
pub fn wait_for(
    mut poll: impl FnMut() -> Poll,
    limit: Duration,
    what: &str,
) -> Result<(), DeviceError> {
    let begin = Instant::now();
    let mut punctual = None;
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
            let pause = waited + pause_after(waited);
            while begin.elapsed() < pause {
                std::hint::spin_loop();
            }
        } else {
            punctual.get_or_insert_with(Punctual::begin);
            std::thread::sleep(sleep_after(waited).min(limit.saturating_sub(waited)));
        }
    }
}

/// Precise sleeps of this thread until it is dropped. By default the system may extend each sleep
/// by up to 50 microseconds, to wake the processor less often.
#[derive(Debug)]
pub struct Punctual {
    before: Option<i32>,
    _of_this_thread: PhantomData<*mut ()>,
}

impl Punctual {
    /// Sets the timer slack of this thread to its minimum.
    #[must_use]
    pub fn begin() -> Punctual {
        // SAFETY: both calls read and set a number of this thread.
        let before = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
        let known = before > 0;
        if known {
            // SAFETY: as above.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
        }
        Punctual { before: known.then_some(before), _of_this_thread: PhantomData }
    }
}

impl Drop for Punctual {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: as above; the number that was there.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, i64::from(before), 0, 0, 0) };
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
    fn a_wait_is_late_by_a_small_part_of_itself() {
        for micros in [0u64, 100, 1_000, 2_400, 10_000, 1_000_000] {
            let waited = Duration::from_micros(micros);
            let sleep = sleep_after(waited);
            assert!(sleep <= (waited / 64).max(SHORTEST_SLEEP) && sleep <= LONGEST_SLEEP);
            assert!(sleep > Duration::ZERO);
        }
        assert!(sleep_after(Duration::from_micros(2_400)) < Duration::from_micros(40));
    }

    #[test]
    fn a_wait_leaves_the_timers_of_its_thread_as_they_were() {
        // SAFETY: reads a number of this thread.
        let slack = || unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
        let before = slack();
        assert!(wait_for(|| Poll::NotYet, Duration::from_millis(1), "x").is_err());
        assert_eq!(slack(), before);
    }

    #[test]
    fn failed_work_is_distinguished_from_unfinished_work() {
        let failed = || Poll::Failed(DeviceError::new(DeviceErrorKind::Driver, "gone"));
        let error = wait_for(failed, Duration::from_secs(60), "x").unwrap_err();
        assert_eq!(error.kind(), DeviceErrorKind::Driver);
    }
}
