//! Whether the driver may still be called. At process exit the driver shuts itself down, and in a
//! forked child it does not work: a value that is dropped then leaks its resource, which the system
//! reclaims anyway, because a call could hang or crash (as RMM's `process_is_exiting` does).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static EXITING: AtomicBool = AtomicBool::new(false);
static PROCESS: OnceLock<u32> = OnceLock::new();
static LEAKED: AtomicU64 = AtomicU64::new(0);
static RELEASING: AtomicU64 = AtomicU64::new(0);

extern "C" fn at_exit() {
    EXITING.store(true, Ordering::Relaxed);
}

/// Registers the exit handler, after the driver's library is loaded: handlers run in reverse order,
/// so ours runs before the driver shuts down.
pub(crate) fn watch() {
    PROCESS.get_or_init(|| {
        // SAFETY: the handler is a static function that only stores a flag.
        unsafe { libc::atexit(at_exit) };
        std::process::id()
    });
}

/// Whether the driver can be called to release a resource.
pub(crate) fn driver_lives() -> bool {
    let same_process = PROCESS.get().is_none_or(|&pid| pid == std::process::id());
    same_process && !EXITING.load(Ordering::Relaxed)
}

/// Counts a resource that is leaked instead of being released.
pub(crate) fn count_leak() {
    LEAKED.fetch_add(1, Ordering::Relaxed);
}

/// Number of leaked resources: their last use did not finish within the limit, or failed.
#[must_use]
pub fn leaked() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

/// Number of releases in progress, on threads that nobody waits for.
#[must_use]
pub fn releasing() -> u64 {
    RELEASING.load(Ordering::Acquire)
}

/// A release in progress until it is dropped.
pub(crate) struct Releasing(());

impl Releasing {
    pub(crate) fn begin() -> Releasing {
        RELEASING.fetch_add(1, Ordering::AcqRel);
        Releasing(())
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        RELEASING.fetch_sub(1, Ordering::AcqRel);
    }
}
