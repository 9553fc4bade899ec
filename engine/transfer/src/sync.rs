//! Locks, waits and threads: those of `std`, or in `tests/interleavings` those of a scheduler that
//! tries many interleavings. All blocking of this crate goes through here.
//!
//! A panic while a lock is held does not make it unusable: every critical section of this crate
//! either completes or changes nothing.

#[cfg(not(feature = "shuttle"))]
pub use std::{
    sync::{Condvar, Mutex, MutexGuard, atomic},
    thread,
};

#[cfg(feature = "shuttle")]
pub use shuttle::{
    sync::{Condvar, Mutex, MutexGuard, atomic},
    thread,
};

use std::sync::PoisonError;
use std::time::Duration;

/// Locks `mutex`, also after a panic elsewhere.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `condvar` is notified; may return earlier.
pub fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `condvar` is notified, at most `span`; may return earlier. Under shuttle `span`
/// never passes: a missing notification is then found as a deadlock.
pub fn wait_timeout<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    span: Duration,
) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, span).unwrap_or_else(PoisonError::into_inner).0
}
