//! Main memory that costs something only where it was written.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::thread::Builder;

use unspool_core::{Failure, TierKind};
use unspool_cuda::{Growth, MemoryLeft, Pages, check_size};

use crate::error::TierError;

/// The alignment of the first byte.
const PAGE: u64 = 4096;
/// The least that a thread of its own makes present.
const PART: u64 = 8 << 20;

/// One contiguous buffer of initialised bytes, zero at first.
#[derive(Debug)]
pub(crate) struct Plain {
    base: NonNull<u8>,
    len: u64,
    growth: Growth,
    notes: Vec<String>,
}

// SAFETY: `Plain` owns its buffer and gives out addresses only; who may touch which bytes is
// decided by the arena's table.
unsafe impl Send for Plain {}
// SAFETY: as above.
unsafe impl Sync for Plain {}

impl Plain {
    pub(crate) fn reserve(kind: TierKind, len: u64) -> Result<Plain, TierError> {
        check_size(len).map_err(|left| refusal(kind, len, &left))?;
        let (growth, mut notes) = (Growth::default(), Vec::new());
        let base = if len == 0 { NonNull::dangling() } else { system::map(kind, len, &mut notes)? };
        assert!(base.as_ptr().addr() % PAGE as usize == 0 || len == 0, "aligned to pages");
        Ok(Plain { base, len, growth, notes })
    }

    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The address of byte `offset`, of which `len` bytes are about to be borrowed. The table has
    /// checked that they are in range.
    pub(crate) fn at(&self, offset: u64, len: u64) -> NonNull<u8> {
        assert!(offset <= self.len && len <= self.len - offset, "checked by the table");
        // SAFETY: the range lies in the buffer, as just asserted; the address of its end is
        // allowed too.
        unsafe { self.base.add(offset as usize) }
    }

    /// Takes the memory of the first `end` bytes, which are about to be written.
    pub(crate) fn grow(&self, end: u64) -> Result<(), MemoryLeft> {
        self.growth.reach(end, self)
    }

    /// Takes all memory.
    pub(crate) fn fill(&self) -> Result<(), MemoryLeft> {
        self.growth.fill(self)
    }

    /// Bytes from the start whose memory was taken.
    pub(crate) fn grown(&self) -> u64 {
        self.growth.reached()
    }
}

impl Pages for Plain {
    fn capacity(&self) -> u64 {
        self.len
    }

    fn present(&self) -> u64 {
        0
    }

    /// On several threads where there are many pages: one alone does not reach what the memory of a
    /// machine can do.
    fn touch(&self, range: Range<u64>) -> io::Result<()> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = ((range.end - range.start) / PART).clamp(1, cores.min(8) as u64);
        let each = (range.end - range.start).div_ceil(threads).next_multiple_of(PAGE);
        let part = &|begin: u64| {
            let len = each.min(range.end - begin);
            // SAFETY: the range lies in the mapping, and its parts begin pages.
            unsafe { system::touch(self.at(begin, len), len as usize) }
        };
        std::thread::scope(|scope| {
            let start = |begin| {
                let thread = Builder::new().name("unspool-touch".to_owned());
                thread.spawn_scoped(scope, move || part(begin)).map_err(|_| begin)
            };
            let begins = (range.start..range.end).step_by(each as usize);
            let others: Vec<_> = begins.skip(1).map(start).collect();
            let own = part(range.start);
            let others = others.into_iter().map(|other| match other {
                Ok(thread) => thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())),
                // No thread could be started: this one does its part.
                Err(begin) => part(begin),
            });
            others.fold(own, Result::and)
        })
    }
}

/// The error for memory that the machine does not have at all.
fn refusal(kind: TierKind, len: u64, left: &MemoryLeft) -> TierError {
    TierError::new(Failure::NoSpace, "reserve", format!("{kind} memory"), left.refusal(len))
        .with_progress(len, 0)
        .with_advice(left.advice(kind.option()))
}

impl Drop for Plain {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the buffer came from `map` with this length, and the guards that borrow the
            // arena are gone.
            unsafe { system::unmap(self.base, self.len) };
        }
    }
}

/// The real thing: an anonymous private mapping.
#[cfg(not(miri))]
mod system {
    use std::fs;
    use std::ptr::NonNull;

    use rustix::io::Errno;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use unspool_core::{Failure, TierKind};

    use crate::error::TierError;
    use unspool_cuda::Bytes;

    /// The size of a huge page where pages have 4 KiB. Elsewhere the alignment does no harm.
    const HUGE: usize = 2 << 20;

    pub(super) fn map(
        kind: TierKind,
        len: u64,
        notes: &mut Vec<String>,
    ) -> Result<NonNull<u8>, TierError> {
        let mapped = usize::try_from(len).map_err(|_| Errno::NOMEM).and_then(map_aligned);
        let base = mapped.map_err(|cause| refused(kind, len, cause))?;
        if len >= HUGE as u64 {
            ask_for_huge_pages(base, len as usize, notes);
        }
        Ok(base)
    }

