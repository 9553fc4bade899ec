//! An anonymous mapping of the host with huge pages, whose pages can be made present without
//! changing a byte.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::bytes::Bytes;
use crate::error::DeviceError;

/// Size of a huge page on the machines that have GPUs; only an alignment, so a wrong one costs
/// time and nothing else.
pub(super) const HUGE_PAGE: u64 = 2 << 20;

/// A mapping whose first byte lies on a huge page border.
#[derive(Debug)]
pub(super) struct Mapping {
    whole: *mut u8,
    whole_len: usize,
    start: *mut u8,
    len: u64,
    huge: bool,
}

// SAFETY: plain memory; holders of pointers into it synchronise their accesses.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes, with huge pages where the system has them. No page is present yet.
    ///
    /// # Errors
    /// When the system refuses: no address space, or limits on it.
    pub(super) fn new(len: u64, huge: bool) -> Result<Mapping, DeviceError> {
        let refused = |error: io::Error| {
            DeviceError::system(&format!("host RAM: mapping {} was refused", Bytes(len)), &error)
                .with_advice(
                    "Set the option `host_memory` to less, or raise the limit (ulimit -v).",
                )
        };
        let whole_len = usize::try_from(len.saturating_add(HUGE_PAGE))
            .map_err(|_| refused(io::Error::from_raw_os_error(libc::ENOMEM)))?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new private mapping at an address that the system chooses.
        let whole = unsafe {
            mmap_anonymous(ptr::null_mut(), whole_len, ProtFlags::READ | ProtFlags::WRITE, flags)
        };
        let whole = whole.map_err(|error| refused(error.into()))?.cast::<u8>();
        let skip = whole.addr().next_multiple_of(HUGE_PAGE as usize) - whole.addr();
        // SAFETY: `skip` is less than a huge page, which the mapping has to spare.
        let start = unsafe { whole.add(skip) };
        // SAFETY: our own mapping. It is advice: systems without huge pages refuse it.
        let huge =
            huge && unsafe { madvise(whole.cast(), whole_len, Advice::LinuxHugepage) }.is_ok();
        Ok(Mapping { whole, whole_len, start, len, huge })
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Takes pages from this NUMA node, while it has some: whichever thread touches them. It is
    /// advice: a system without it gives pages of the node of the thread.
    pub(super) fn prefer(&self, node: u32) {
        let Some(mask) = 1u64.checked_shl(node) else { return };
        let (place, len) = (self.whole.cast::<libc::c_void>(), self.whole_len);
        // Of the number of bits that it is given, mbind reads all but one.
        let bits = libc::c_ulong::from(u64::BITS + 1);
        // SAFETY: our own mapping, and a mask of as many bits.
        unsafe { libc::syscall(libc::SYS_mbind, place, len, libc::MPOL_PREFERRED, &mask, bits, 0) };
    }

    /// Whether the system grants huge pages.
    pub(super) fn is_huge(&self) -> bool {
        self.huge
    }

    /// The address of `[offset, offset + len)`.
    pub(super) fn at(&self, offset: u64, len: u64) -> *mut u8 {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "outside the mapping");
        // SAFETY: inside the mapping.
        unsafe { self.start.add(offset as usize) }
    }

    /// Makes the pages of the range present, without changing a byte: data may be arriving in it.
    ///
    /// # Errors
    /// When the system has no memory for them.
    pub(super) fn touch(&self, offset: u64, len: u64) -> io::Result<()> {
        // `MADV_POPULATE_WRITE` holds a lock on the address space that registering needs as well,
        // which makes both half as fast; page faults do not. With small pages one call saves many
        // faults.
        if self.huge {
            self.touch_by_hand(offset, len);
            return Ok(());
        }
        let end = offset + len;
        for at in (offset..end).step_by(HUGE_PAGE as usize) {
            self.populate(at, HUGE_PAGE.min(end - at))?;
        }
        Ok(())
    }

    /// Populates the pages with one system call, which holds a lock on the address space.
    fn populate(&self, offset: u64, len: u64) -> io::Result<()> {
        // SAFETY: our own mapping, and the range is inside.
        unsafe { populate(self.at(offset, len), len as usize) }
    }

    fn touch_by_hand(&self, offset: u64, len: u64) {
        // SAFETY: as above.
        unsafe { touch_by_hand(self.at(offset, len), len as usize) }
    }
}

