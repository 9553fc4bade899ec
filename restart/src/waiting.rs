//! A wait for a place that may not answer, which ends when the caller says so.

use std::sync::mpsc::{RecvTimeoutError, channel};

use unspool::{Error, ErrorKind, Wait};

use crate::worker::{POLL, interrupted, spawn};

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
    spawn("unspool-ask", move || drop(give.send(work())))?;
    loop {
        match take.recv_timeout(POLL) {
            Ok(done) => return done,
            Err(RecvTimeoutError::Timeout) if (wait.interrupted)() => {
                return Err(interrupted(what));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let message = format!("The thread that waited for {what} has ended by a mistake.");
                return Err(Error::new(ErrorKind::Io, message));
            }
        }
    }
}
