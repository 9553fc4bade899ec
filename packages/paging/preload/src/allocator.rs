//! The memory of this library and of the pager in it: always that of the next library, so that
//! nothing which works on a page fault can wait for one.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;

use crate::next;

/// What `malloc` aligns to.
const USUAL: usize = 16;

struct Next;

#[global_allocator]
static NEXT: Next = Next;

// SAFETY: memory of `malloc` or `posix_memalign`, which is given back by `free` and belongs to
// nobody else meanwhile.
unsafe impl GlobalAlloc for Next {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= USUAL {
            let early = next::early(layout.size());
            // SAFETY: `malloc` takes any size.
            return early.unwrap_or_else(|| unsafe { next::malloc(layout.size()) }).cast();
        }
        let mut place: *mut c_void = std::ptr::null_mut();
        // SAFETY: a power of two that is larger than a pointer, and room for the answer.
        unsafe { next::posix_memalign(&raw mut place, layout.align(), layout.size()) };
        place.cast()
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= USUAL {
            let early = next::early(layout.size());
            // SAFETY: `calloc` takes any size.
            return early.unwrap_or_else(|| unsafe { next::calloc(1, layout.size()) }).cast();
        }
        // SAFETY: the caller's layout is valid, and `alloc` gives at least its size.
        unsafe {
            let place = self.alloc(layout);
            if !place.is_null() {
                place.write_bytes(0, layout.size());
            }
            place
        }
    }

    unsafe fn dealloc(&self, place: *mut u8, _: Layout) {
        if next::early_rest(place.cast()).is_none() {
            // SAFETY: it is from the functions above.
            unsafe { next::free(place.cast()) };
        }
    }
}