/// Makes the pages of `len` bytes from `place` on present, without changing a byte.
///
/// # Errors
/// When the system has no memory for them.
///
/// # Safety
/// `place` begins a page, and the bytes are mapped for reading and writing.
pub unsafe fn populate(place: *mut u8, len: usize) -> io::Result<()> {
    // SAFETY: the caller's promise; populating changes no content.
    match unsafe { madvise(place.cast(), len, Advice::LinuxPopulateWrite) } {
        Ok(()) => Ok(()),
        // Linux before 5.14.
        Err(rustix::io::Errno::INVAL) => {
            // SAFETY: the caller's promise.
            unsafe { touch_by_hand(place, len) };
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Touches each page with one atomic access that writes back what is there.
///
/// # Safety
/// The bytes are mapped for reading and writing.
unsafe fn touch_by_hand(place: *mut u8, len: usize) {
    for at in (0..len).step_by(4096) {
        // SAFETY: inside the mapping, and an atomic byte is always aligned. A concurrent write of
        // the byte, by the device or the processor, is not undone: the access is one indivisible
        // step that changes nothing.
        let byte = unsafe { AtomicU8::from_ptr(place.add(at)) };
        // Without `black_box` the compiler would turn the access into a load, which makes no page
        // present.
        byte.fetch_or(std::hint::black_box(0), Ordering::Relaxed);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own whole mapping; no pointer into it is left.
        let _ = unsafe { munmap(self.whole.cast(), self.whole_len) };
    }
}

/// The NUMA node that the PCI device with this address hangs on; `None` where there is one alone.
pub(super) fn node_of(pci: &str) -> Option<u32> {
    let file = format!("/sys/bus/pci/devices/{}/numa_node", pci.to_ascii_lowercase());
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_from_the_preferred_node_where_there_are_nodes() {
        let mapping = Mapping::new(HUGE_PAGE, true).unwrap();
        mapping.prefer(0);
        mapping.prefer(500);
        mapping.touch(0, HUGE_PAGE).unwrap();
        let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
        let address = format!("{:x} ", mapping.whole.addr());
        if let Some(line) = maps.lines().find(|line| line.starts_with(&address)) {
            assert!(line.contains("prefer") && line.contains(":0 "), "{line}");
        }
    }

    #[test]
    fn a_device_that_is_not_there_has_no_node() {
        assert_eq!(node_of("0000:FF:1f.7"), None);
    }

    #[test]
    fn touching_changes_no_byte() {
        let len = 3 * HUGE_PAGE + 12_345;
        let mapping = Mapping::new(len, true).unwrap();
        assert!(mapping.start.addr().is_multiple_of(HUGE_PAGE as usize));
        let place = mapping.at(HUGE_PAGE - 3, 6);
        // SAFETY: inside the mapping, and nobody else uses it.
        unsafe { ptr::copy_nonoverlapping(b"abcdef".as_ptr(), place, 6) };
        mapping.touch(0, len).unwrap();
        mapping.touch_by_hand(0, len);
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(mapping.at(0, len), len as usize) };
        assert_eq!(&bytes[HUGE_PAGE as usize - 3..][..6], b"abcdef");
        assert_eq!(bytes.iter().filter(|&&byte| byte != 0).count(), 6);
    }

    #[test]
    fn touching_makes_pages_present_either_way() {
        let len = 8 * HUGE_PAGE;
        let ways: [fn(&Mapping, u64); 2] = [
            |mapping, len| mapping.touch(0, len).unwrap(),
            |mapping, len| {
                mapping.touch_by_hand(0, len);
            },
        ];
        for touch in ways {
            let mapping = Mapping::new(len, false).unwrap();
            // A distinct flag keeps the system from merging it with neighbouring mappings.
            // SAFETY: our own mapping; the flag concerns core dumps alone.
            unsafe { madvise(mapping.whole.cast(), mapping.whole_len, Advice::LinuxDontDump) }
                .unwrap();
            assert_eq!(present(&mapping), 0);
            touch(&mapping, len);
            assert_eq!(present(&mapping), len / 4096);
        }
    }

    /// Number of present pages of a mapping. A page that was only read does not count.
    fn present(mapping: &Mapping) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let whole = format!("{:x}-", mapping.whole.addr());
        let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&whole));
        let line = lines.find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 4
    }

    #[test]
    fn a_mapping_that_cannot_be_had_is_an_error_with_the_option() {
        let error = Mapping::new(1 << 60, true).unwrap_err();
        assert!(error.to_string().contains("`host_memory`"), "{error}");
        assert!(Mapping::new(u64::MAX, true).is_err());
    }
}
