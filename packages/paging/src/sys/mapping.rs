//! Anonymous memory of this process.

use std::io;
use std::ptr::NonNull;
use std::sync::OnceLock;

use unspool_tiers::Process;

use super::checked;

/// Bytes of a huge page, to which large arrays are aligned.
const HUGE: usize = 2 << 20;

/// Bytes of a page of this machine.
pub(crate) fn page_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    // SAFETY: sysconf only reads a number.
    *BYTES.get_or_init(|| unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize)
}

/// A range of anonymous memory, zeros at first, that only who has this owns.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    process: Process,
}

// SAFETY: it owns the range as a box owns its bytes; its methods only ask the kernel for things
// that any thread may ask for.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `len` bytes, a multiple of the page and not 0; the machine gives the memory when a
    /// page is first written.
    pub(crate) fn new(len: usize) -> io::Result<Mapping> {
        let whole = len.checked_add(HUGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let flags = libc::c_long::from(flags | libc::MAP_NORESERVE);
        let (nowhere, no_file) = (0_usize, libc::c_long::from(-1));
        // SAFETY: a new range at an address that the kernel chooses.
        let start = checked(unsafe {
            let protection = libc::c_long::from(protection);
            libc::syscall(libc::SYS_mmap, nowhere, whole, protection, flags, no_file, 0_usize)
        })?;
        let start = start as *mut u8;
        let before = start.align_offset(HUGE);
        let aligned = start.wrapping_add(before);
        // SAFETY: both ends are of the range that was just made, and are not used again.
        unsafe {
            if before > 0 {
                unmap(start, before);
            }
            if whole > before + len {
                unmap(aligned.wrapping_add(len), whole - before - len);
            }
        }
        let start = NonNull::new(aligned).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, len, process: Process::of(std::process::id()) })
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Asks for huge pages. A kernel that has none goes on without.
    pub(crate) fn prefer_huge_pages(&self) {
        let _ = self.advise(0, self.len, libc::MADV_HUGEPAGE);
    }

    /// Leaves the range out of children of this process.
    pub(crate) fn keep_from_children(&self) -> io::Result<()> {
        self.advise(0, self.len, libc::MADV_DONTFORK)
    }

    /// Gives the memory of some whole pages back; they are zeros, or faults, when they are touched
    /// again.
    pub(crate) fn give_back(&self, offset: usize, len: usize) -> io::Result<()> {
        self.advise(offset, len, libc::MADV_DONTNEED)
    }

    fn advise(&self, offset: usize, len: usize, advice: libc::c_int) -> io::Result<()> {
        assert!(offset + len <= self.len, "it is a part of the mapping");
        // SAFETY: the range is ours, and each advice that is given here leaves it mapped. Who gives
        // bytes back has taken care that nobody relies on them.
        let advised = unsafe {
            let (start, advice) = (self.start().add(offset), libc::c_long::from(advice));
            libc::syscall(libc::SYS_madvise, start, len, advice)
        };
        checked(advised).map(drop)
    }

    /// Bytes of it that are in main memory now.
    pub(crate) fn resident_bytes(&self) -> io::Result<u64> {
        let mut pages = vec![0_u8; self.len.div_ceil(page_bytes())];
        // SAFETY: there is a byte for each page of the range.
        checked(unsafe { libc::mincore(self.start().cast(), self.len, pages.as_mut_ptr()) })?;
        let resident = pages.iter().filter(|&&page| page & 1 == 1).count();
        Ok((resident * page_bytes()) as u64)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A child does not have what was kept from it: other memory of its may lie there.
        if self.process.is_current() {
            // SAFETY: who drops it has taken care that nobody uses the range any more.
            unsafe { unmap(self.start(), self.len) };
        }
    }
}

/// Gives a range back.
///
/// # Safety
/// It is the caller's, and nobody uses it any more.
unsafe fn unmap(start: *mut u8, len: usize) {
    // SAFETY: the caller's.
    unsafe { libc::syscall(libc::SYS_munmap, start, len) };
}

#[cfg(test)]
mod tests {
    use super::{Mapping, page_bytes};

    #[test]
    fn memory_is_there_when_it_is_written_and_gone_when_it_is_given_back() {
        let page = page_bytes();
        let mapping = Mapping::new(8 * page).unwrap();
        assert_eq!(
            (mapping.start() as usize % (2 << 20), mapping.resident_bytes().unwrap()),
            (0, 0)
        );
        // SAFETY: the bytes are within the mapping.
        unsafe { mapping.start().add(3 * page).write(5) };
        assert_eq!(mapping.resident_bytes().unwrap(), page as u64);
        mapping.give_back(2 * page, 4 * page).unwrap();
        assert_eq!(mapping.resident_bytes().unwrap(), 0);
    }
}
