//! Releasing what the device may still be using: after its last use is done, on a thread that
//! nobody waits for. What does not finish within the limit, or failed, is leaked and counted:
//! memory that may still be written to is never given back.

use std::time::Duration;

use crate::context::Context;
use crate::error::DeviceError;
use crate::event::{Event, Poll};
use crate::life;

/// How long a release waits for the last use before it leaks. Far longer than any copy; a kernel
/// that runs longer is likely to hang.
const LIMIT: Duration = Duration::from_secs(600);

/// What has to be done before something is released.
#[derive(Debug)]
pub(crate) enum After {
    /// These events.
    Events(Vec<Event>),
    /// Whatever was enqueued on the device: nobody said more.
    Everything(Context),
}

impl After {
    fn wait(&self, limit: Duration) -> Result<(), DeviceError> {
        match self {
            After::Events(events) => events.iter().try_for_each(|event| event.wait(limit)),
            After::Everything(context) => context.synchronize(),
        }
    }

    fn is_done(&self) -> bool {
        match self {
            After::Events(events) => events.iter().all(|event| matches!(event.poll(), Poll::Done)),
            After::Everything(_) => false,
        }
    }
}

/// Runs `release` after `after`, at once when that is done already.
pub(crate) fn now_or_later(after: After, release: impl FnOnce() + Send + 'static) {
    if life::driver_lives() && after.is_done() {
        return release();
    }
    in_background(after, release);
}

/// Runs `release` after `after` on a thread of its own. At the end of the process, or when no
/// thread can be had, it is leaked.
pub(crate) fn in_background(after: After, release: impl FnOnce() + Send + 'static) {
    if !life::driver_lives() {
        std::mem::forget(release);
        return;
    }
    let counted = life::Releasing::begin();
    let job = move || {
        match after.wait(LIMIT) {
            Ok(()) if life::driver_lives() => release(),
            _ => leak((release, after)),
        }
        drop(counted);
    };
    let thread = std::thread::Builder::new().name("unspool-release".to_owned());
    if thread.spawn(job).is_err() {
        life::count_leak();
    }
}

fn leak<T>(what: T) {
    std::mem::forget(what);
    life::count_leak();
}
