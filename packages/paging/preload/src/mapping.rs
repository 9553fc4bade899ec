//! `mmap` and its kin. Large ranges of ordinary memory are paged. What would change a part of paged
//! memory that the pager relies on is refused, with a line that says so.

use std::ffi::{c_int, c_void};

use libc::off_t;

use crate::next::{self, fail};
use crate::pages::{Answer, allocate, release, say_once};
use crate::table::{self, pages};

/// Refuses a call.
fn refuse(what: &str) {
    say_once(&format!("{what}: refused with ENOTSUP, since the memory is paged"));
    fail(libc::ENOTSUP);
}

fn map(
    place: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    next: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    let advice = libc::MAP_NORESERVE | libc::MAP_POPULATE;
    let is_ordinary = place.is_null()
        && protection == libc::PROT_READ | libc::PROT_WRITE
        && flags & !advice == libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    if is_ordinary {
        return match allocate(bytes) {
            Answer::Paged(place) => place,
            Answer::Ordinary => next(),
            Answer::Refused => {
                fail(libc::ENOMEM);
                libc::MAP_FAILED
            }
        };
    }
    if flags & libc::MAP_FIXED != 0 && table::touching(place as usize, bytes).is_some() {
        refuse("mmap with MAP_FIXED in the place of paged memory");
        return libc::MAP_FAILED;
    }
    next()
}

/// `mmap` of POSIX.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    place: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's.
    let next = || unsafe { next::mmap(place, bytes, protection, flags, file, offset) };
    map(place, bytes, protection, flags, next)
}

/// `mmap` under the name that it has where offsets were made large.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    place: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe { mmap(place, bytes, protection, flags, file, offset) }
}

/// `munmap` of POSIX.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(place: *mut c_void, bytes: usize) -> c_int {
    match table::touching(place as usize, bytes) {
        // SAFETY: the caller's.
        None => unsafe { next::munmap(place, bytes) },
        Some(entry) if entry.is_whole(place as usize, bytes) => {
            release(&entry);
            0
        }
        Some(_) => {
            refuse("munmap of a part of an allocation");
            -1
        }
    }
}

/// `mprotect` of POSIX.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(place: *mut c_void, bytes: usize, protection: c_int) -> c_int {
    if table::touching(place as usize, bytes).is_none() {
        // SAFETY: the caller's.
        return unsafe { next::mprotect(place, bytes, protection) };
    }
    if protection == libc::PROT_READ | libc::PROT_WRITE {
        return 0;
    }
    refuse("mprotect");
    -1
}

/// `mremap` of Linux. Its last argument is there when the flags say so.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    place: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let is_onto = flags & libc::MREMAP_FIXED != 0 && table::touching(to as usize, new).is_some();
    match table::touching(place as usize, old) {
        // SAFETY: the caller's.
        None if !is_onto => unsafe { next::mremap(place, old, new, flags, to) },
        Some(entry) if entry.is_whole(place as usize, old) && pages(old) == pages(new) => place,
        _ => {
            refuse("mremap");
            libc::MAP_FAILED
        }
    }
}

/// `madvise` of Linux. Paged memory needs no advice; what takes bytes away is refused.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(place: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    if table::touching(place as usize, bytes).is_none() {
        // SAFETY: the caller's.
        return unsafe { next::madvise(place, bytes, advice) };
    }
    let needs_nothing = [
        libc::MADV_NORMAL,
        libc::MADV_RANDOM,
        libc::MADV_SEQUENTIAL,
        libc::MADV_WILLNEED,
        libc::MADV_FREE,
        libc::MADV_HUGEPAGE,
        libc::MADV_NOHUGEPAGE,
        libc::MADV_DONTDUMP,
        libc::MADV_DODUMP,
        libc::MADV_DONTFORK,
    ];
    if needs_nothing.contains(&advice) {
        return 0;
    }
    refuse(&format!("madvise with {advice}"));
    -1
}
