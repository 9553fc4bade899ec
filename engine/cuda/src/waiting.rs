//! Waits with a limit, by polls.

use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::error::{DeviceError, DeviceErrorKind};

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
