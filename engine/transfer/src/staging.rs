//! Staging buffers: page-aligned memory for bytes on their way between two places.
//!
//! A buffer has one owner and returns to the pool only when it is dropped, so bytes in use are
//! never overwritten.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use unspool_codec::memory::zeros;

use crate::sync::{Mutex, lock};

/// Addresses of buffers are multiples of this, so that stores can read and write them directly.
const ALIGNMENT: usize = 4096;

/// A pool of idle buffers up to a limit.
#[derive(Debug)]
pub struct Pool {
    idle: Mutex<Vec<AlignedBytes>>,
    max_idle_bytes: u64,
}

impl Pool {
    /// A pool that keeps at most `max_idle_bytes` bytes of idle buffers.
    #[must_use]
    pub fn new(max_idle_bytes: u64) -> Arc<Pool> {
        Arc::new(Pool { idle: Mutex::new(Vec::new()), max_idle_bytes })
    }

    /// A buffer of `len` bytes with unspecified content. `None` when the machine has no memory for
    /// it.
    #[must_use]
    pub fn take(self: &Arc<Self>, len: usize) -> Option<Buffer> {
        let memory = match self.best_fit(len) {
            Some(memory) => memory,
            None => AlignedBytes::new(len)?,
        };
        Some(Buffer { memory, len, pool: Arc::clone(self) })
    }

    /// The smallest idle memory of at least `len` and at most `2 * len` bytes.
    fn best_fit(&self, len: usize) -> Option<AlignedBytes> {
        let mut idle = lock(&self.idle);
        let wanted = len..=len.saturating_mul(2).max(ALIGNMENT);
        let (index, _) = idle
            .iter()
            .enumerate()
            .filter(|(_, memory)| wanted.contains(&memory.len))
            .min_by_key(|(_, memory)| memory.len)?;
        Some(idle.swap_remove(index))
    }

    /// Keeps `memory`; older idle memory is freed for it, because sizes tend to repeat.
    fn keep(&self, memory: AlignedBytes) {
        if memory.bytes() > self.max_idle_bytes {
            return;
        }
        let mut idle = lock(&self.idle);
        let mut held: u64 = idle.iter().map(AlignedBytes::bytes).sum();
        while held + memory.bytes() > self.max_idle_bytes {
            held -= idle.remove(0).bytes();
        }
        idle.push(memory);
    }
}

/// Bytes that start at a multiple of [`ALIGNMENT`].
#[derive(Default)]
struct AlignedBytes {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    /// Fresh zero pages of the system, which cost nothing until they are touched.
    fn new(len: usize) -> Option<AlignedBytes> {
        let len = len.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let total = len.checked_add(ALIGNMENT)?;
        let bytes = zeros(total)?;
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Some(AlignedBytes { bytes, start, len })
    }

    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }
}

impl fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("len", &self.len).finish_non_exhaustive()
    }
}

/// A staging buffer; dropping it returns it to its pool.
#[derive(Debug)]
pub struct Buffer {
    memory: AlignedBytes,
    len: usize,
    pool: Arc<Pool>,
}

impl Buffer {
    /// Shortens the buffer to its first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory.bytes[self.memory.start..][..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory.bytes[self.memory.start..][..self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // In debug builds a use of the last owner's bytes shows.
        if cfg!(debug_assertions) {
            self.fill(0xA5);
        }
        self.pool.keep(std::mem::take(&mut self.memory));
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;

    fn idle_bytes(pool: &Pool) -> u64 {
        lock(&pool.idle).iter().map(AlignedBytes::bytes).sum()
    }

    #[test]
    fn a_buffer_is_aligned_and_as_long_as_asked_for() {
        let pool = Pool::new(1 << 20);
        for len in [0, 1, 4095, 4096, 4097, 100_000] {
            let buffer = pool.take(len).unwrap();
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
        }
    }

    #[test]
    fn memory_is_reused_only_after_its_buffer_is_gone() {
        let pool = Pool::new(1 << 20);
        let first = pool.take(8192).unwrap();
        let second = pool.take(8192).unwrap();
        let address = first.as_ptr();
        assert_ne!(address, second.as_ptr());
        drop(first);
        assert_eq!(pool.take(8000).unwrap().as_ptr(), address);
    }

    #[test]
    fn idle_memory_stays_below_the_limit() {
        let pool = Pool::new(100_000);
        let buffers: Vec<Buffer> = (0..10).map(|_| pool.take(30_000).unwrap()).collect();
        drop(buffers);
        assert!(idle_bytes(&pool) <= 100_000);
        assert!(idle_bytes(&pool) >= 60_000);
        drop(pool.take(1_000_000));
        assert!(idle_bytes(&pool) <= 100_000, "larger than the limit is not kept at all");
    }

    #[test]
    fn a_size_that_no_machine_has_is_refused() {
        assert!(Pool::new(0).take(usize::MAX - 10_000).is_none());
        assert!(Pool::new(0).take(usize::MAX).is_none());
    }
}
