//! Release of resources that the device may still be using: after their last use is done, on a
//! thread that nobody waits for. If the last use fails, the resource is leaked and counted: memory
//! that may still be written to is never freed.

use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use crate::context::Context;
use crate::error::DeviceError;
use crate::life;

/// How long an arena waits for memory that is on its way back to the system or the device: a driver
/// takes some seconds for tens of gigabytes.
pub(crate) const RETURNING: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_micros(200);

/// What has to be done before a resource is released.
#[derive(Debug)]
pub(crate) enum AfterUse {
    /// Nothing: its last use is done.
    Nothing,
    /// Everything that was enqueued on the device: the last use is not known.
    Everything(Context),
}

impl AfterUse {
    fn wait(&self) -> Result<(), DeviceError> {
        match self {
            AfterUse::Nothing => Ok(()),
            AfterUse::Everything(context) => context.synchronize(),
        }
    }
}

/// Runs `release` after `after`: at once if that is nothing, else in the background.
pub(crate) fn now_or_later(after: AfterUse, release: impl FnOnce() + Send + 'static) {
    if life::driver_lives() && matches!(after, AfterUse::Nothing) {
        return release();
    }
    in_background(after, release);
}

/// Runs `release` after `after` on its own thread. At the end of the process, or when no thread can
/// be started, the resource is leaked.
pub(crate) fn in_background(after: AfterUse, release: impl FnOnce() + Send + 'static) {
    if !life::driver_lives() {
        std::mem::forget(release);
        return;
    }
    let counted = life::Releasing::begin();
    let job = move || match after.wait() {
        Ok(()) if life::driver_lives() => release(),
        _ => leak((release, after)),
    };
    let thread = std::thread::Builder::new().name("unspool-release".to_owned());
    // A thread that is refused drops what it was given: the device may still be using that.
    let job = ManuallyDrop::new(job);
    let counted_job = move || {
        ManuallyDrop::into_inner(job)();
        drop(counted);
    };
    if thread.spawn(counted_job).is_err() {
        life::count_leak();
    }
}

/// Waits until `done`, while releases are in progress that may make it true, at most `limit`.
/// Returns whether it is.
pub(crate) fn wait_for(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    loop {
        // Read first: what is released after this is looked at once more.
        let is_last = life::releasing() == 0 || begin.elapsed() >= limit;
        if done() {
            return true;
        }
        if is_last {
            return false;
        }
        std::thread::sleep(POLL);
    }
}

/// Waits for the releases in progress, at most `limit`: memory of what was dropped is free then.
pub fn settle(limit: Duration) {
    wait_for(limit, || life::releasing() == 0);
}

fn leak<T>(what: T) {
    std::mem::forget(what);
    life::count_leak();
}
