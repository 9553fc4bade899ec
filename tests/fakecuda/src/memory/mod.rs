//! All memory that the driver knows: its owner, and how much of a device is left.
//!
//! Invariants:
//! - Allocations, reservations and registrations do not overlap.
//! - Allocations of a device never exceed its memory less what was taken away.

mod blocks;
mod hosts;
mod vmm;

use crate::codes::{Code, Outcome};

use blocks::Blocks;
use hosts::Hosts;
use vmm::Vmm;

pub(crate) use vmm::GRANULARITY;

/// The owner of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// Memory of the device of this number, which it may use.
    Device(u32),
    /// Host memory that the driver allocated or registered.
    Pinned,
    /// Memory that the driver does not know.
    Pageable,
}

/// The size of one device's memory, and its use.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) total: u64,
    used: u64,
    /// Bytes that a test has taken away, as other processes would hold them.
    pub(crate) taken: u64,
}

impl Budget {
    pub(crate) fn free(&self) -> u64 {
        self.total.saturating_sub(self.used).saturating_sub(self.taken)
    }

    fn charge(&mut self, bytes: u64) -> Outcome {
        if bytes > self.free() {
            return Err(Code::OUT_OF_MEMORY);
        }
        self.used += bytes;
        Ok(())
    }

    fn give_back(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.used);
        self.used -= bytes;
    }
}

/// The memory of all devices and of the host.
#[derive(Debug)]
pub(crate) struct Memory {
    budgets: Vec<Budget>,
    pub(crate) blocks: Blocks,
    pub(crate) vmm: Vmm,
    pub(crate) hosts: Hosts,
}

impl Memory {
    pub(crate) fn new(devices: u32, total: u64) -> Memory {
        Memory {
            budgets: (0..devices).map(|_| Budget { total, used: 0, taken: 0 }).collect(),
            blocks: Blocks::default(),
            vmm: Vmm::default(),
            hosts: Hosts::default(),
        }
    }

    pub(crate) fn budget(&mut self, device: u32) -> &mut Budget {
        &mut self.budgets[device as usize]
    }

    pub(crate) fn allocate(&mut self, device: u32, bytes: u64) -> Outcome<u64> {
        self.blocks.allocate(&mut self.budgets[device as usize], device, bytes)
    }

    pub(crate) fn free(&mut self, device: u32, address: u64) -> Outcome {
        self.blocks.free(&mut self.budgets[device as usize], device, address)
    }

    pub(crate) fn create(&mut self, device: u32, bytes: u64) -> Outcome<u64> {
        let budget = self.budgets.get_mut(device as usize).ok_or(Code::INVALID_DEVICE)?;
        self.vmm.create(budget, device, bytes)
    }

    pub(crate) fn release(&mut self, handle: u64) -> Outcome {
        self.vmm.release(&mut self.budgets, handle)
    }

    pub(crate) fn unmap(&mut self, address: u64, len: u64) -> Outcome {
        self.vmm.unmap(&mut self.budgets, address, len)
    }

    /// The owner of `[address, address + len)`.
    ///
    /// # Errors
    /// When the range spans several allocations, or is reserved and not usable.
    pub(crate) fn owner(&self, address: u64, len: u64) -> Outcome<Owner> {
        let end = address.checked_add(len).ok_or(Code::INVALID_VALUE)?;
        if let Some(device) = self.blocks.owner(address, end)? {
            return Ok(Owner::Device(device));
        }
        if let Some(device) = self.vmm.owner(address, end)? {
            return Ok(Owner::Device(device));
        }
        let pinned = self.hosts.covers(address, end)?;
        Ok(if pinned { Owner::Pinned } else { Owner::Pageable })
    }

    /// Refuses a device the access to bytes that are not its own, which breaks its context.
    pub(crate) fn check_of(&self, device: u32, address: u64, len: u64) -> Outcome {
        let is_own = len == 0 || self.owner(address, len) == Ok(Owner::Device(device));
        if is_own { Ok(()) } else { Err(Code::ILLEGAL_ADDRESS) }
    }

    /// Frees everything that belongs to a device, as at the end of its context.
    pub(crate) fn free_all_of(&mut self, device: u32) {
        self.blocks.free_all_of(&mut self.budgets[device as usize], device);
        self.vmm.free_all_of(&mut self.budgets, device);
    }
}

/// Finds a range in a table of ranges by their begin: the entry that contains it, none, or (an
/// error) a partial overlap.
fn enclosing<T>(
    table: &std::collections::BTreeMap<u64, T>,
    len_of: impl Fn(&T) -> u64,
    (address, end): (u64, u64),
) -> Outcome<Option<u64>> {
    let Some((&begin, entry)) = table.range(..end.max(address + 1)).next_back() else {
        return Ok(None);
    };
    let last = begin + len_of(entry);
    if begin <= address && end <= last && address < last.max(begin + 1) {
        return Ok(Some(begin));
    }
    if begin.max(address) < last.min(end) { Err(Code::INVALID_VALUE) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_range_is_inside_outside_or_across() {
        let table = BTreeMap::from([(100u64, 50u64), (200, 50)]);
        let at = |address, end| enclosing(&table, |&len| len, (address, end));
        assert_eq!(at(100, 150), Ok(Some(100)));
        assert_eq!(at(120, 121), Ok(Some(100)));
        assert_eq!(at(150, 200), Ok(None));
        assert_eq!(at(0, 100), Ok(None));
        assert_eq!(at(90, 101), Err(Code::INVALID_VALUE));
        assert_eq!(at(149, 151), Err(Code::INVALID_VALUE));
        assert_eq!(at(120, 220), Err(Code::INVALID_VALUE));
        assert_eq!(at(90, 400), Err(Code::INVALID_VALUE));
    }
}
