//! `malloc` and its kin. Large allocations are paged, all others are passed on.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::next::{self, early, early_rest, fail};
use crate::pages::{Answer, allocate, release, say_once};
use crate::table;

/// What paged memory is aligned to.
const ALIGNED: usize = 2 << 20;

/// The answer of a function that returns a pointer; `next` is for ordinary memory.
fn pointer(bytes: usize, next: impl FnOnce() -> *mut c_void) -> *mut c_void {
    match allocate(bytes) {
        Answer::Paged(place) => place,
        Answer::Ordinary => next(),
        Answer::Refused => {
            fail(libc::ENOMEM);
            ptr::null_mut()
        }
    }
}

/// `malloc` of C.
///
/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    // SAFETY: the caller's.
    pointer(bytes, || early(bytes).unwrap_or_else(|| unsafe { next::malloc(bytes) }))
}

/// `calloc` of C. Paged memory is zeros at first.
///
/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    // A product that is too large is refused by the next library.
    let bytes = count.checked_mul(size).unwrap_or(0);
    // SAFETY: the caller's.
    pointer(bytes, || early(bytes).unwrap_or_else(|| unsafe { next::calloc(count, size) }))
}

/// `free` of C.
///
/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(place: *mut c_void) {
    if let Some(entry) = table::at(place) {
        release(&entry);
    } else if early_rest(place).is_none() {
        // SAFETY: the caller's.
        unsafe { next::free(place) };
    }
}

/// `realloc` of C. What is or becomes paged is copied, unless it shrinks and stays large.
///
/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(place: *mut c_void, bytes: usize) -> *mut c_void {
    if let Some(rest) = early_rest(place) {
        // SAFETY: the caller's; there are so many bytes to copy.
        return unsafe { copied(place, rest, bytes) };
    }
    let Some(entry) = table::at(place) else {
        // SAFETY: the caller's.
        return unsafe { realloc_ordinary(place, bytes) };
    };
    if bytes == 0 {
        release(&entry);
        return ptr::null_mut();
    }
    if entry.paged().is_none() {
        say_once("a child cannot have an array of its parent's at another size: it is not there");
        fail(libc::ENOMEM);
        return ptr::null_mut();
    }
    // What gets a little smaller stays, and what gets much smaller gives the rest back.
    if bytes <= entry.bytes && bytes >= entry.bytes / 2 {
        return place;
    }
    // SAFETY: the caller's; there are so many bytes to copy.
    let new = unsafe { copied(place, entry.bytes, bytes) };
    if !new.is_null() {
        release(&entry);
    }
    new
}

/// # Safety
/// As C's.
unsafe fn realloc_ordinary(place: *mut c_void, bytes: usize) -> *mut c_void {
    if place.is_null() {
        // SAFETY: the caller's.
        return unsafe { malloc(bytes) };
    }
    match allocate(bytes) {
        Answer::Paged(new) => {
            // SAFETY: the caller's memory, which has as many bytes as is said, and new memory.
            unsafe {
                let old = next::malloc_usable_size(place);
                ptr::copy_nonoverlapping(place.cast::<u8>(), new.cast(), old.min(bytes));
                next::free(place);
            }
            new
        }
        // SAFETY: the caller's.
        Answer::Ordinary => unsafe { next::realloc(place, bytes) },
        Answer::Refused => {
            fail(libc::ENOMEM);
            ptr::null_mut()
        }
    }
}

/// New memory with what the old one has; null when there is none.
///
/// # Safety
/// There are `old` bytes.
unsafe fn copied(place: *mut c_void, old: usize, bytes: usize) -> *mut c_void {
    // SAFETY: it takes any size.
    let new = unsafe { malloc(bytes) };
    if !new.is_null() {
        // SAFETY: the caller's memory, and new memory.
        unsafe { ptr::copy_nonoverlapping(place.cast::<u8>(), new.cast(), old.min(bytes)) };
    }
    new
}

/// `posix_memalign` of POSIX.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    let usual = align.is_power_of_two() && (size_of::<usize>()..=ALIGNED).contains(&align);
    match if usual { allocate(bytes) } else { Answer::Ordinary } {
        Answer::Paged(place) => {
            // SAFETY: the caller's.
            unsafe { *to = place };
            0
        }
        // SAFETY: the caller's.
        Answer::Ordinary => unsafe { next::posix_memalign(to, align, bytes) },
        Answer::Refused => libc::ENOMEM,
    }
}

/// `aligned_alloc` of C.
///
/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    let paged = if align <= ALIGNED && align.is_power_of_two() { bytes } else { 0 };
    // SAFETY: the caller's.
    pointer(paged, || unsafe { next::aligned_alloc(align, bytes) })
}

/// `memalign` of the C libraries.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    let paged = if align <= ALIGNED && align.is_power_of_two() { bytes } else { 0 };
    // SAFETY: the caller's.
    pointer(paged, || unsafe { next::memalign(align, bytes) })
}

/// `malloc_usable_size` of the C libraries.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(place: *mut c_void) -> usize {
    let own = table::at(place).map(|entry| entry.bytes);
    // SAFETY: the caller's.
    own.or_else(|| early_rest(place)).unwrap_or_else(|| unsafe { next::malloc_usable_size(place) })
}
