//! The 64-bit checksum of payloads and heads: CRC-64/NVME.
//!
//! Why this one: `engine/decisions/0003-checksum.md`. Its parameters: `docs/reference/format.md`.
//! The crate below chooses the instructions at run time, so that a portable build is as fast as
//! memory.

use std::sync::OnceLock;

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of `bytes`.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// The checksum of two pieces one after the other, of their checksums and the length of the second.
#[must_use]
pub fn joined_checksums(first: u64, second: u64, len: u64) -> u64 {
    // The checksum is linear: what it says of the first piece moves on by as many zeros as the
    // second has bytes. What it begins with and what it is changed by at the end cancel out.
    let powers = ZEROS.get_or_init(zeros);
    ones(len).fold(first, |sum, bit| times(&powers[bit], sum)) ^ second
}

/// A square matrix of bits, by its columns.
type Matrix = [u64; 64];

/// What 2^k bytes of zeros make of a checksum, for each k.
static ZEROS: OnceLock<Box<[Matrix]>> = OnceLock::new();

fn zeros() -> Box<[Matrix]> {
    let column = |bit| crc_fast::checksum_combine(CrcAlgorithm::Crc64Nvme, 1_u64 << bit, 0, 1);
    let one: Matrix = std::array::from_fn(column);
    let twice = |matrix: &Matrix| Some(matrix.map(|column| times(matrix, column)));
    std::iter::successors(Some(one), twice).take(u64::BITS as usize).collect()
}

fn times(matrix: &Matrix, vector: u64) -> u64 {
    ones(vector).fold(0, |sum, bit| sum ^ matrix[bit])
}

/// The numbers of the bits that are 1.
fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        (word != 0).then(|| {
            word &= word - 1;
            bit
        })
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_are_joined_have_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
        for len in [0, 1, 63, 64, 1000, 65_535, 65_536, 65_537, 200_000] {
            let whole = checksum(&bytes[..len]);
            for at in [0, 1, len / 3, len / 2, len.saturating_sub(1), len] {
                let (first, second) = bytes[..len].split_at(at.min(len));
                let rest = second.len() as u64;
                assert_eq!(
                    joined_checksums(checksum(first), checksum(second), rest),
                    whole,
                    "{len} {at}"
                );
            }
        }
        // Longer than memory: in two steps and in one.
        let far = |len| joined_checksums(7, 0, len);
        assert_eq!(joined_checksums(far(1 << 40), 0, 12_345), far((1 << 40) + 12_345));
    }
}
