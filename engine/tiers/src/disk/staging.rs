//! Staging memory: aligned buffers for bytes that do not fit the medium's grid.
//!
//! A buffer is borrowed until its I/O has ended and never shared, so nothing is overwritten while
//! the medium still reads it. There are at most `BUFFERS` of them, and fewer when the machine or
//! the control group has little memory left: more concurrent calls wait.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use unspool_cuda::memory_left;

/// Bytes of one buffer.
pub(super) const SIZE: usize = 1 << 20;
/// The most buffers.
const BUFFERS: usize = 16;
/// Addresses of buffers are multiples of this: enough for every medium.
const ALIGNMENT: usize = 4096;
/// The longest wait for a buffer. Every buffer is held for the time of some I/O of at most
/// 1 MiB each, so a longer wait means that the medium hangs.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// The buffers of a tier, made when they are first needed.
#[derive(Debug, Default)]
pub(super) struct Staging {
    state: Mutex<StagingState>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct StagingState {
    idle: Vec<Vec<u8>>,
    in_use: usize,
}

impl StagingState {
    /// Whether a call gets a buffer now. One buffer is always made, so that no call waits for ever.
    fn may_lease(&self, has_memory: impl Fn() -> bool) -> bool {
        self.in_use == 0 || !self.idle.is_empty() || (self.in_use < BUFFERS && has_memory())
    }
}

impl Staging {
    /// A buffer; `None` when every buffer stayed in use for as long as a call may wait.
    pub(super) fn lease(&self) -> Option<BufferLease<'_>> {
        self.lease_where(|| memory_left().spare() >= SIZE as u64)
    }

    fn lease_where(&self, has_memory: impl Fn() -> bool) -> Option<BufferLease<'_>> {
        let deadline = Instant::now() + LONGEST_WAIT;
        let mut state = self.state();
        while !state.may_lease(&has_memory) {
            let left = deadline.checked_duration_since(Instant::now())?;
            let woken = self.returned.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.in_use += 1;
        let bytes = state.idle.pop();
        drop(state);
        let bytes = bytes.unwrap_or_else(|| vec![0; SIZE + ALIGNMENT]);
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Some(BufferLease { staging: self, bytes, start })
    }

    fn state(&self) -> MutexGuard<'_, StagingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `SIZE` bytes at an aligned address.
#[derive(Debug)]
pub(super) struct BufferLease<'a> {
    staging: &'a Staging,
    bytes: Vec<u8>,
    start: usize,
}

impl Deref for BufferLease<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + SIZE]
    }
}

impl DerefMut for BufferLease<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + SIZE]
    }
}

impl Drop for BufferLease<'_> {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut state = self.staging.state();
        state.in_use -= 1;
        state.idle.push(bytes);
        drop(state);
        self.staging.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_apart_and_used_again() {
        let staging = Staging::default();
        let mut one = staging.lease().unwrap();
        let mut two = staging.lease().unwrap();
        assert_eq!(one.as_ptr().align_offset(ALIGNMENT), 0);
        one.fill(1);
        two.fill(2);
        assert!(one.iter().all(|&byte| byte == 1));
        drop((one, two));
        assert_eq!(staging.state().idle.len(), 2);
        drop(staging.lease().unwrap());
        assert_eq!(staging.state().idle.len(), 2);
    }

    #[test]
    fn a_call_waits_for_a_buffer_when_all_are_in_use() {
        let staging = Staging::default();
        let mut leases: Vec<BufferLease<'_>> =
            (0..BUFFERS).map(|_| staging.lease().unwrap()).collect();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| staging.lease().is_some());
            leases.pop();
            assert!(waiting.join().unwrap());
        });
        assert_eq!(staging.state().in_use, BUFFERS - 1);
    }

    #[test]
    fn a_call_waits_for_a_buffer_when_there_is_no_memory_for_another() {
        let staging = Staging::default();
        let first = staging.lease_where(|| false).unwrap();
        assert!(!staging.state().may_lease(|| false));
        assert!(staging.state().may_lease(|| true));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| staging.lease_where(|| false).is_some());
            drop(first);
            assert!(waiting.join().unwrap());
        });
        let state = staging.state();
        assert_eq!((state.in_use, state.idle.len()), (0, 1));
    }
}
