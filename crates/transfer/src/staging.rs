//! Staging buffers: page-aligned memory for bytes that are between two places.
//!
//! A buffer belongs to one user until it is dropped; only then does the pool lend it again, so
//! bytes that somebody still looks at are never overwritten.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::sync::{Mutex, lock};

/// Addresses of buffers are multiples of this, so that stores can read and write them directly.
const ALIGNMENT: usize = 4096;

/// Idle buffers, kept for the next user up to a limit.
#[derive(Debug)]
pub struct Pool {
    idle: Mutex<Vec<Memory>>,
    max_idle_bytes: u64,
}

impl Pool {
    /// A pool that keeps at most `max_idle_bytes` bytes of idle buffers.
    #[must_use]
    pub fn new(max_idle_bytes: u64) -> Arc<Pool> {
        Arc::new(Pool { idle: Mutex::new(Vec::new()), max_idle_bytes })
    }

    /// Lends a buffer of `len` bytes; what they hold is unspecified. `None` when the machine has
    /// no memory for it.
    #[must_use]
    pub fn take(self: &Arc<Self>, len: usize) -> Option<Buffer> {
        let memory = match self.best_fit(len) {
            Some(memory) => memory,
            None => Memory::new(len)?,
        };
        Some(Buffer { memory, len, pool: Arc::clone(self) })
    }

    /// The bytes of the idle buffers.
    #[must_use]
    pub fn idle_bytes(&self) -> u64 {
        lock(&self.idle).iter().map(Memory::bytes).sum()
    }

    /// The smallest idle memory that holds `len` bytes and is at most twice as large.
    fn best_fit(&self, len: usize) -> Option<Memory> {
        let mut idle = lock(&self.idle);
        let wanted = len..=len.saturating_mul(2).max(ALIGNMENT);
        let (index, _) = idle
            .iter()
            .enumerate()
            .filter(|(_, memory)| wanted.contains(&memory.len))
            .min_by_key(|(_, memory)| memory.len)?;
        Some(idle.swap_remove(index))
    }

    /// Keeps `memory`; older idle memory makes way for it, because sizes tend to repeat.
    fn keep(&self, memory: Memory) {
        if memory.bytes() > self.max_idle_bytes {
            return;
        }
        let mut idle = lock(&self.idle);
        let mut held: u64 = idle.iter().map(Memory::bytes).sum();
        while held + memory.bytes() > self.max_idle_bytes {
            held -= idle.remove(0).bytes();
        }
        idle.push(memory);
    }
}

/// Bytes that start at a multiple of [`ALIGNMENT`].
#[derive(Default)]
struct Memory {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Memory {
    /// Fresh zero pages of the system: untouched ones cost nothing.
    fn new(len: usize) -> Option<Memory> {
        let len = len.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let total = len.checked_add(ALIGNMENT)?;
        // Asks first, because an allocation that is too large would end the process.
        Vec::<u8>::new().try_reserve_exact(total).ok()?;
        let bytes = vec![0; total];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Some(Memory { bytes, start, len })
    }

    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("len", &self.len).finish_non_exhaustive()
    }
}

/// A staging buffer; dropping it gives it back to its pool.
#[derive(Debug)]
pub struct Buffer {
    memory: Memory,
    len: usize,
    pool: Arc<Pool>,
}

impl Buffer {
    /// Lends only the first `len` bytes from now on.
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
        // In debug builds nobody can take the last user's bytes for his own.
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
    fn memory_is_lent_again_only_after_its_buffer_is_gone() {
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
        assert!(pool.idle_bytes() <= 100_000);
        assert!(pool.idle_bytes() >= 60_000);
        drop(pool.take(1_000_000));
        assert!(pool.idle_bytes() <= 100_000, "larger than the limit is not kept at all");
    }

    #[test]
    fn a_size_that_no_machine_has_is_refused() {
        assert!(Pool::new(0).take(usize::MAX - 10_000).is_none());
        assert!(Pool::new(0).take(usize::MAX).is_none());
    }
}
