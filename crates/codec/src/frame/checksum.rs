//! The 64-bit checksum of payloads and heads: CRC-64/NVME.
//!
//! Why this one: `docs/decisions/0003-checksum.md`. Its parameters: `docs/reference/format.md`. The
//! crate below chooses the instructions at run time, so that a portable build is as fast as memory.

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of `bytes`.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// The same checksum for bytes that come in pieces, however they are cut.
#[derive(Clone, Copy)]
pub struct Checksum(Digest);

impl Checksum {
    /// A checksum that has seen nothing.
    #[must_use]
    pub fn new() -> Checksum {
        Checksum(Digest::new(CrcAlgorithm::Crc64Nvme))
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of everything taken so far; more may follow.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.finalize()
    }
}

impl Default for Checksum {
    fn default() -> Checksum {
        Checksum::new()
    }
}

impl std::fmt::Debug for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Checksum({:#018x})", self.value())
    }
}