    fn refused(kind: TierKind, len: u64, cause: Errno) -> TierError {
        let reason = format!("the system does not give {} of address space", Bytes(len));
        TierError::new(Failure::NoSpace, "reserve", format!("{kind} memory"), reason)
            .with_progress(len, 0)
            .with_cause(cause.into())
            .with_advice(format!(
                "Make the option `{kind}` smaller, or raise the limit on address space \
                 (`ulimit -v`, vm.overcommit_memory)."
            ))
    }

    /// A mapping of `len` bytes whose first byte is at a multiple of the size of a huge page when
    /// it is that long: it is mapped with room to spare and the ends are given back.
    fn map_aligned(len: usize) -> Result<NonNull<u8>, Errno> {
        let spare = if len >= HUGE { HUGE } else { 0 };
        let pages = len.checked_next_multiple_of(super::PAGE as usize);
        let whole = pages.and_then(|pages| pages.checked_add(spare)).ok_or(Errno::NOMEM)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), whole, access, flags) }?;
        let head = if spare == 0 { 0 } else { start.align_offset(HUGE) };
        let tail = spare - head;
        // SAFETY: `head <= spare`, so this stays in the mapping.
        let base = unsafe { start.add(head) };
        give_back(start, head);
        // SAFETY: the last `tail` bytes of the mapping.
        give_back(unsafe { start.add(whole - tail) }, tail);
        NonNull::new(base.cast()).ok_or(Errno::NOMEM)
    }

    /// Unmaps an end of a mapping that nobody has seen yet.
    fn give_back(start: *mut std::ffi::c_void, len: usize) {
        if len > 0 {
            // SAFETY: the range is part of our new mapping and no address in it was given out.
            // If it fails, address space stays in use and no memory does.
            let _ = unsafe { munmap(start, len) };
        }
    }

    fn ask_for_huge_pages(base: NonNull<u8>, len: usize, notes: &mut Vec<String>) {
        // SAFETY: the range is our mapping; the advice changes no bytes.
        let advised = unsafe { madvise(base.as_ptr().cast(), len, Advice::LinuxHugepage) };
        let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        let never = setting.is_ok_and(|setting| setting.contains("[never]"));
        if advised.is_err() || never {
            notes.push(
                "The system gives no transparent huge pages: first use of the memory is slower."
                    .to_owned(),
            );
        }
    }

    /// # Safety
    /// The bytes lie in a mapping of `map`, and `place` begins a page.
    pub(super) unsafe fn touch(place: NonNull<u8>, len: usize) -> std::io::Result<()> {
        // SAFETY: by this function's contract.
        unsafe { unspool_cuda::populate(place.as_ptr(), len) }
    }

    /// # Safety
    /// `base` and `len` are from `map`, and no address in the mapping is used any more.
    pub(super) unsafe fn unmap(base: NonNull<u8>, len: u64) {
        let whole = (len as usize).next_multiple_of(super::PAGE as usize);
        // SAFETY: by this function's contract. It can only fail for an argument that is not a
        // mapping, which would be a defect of `map_aligned`.
        let unmapped = unsafe { munmap(base.as_ptr().cast(), whole) };
        debug_assert!(unmapped.is_ok());
    }
}

/// The heap, for Miri, which knows no mappings.
#[cfg(miri)]
mod system {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    use unspool_core::TierKind;

    use crate::error::TierError;

    fn layout(len: u64) -> Layout {
        Layout::from_size_align(len as usize, super::PAGE as usize).unwrap()
    }

    pub(super) fn map(
        _kind: TierKind,
        len: u64,
        _notes: &mut Vec<String>,
    ) -> Result<NonNull<u8>, TierError> {
        // SAFETY: the caller asks for at least one byte.
        Ok(NonNull::new(unsafe { alloc_zeroed(layout(len)) }).unwrap())
    }

    /// # Safety
    /// None: the heap is there.
    pub(super) unsafe fn touch(_: NonNull<u8>, _: usize) -> std::io::Result<()> {
        Ok(())
    }

    /// # Safety
    /// `base` and `len` are from `map`, and no address in the buffer is used any more.
    pub(super) unsafe fn unmap(base: NonNull<u8>, len: u64) {
        // SAFETY: by this function's contract.
        unsafe { dealloc(base.as_ptr(), layout(len)) };
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn more_than_the_machine_has_is_refused_with_the_numbers_and_the_option() {
        let error = Plain::reserve(TierKind::Host, 1 << 60).unwrap_err();
        assert_eq!(error.kind(), Failure::NoSpace);
        let text = error.to_string();
        for part in ["host memory", "1 EiB were asked for", "in all", "option `host_memory`"] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }

    #[test]
    fn memory_that_the_system_refuses_is_named_with_the_number_of_that_refusal() {
        // Another number of an earlier failure.
        assert!(std::fs::File::open("/nonexistent").is_err());
        for len in [1 << 60, u64::MAX] {
            let error = system::map(TierKind::Host, len, &mut Vec::new()).unwrap_err();
            let cause = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
            let number = cause.and_then(std::io::Error::raw_os_error);
            assert_eq!(number, Some(libc::ENOMEM), "{error}");
        }
    }
}
