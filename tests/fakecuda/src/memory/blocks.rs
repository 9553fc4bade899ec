//! Plain allocations of device memory. A freed block is poisoned and may be reused at the same
//! address, as in the driver: a dangling pointer then sees bytes of another block.

use std::collections::BTreeMap;

use crate::codes::{Code, Outcome};
use crate::memory::{Budget, enclosing};
use crate::pages::{self, PAGE};

/// Granularity of allocations.
const ALIGNMENT: u64 = 512;

#[derive(Debug)]
struct Block {
    len: u64,
    device: u32,
}

impl Block {
    /// Size of its pages in bytes.
    fn pages(&self) -> u64 {
        self.len.next_multiple_of(PAGE)
    }
}

/// All blocks, by address.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    blocks: BTreeMap<u64, Block>,
    /// Freed memory: length in pages, and address.
    spare: Vec<(u64, u64)>,
}

impl Blocks {
    pub(super) fn allocate(
        &mut self,
        budget: &mut Budget,
        device: u32,
        bytes: u64,
    ) -> Outcome<u64> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let len = bytes.checked_next_multiple_of(ALIGNMENT).ok_or(Code::OUT_OF_MEMORY)?;
        budget.charge(len)?;
        let block = Block { len, device };
        let address = match self.take_spare(block.pages()) {
            Some(address) => address,
            None => pages::allocate(block.pages()).inspect_err(|_| budget.give_back(len))?,
        };
        self.blocks.insert(address, block);
        Ok(address)
    }

    fn take_spare(&mut self, len: u64) -> Option<u64> {
        let index = self.spare.iter().position(|&(spare, _)| spare == len)?;
        Some(self.spare.remove(index).1)
    }

    pub(super) fn free(&mut self, budget: &mut Budget, device: u32, address: u64) -> Outcome {
        let block = self.blocks.get(&address).filter(|block| block.device == device);
        let (len, pages) = block.map(|b| (b.len, b.pages())).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: owned by this block, with this length, and freed by its user.
        unsafe { pages::poison(address, pages) };
        self.blocks.remove(&address);
        self.spare.push((pages, address));
        budget.give_back(len);
        Ok(())
    }

    pub(super) fn free_all_of(&mut self, budget: &mut Budget, device: u32) {
        let own = self.blocks.iter().filter(|(_, block)| block.device == device);
        let addresses: Vec<u64> = own.map(|(&address, _)| address).collect();
        for address in addresses {
            let _ = self.free(budget, device, address);
        }
    }

    /// The device of the block that holds the range.
    pub(super) fn owner(&self, address: u64, end: u64) -> Outcome<Option<u32>> {
        let begin = enclosing(&self.blocks, |block| block.len, (address, end))?;
        Ok(begin.map(|begin| self.blocks[&begin].device))
    }

    /// Begin and length of the block that holds `address`.
    pub(crate) fn around(&self, address: u64) -> Option<(u64, u64)> {
        let (&begin, block) = self.blocks.range(..=address).next_back()?;
        (address < begin + block.len).then_some((begin, block.len))
    }

    pub(crate) fn count(&self) -> u64 {
        self.blocks.len() as u64
    }
}
