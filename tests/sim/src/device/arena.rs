//! Memory of an arena: poisoned before it is filled and after it is freed.

use unspool_core::CheckpointId;

use crate::content::{POISON, difference, payload};

/// The memory of an arena tier. Without content (for studies of gigabytes) nothing is stored and
/// every read succeeds.
#[derive(Clone, Debug)]
pub struct Memory {
    bytes: Option<Vec<u8>>,
    seed: u64,
}

impl Memory {
    /// Poisoned memory for the run of `seed`.
    #[must_use]
    pub fn new(capacity: u64, seed: u64, content: bool) -> Memory {
        let length = usize::try_from(capacity).expect("an arena fits in memory");
        Memory { bytes: content.then(|| vec![POISON; length]), seed }
    }

    /// Poisons `bytes` bytes from `offset` on.
    pub fn poison(&mut self, offset: u64, bytes: u64) {
        if let Some(memory) = &mut self.bytes {
            memory[range(offset, bytes)].fill(POISON);
        }
    }

    /// Fills the place of a checkpoint with the first `share` of its payload.
    pub fn fill(&mut self, id: CheckpointId, offset: u64, bytes: u64, share: f64) {
        let Some(memory) = &mut self.bytes else { return };
        let payload = payload(self.seed, id, bytes);
        let filled = (payload.len() as f64 * share) as usize;
        memory[range(offset, bytes)][..filled].copy_from_slice(&payload[..filled]);
    }

    /// Writes `content` from a store to `offset`.
    pub fn write(&mut self, offset: u64, content: &[u8]) {
        if let Some(memory) = &mut self.bytes {
            memory[range(offset, content.len() as u64)].copy_from_slice(content);
        }
    }

    /// The bytes at `offset`, empty without content.
    #[must_use]
    pub fn read(&self, offset: u64, bytes: u64) -> &[u8] {
        self.bytes.as_ref().map_or(&[], |memory| &memory[range(offset, bytes)])
    }

    /// Describes how the bytes at `offset` differ from the payload of `id`, if they do.
    #[must_use]
    pub fn difference(&self, id: CheckpointId, offset: u64, bytes: u64) -> Option<String> {
        let memory = self.bytes.as_ref()?;
        difference(&payload(self.seed, id, bytes), &memory[range(offset, bytes)])
    }
}

fn range(offset: u64, bytes: u64) -> std::ops::Range<usize> {
    let start = usize::try_from(offset).expect("an offset fits in memory");
    start..start + usize::try_from(bytes).expect("a length fits in memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfilled_half_filled_and_freed_memory_is_distinguished_from_filled_memory() {
        let id = CheckpointId(3);
        let mut memory = Memory::new(256, 1, true);
        assert!(memory.difference(id, 64, 100).is_some());
        memory.fill(id, 64, 100, 0.5);
        assert!(memory.difference(id, 64, 100).is_some_and(|text| text.contains("poison")));
        memory.fill(id, 64, 100, 1.0);
        assert_eq!(memory.difference(id, 64, 100), None);
        memory.poison(163, 1);
        assert!(memory.difference(id, 64, 100).is_some_and(|text| text.starts_with("1 wrong")));
    }
}
