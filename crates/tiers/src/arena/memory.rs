//! The bytes of an arena: one anonymous mapping.

use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};
use unspool_core::{Failure, TierKind};

use crate::error::TierError;

/// The alignment of the first byte.
pub(super) const PAGE: u64 = 4096;

/// One contiguous buffer, zero at first, backed by memory only where it was written.
#[derive(Debug)]
pub(super) struct Memory {
    base: NonNull<u8>,
    len: u64,
    notes: Vec<String>,
}

// SAFETY: `Memory` owns its mapping and gives out addresses only; who may touch which bytes is
// decided by the arena's table.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn reserve(kind: TierKind, len: u64) -> Result<Memory, TierError> {
        if len == 0 {
            return Ok(Memory { base: NonNull::dangling(), len, notes: Vec::new() });
        }
        // SAFETY: a new private mapping at an address that the kernel chooses; it replaces nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len as usize,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|errno| {
            TierError::new(
                Failure::NoSpace,
                "reserve",
                format!("{kind} memory"),
                format!("{len} bytes cannot be reserved"),
            )
            .with_cause(errno.into())
        })?;
        let base = NonNull::new(base.cast()).unwrap_or(NonNull::dangling());
        Ok(Memory { base, len, notes: Vec::new() })
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The address of byte `offset`. The caller has checked that `[offset, offset + len)` is in
    /// range.
    pub(super) fn at(&self, offset: u64, len: u64) -> NonNull<u8> {
        assert!(offset <= self.len && len <= self.len - offset, "checked by the table");
        // SAFETY: the range lies in the mapping, as just asserted.
        unsafe { self.base.add(offset as usize) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the mapping is ours, and the guards that borrow the arena are gone.
            let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len as usize) };
        }
    }
}
