//! Access of kernels to memory: that of their device, and pinned memory of the host.

use crate::codes::{Code, Outcome};
use crate::memory::{Memory, Owner};

/// The memory that a kernel may access.
#[derive(Clone, Copy)]
pub(super) struct Touch<'a> {
    memory: &'a Memory,
    device: u32,
}

impl<'a> Touch<'a> {
    pub(super) fn new(memory: &'a Memory, device: u32) -> Touch<'a> {
        Touch { memory, device }
    }

    fn check(self, address: u64, len: u64) -> Outcome {
        match self.memory.owner(address, len) {
            _ if len == 0 => Ok(()),
            Ok(Owner::Pinned) => Ok(()),
            Ok(Owner::Device(device)) if device == self.device => Ok(()),
            _ => Err(Code::ILLEGAL_ADDRESS),
        }
    }

    pub(super) fn bytes(self, address: u64, len: u64) -> Outcome<Vec<u8>> {
        self.check(address, len)?;
        let byte = |at| {
            // SAFETY: checked just now, under the lock that prevents freeing.
            unsafe { ((address + at) as *const u8).read() }
        };
        Ok((0..len).map(byte).collect())
    }

    pub(super) fn words(self, address: u64, count: u64) -> Outcome<Vec<u64>> {
        let bytes = self.bytes(address, 8 * count)?;
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |x, &byte| x << 8 | u64::from(byte));
        Ok(bytes.chunks_exact(8).map(word).collect())
    }

    pub(super) fn word(self, address: u64) -> Outcome<u64> {
        Ok(self.words(address, 1)?[0])
    }

    pub(super) fn write(self, address: u64, bytes: &[u8]) -> Outcome {
        self.check(address, bytes.len() as u64)?;
        // SAFETY: checked just now, under the lock that prevents freeing.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len());
        }
        Ok(())
    }

    /// Writes whole words, which the host may read concurrently.
    pub(super) fn write_words(self, address: u64, words: &[u64]) -> Outcome {
        if !address.is_multiple_of(8) {
            return Err(Code::MISALIGNED_ADDRESS);
        }
        self.check(address, 8 * words.len() as u64)?;
        for (at, &word) in words.iter().enumerate() {
            let place = (address as *mut u64).wrapping_add(at);
            // SAFETY: checked just now, and aligned.
            let place = unsafe { std::sync::atomic::AtomicU64::from_ptr(place) };
            place.store(word, std::sync::atomic::Ordering::Release);
        }
        Ok(())
    }

    /// The begin of a checkpoint, by the five words of a `Place`.
    pub(super) fn begin_of(self, place: &[u64]) -> Outcome<u64> {
        match place[1] {
            0 => Ok(place[0]),
            before => Ok(self.word(before)?.next_multiple_of(place[2])),
        }
    }
}

/// The parameters of a kernel, one after the other.
pub(super) struct Parameters<'a>(pub(super) &'a [u64]);

impl<'a> Parameters<'a> {
    pub(super) fn take(&mut self, count: usize) -> Outcome<&'a [u64]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Code::LAUNCH_FAILED)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn next(&mut self) -> Outcome<u64> {
        Ok(self.take(1)?[0])
    }
}
