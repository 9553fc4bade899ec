//! Memory of our own in the place of a region that does not lie anywhere as its values.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// The alignment of such memory: what every library takes over as it is.
pub const ALIGNMENT: usize = 64;

/// Zeroed bytes at an address that never changes, written by whoever was given it.
#[derive(Debug)]
pub struct FixedMemory {
    first: NonNull<u8>,
    layout: Layout,
    bytes: usize,
}

// SAFETY: it is an allocation of its own that belongs to nobody else; what happens at its address
// is promised where the address is given away.
unsafe impl Send for FixedMemory {}
// SAFETY: as above.
unsafe impl Sync for FixedMemory {}

impl FixedMemory {
    /// So many bytes; at least one is allocated.
    pub fn new(bytes: usize) -> FixedMemory {
        let size = bytes.max(1).min(isize::MAX as usize - ALIGNMENT);
        let layout = match Layout::from_size_align(size, ALIGNMENT) {
            Ok(layout) => layout,
            // The alignment is a power of two and the size was limited.
            Err(_) => unreachable!("{size} bytes can be laid out"),
        };
        // SAFETY: the layout has at least one byte.
        let Some(first) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        FixedMemory { first, layout, bytes }
    }

    /// Its address.
    pub fn address(&self) -> usize {
        self.first.as_ptr().expose_provenance()
    }

    /// What is in it.
    ///
    /// # Safety
    /// Nobody writes it meanwhile.
    pub unsafe fn values(&self) -> &[u8] {
        // SAFETY: the allocation has at least `bytes` bytes, initialised, and lives as long as
        // `self`; nobody writes it, as the caller promises.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.bytes) }
    }
}

impl Drop for FixedMemory {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout and is freed once, here.
        unsafe { dealloc(self.first.as_ptr(), self.layout) }
    }
}
