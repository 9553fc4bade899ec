//! Host memory that the driver allocated or registered.

use std::collections::BTreeMap;

use crate::codes::{Code, Outcome};
use crate::memory::enclosing;
use crate::pages::{self, PAGE};

#[derive(Debug)]
struct Range {
    len: u64,
    /// Whether the driver allocated it.
    own: bool,
}

/// Maximum size of freed memory that is kept for reuse: making pages present is expensive.
const KEPT: u64 = 256 << 20;

/// All ranges, by address.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    ranges: BTreeMap<u64, Range>,
    /// Freed, poisoned memory: length and address.
    spare: Vec<(u64, u64)>,
}

impl Hosts {
    pub(crate) fn allocate(&mut self, bytes: u64) -> Outcome<u64> {
        let len = bytes.checked_next_multiple_of(PAGE).ok_or(Code::OUT_OF_MEMORY)?;
        if len == 0 || len > 1 << 46 {
            return Err(if len == 0 { Code::INVALID_VALUE } else { Code::OUT_OF_MEMORY });
        }
        let spare = self.spare.iter().position(|&(spare, _)| spare == len);
        let address = match spare {
            Some(index) => self.spare.swap_remove(index).1,
            None => pages::allocate(len)?,
        };
        self.ranges.insert(address, Range { len, own: true });
        Ok(address)
    }

    pub(crate) fn free(&mut self, address: u64) -> Outcome {
        let range = self.ranges.get(&address).filter(|range| range.own);
        let len = range.map(|range| range.len).ok_or(Code::INVALID_VALUE)?;
        self.ranges.remove(&address);
        if self.spare.iter().map(|(len, _)| len).sum::<u64>() + len > KEPT {
            // SAFETY: allocated here, with this length; the caller frees it.
            unsafe { pages::unmap(address, len) };
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { pages::poison(address, len) };
        self.spare.push((len, address));
        Ok(())
    }

    pub(crate) fn register(&mut self, address: u64, bytes: u64) -> Outcome {
        let end = address.checked_add(bytes).filter(|_| address > 0 && bytes > 0);
        let end = end.ok_or(Code::INVALID_VALUE)?;
        match self.covers(address, end) {
            Ok(false) => {}
            Ok(true) | Err(_) => return Err(Code::HOST_MEMORY_ALREADY_REGISTERED),
        }
        if !pages::is_mapped(address, bytes) {
            return Err(Code::INVALID_VALUE);
        }
        self.ranges.insert(address, Range { len: bytes, own: false });
        Ok(())
    }

    pub(crate) fn unregister(&mut self, address: u64) -> Outcome {
        let registered = self.ranges.get(&address).is_some_and(|range| !range.own);
        if !registered {
            return Err(Code::HOST_MEMORY_NOT_REGISTERED);
        }
        self.ranges.remove(&address);
        Ok(())
    }

    /// Whether the range lies in one of them; an error when it lies in one only partly.
    pub(super) fn covers(&self, address: u64, end: u64) -> Outcome<bool> {
        Ok(enclosing(&self.ranges, |range| range.len, (address, end))?.is_some())
    }

    /// Number of allocated ranges, and of registered ones.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let own = self.ranges.values().filter(|range| range.own).count() as u64;
        (own, self.ranges.len() as u64 - own)
    }
}
