//! Waits for a thread of this crate, which end after a time, or when the caller says so.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use unspool::{Error, ErrorKind, Wait};

/// How often a wait asks whether to go on.
const POLL: Duration = Duration::from_millis(50);

/// Waits until `done`; `late` is the error when the time is over before, after so many seconds.
///
/// # Errors
/// `Timeout` with what `late` says, `Interrupted`.
pub(crate) fn wait_until<S>(
    (state, changed): (&Mutex<S>, &Condvar),
    (wait, timeout): (&Wait<'_>, Duration),
    what: &str,
    done: impl Fn(&S) -> bool,
    late: impl Fn(&S, f64) -> String,
) -> Result<(), Error> {
    let timeout = wait.timeout.unwrap_or(timeout);
    let begun = Instant::now();
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let mut guard = lock();
    while !done(&guard) {
        let left = timeout.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(Error::new(ErrorKind::Timeout, late(&guard, timeout.as_secs_f64())));
        }
        let waited = changed.wait_timeout(guard, left.min(POLL));
        drop(waited.unwrap_or_else(PoisonError::into_inner).0);
        // Code of the caller: without the lock.
        if (wait.interrupted)() {
            let message = format!("The wait for {what} was interrupted.");
            return Err(Error::new(ErrorKind::Interrupted, message));
        }
        guard = lock();
    }
    Ok(())
}

/// What `work` gives, on a thread of its own: a caller who is interrupted does not wait for a place
/// that does not answer. The thread ends when the place does, or after the patience for it.
///
/// # Errors
/// Those of `work`; `Interrupted`; `Io` when there is no thread.
pub(crate) fn interruptible<T: Send + 'static>(
    wait: &Wait<'_>,
    what: &str,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (give, take) = channel();
    let run = move || drop(give.send(work()));
    Builder::new().name("unspool-ask".into()).spawn(run).map_err(|cause| {
        let message = format!("A thread cannot be started: {cause}.");
        Error::new(ErrorKind::Io, message).caused_by(cause)
    })?;
    loop {
        match take.recv_timeout(POLL) {
            Ok(done) => return done,
            Err(RecvTimeoutError::Timeout) if (wait.interrupted)() => {
                let message = format!("The wait for {what} was interrupted.");
                return Err(Error::new(ErrorKind::Interrupted, message));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let message = format!("The thread that waited for {what} has ended by a mistake.");
                return Err(Error::new(ErrorKind::Io, message));
            }
        }
    }
}
