//! Pages of this process, which back all memory of the fake.

use std::ffi::c_void;
use std::ptr;

use crate::codes::{Code, Outcome};

/// Content of memory that was not written since its allocation, or was freed.
pub(crate) const POISON: u8 = 0xDB;

pub(crate) const PAGE: u64 = 4096;

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

fn map(at: u64, len: u64, access: i32, flags: i32, file: i32, offset: u64) -> Outcome<u64> {
    let place = at as *mut c_void;
    // SAFETY: either the system chooses the address, or the caller owns the range at `at`.
    let got =
        unsafe { libc::mmap(place, len as usize, access, flags, file, offset as libc::off_t) };
    if got == libc::MAP_FAILED { Err(Code::OUT_OF_MEMORY) } else { Ok(got as u64) }
}

/// Allocates `len` usable bytes, poisoned.
pub(crate) fn allocate(len: u64) -> Outcome<u64> {
    let address = map(0, len, READ_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)?;
    // SAFETY: mapped just now with this length.
    unsafe { ptr::write_bytes(address as *mut u8, POISON, len as usize) };
    Ok(address)
}

/// Poisons freed memory.
///
/// # Safety
/// `len` bytes from [`allocate`] that have no user any more.
pub(crate) unsafe fn poison(address: u64, len: u64) {
    // SAFETY: the caller's duty.
    unsafe { ptr::write_bytes(address as *mut u8, POISON, len as usize) };
}

/// Unmaps memory.
///
/// # Safety
/// `len` bytes from a function of this module that have no user any more.
pub(crate) unsafe fn unmap(address: u64, len: u64) {
    // SAFETY: the caller's duty. It fails only for ranges that are not mapped.
    let _ = unsafe { libc::munmap(address as *mut c_void, len as usize) };
}

/// Reserves `len` bytes of inaccessible addresses, at a multiple of `alignment`.
pub(crate) fn reserve(len: u64, alignment: u64) -> Outcome<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let whole = len.checked_add(alignment).ok_or(Code::OUT_OF_MEMORY)?;
    let first = map(0, whole, libc::PROT_NONE, flags, -1, 0)?;
    let address = first.next_multiple_of(alignment);
    let (before, after) = (address - first, first + whole - (address + len));
    for (at, len) in [(first, before), (address + len, after)] {
        if len > 0 {
            // SAFETY: the parts of our own mapping before and after the reserved range.
            unsafe { unmap(at, len) };
        }
    }
    Ok(address)
}

/// Makes a range inaccessible and drops its content.
///
/// # Safety
/// A part of a range from [`reserve`] that has no user any more.
pub(crate) unsafe fn close(address: u64, len: u64) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // On an error the memory stays readable, which only makes the fake less strict.
    let _ = map(address, len, libc::PROT_NONE, flags, -1, 0);
}

/// Makes a mapped range accessible.
///
/// # Safety
/// A part of a range from [`reserve`] at which [`Backing`] was mapped.
pub(crate) unsafe fn open(address: u64, len: u64) -> Outcome {
    // SAFETY: the caller's duty.
    match unsafe { libc::mprotect(address as *mut c_void, len as usize, READ_WRITE) } {
        0 => Ok(()),
        _ => Err(Code::OUT_OF_MEMORY),
    }
}

/// Whether the pages of a range are mapped at all.
pub(crate) fn is_mapped(address: u64, len: u64) -> bool {
    let begin = address - address % PAGE;
    let end = (address + len).next_multiple_of(PAGE);
    let mut present = vec![0u8; ((end - begin) / PAGE) as usize];
    // SAFETY: the vector has a byte for each page; the call changes nothing.
    let looked = unsafe {
        libc::mincore(begin as *mut c_void, (end - begin) as usize, present.as_mut_ptr())
    };
    looked == 0
}

/// Memory without an address until it is mapped: an unnamed file in memory.
#[derive(Debug)]
pub(crate) struct Backing {
    file: i32,
    len: u64,
}

impl Backing {
    /// Creates `len` bytes, poisoned.
    pub(crate) fn new(len: u64) -> Outcome<Backing> {
        // SAFETY: a terminated name.
        let file = unsafe { libc::memfd_create(c"fakecuda".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(Code::OUT_OF_MEMORY);
        }
        let backing = Backing { file, len };
        // SAFETY: the descriptor is valid.
        if unsafe { libc::ftruncate(file, len as libc::off_t) } != 0 {
            return Err(Code::OUT_OF_MEMORY);
        }
        let address = map(0, len, READ_WRITE, libc::MAP_SHARED, file, 0)?;
        // SAFETY: mapped just now with this length, and not used elsewhere.
        unsafe {
            poison(address, len);
            unmap(address, len);
        }
        Ok(backing)
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Maps `len` bytes from `offset` of it at reserved addresses, without access.
    ///
    /// # Safety
    /// A part of a range from [`reserve`] that has no user.
    pub(crate) unsafe fn map_at(&self, address: u64, len: u64, offset: u64) -> Outcome {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        map(address, len, libc::PROT_NONE, flags, self.file, offset).map(|_| ())
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        // SAFETY: a valid descriptor that is closed once.
        unsafe { libc::close(self.file) };
    }
}
