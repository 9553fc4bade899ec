//! What a sequence is made of, what it has done, and where its choices come from.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

/// Bytes that are not what they should be, which nothing excuses.
#[derive(Debug)]
pub struct Wrong(pub String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Wrong {}

/// What a sequence is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub operations: u64,
    /// Bytes of the tiers.
    pub device: u64,
    pub host: u64,
    pub disk: Option<PathBuf>,
    /// Bytes of the largest region.
    pub largest: u64,
    pub check_order: bool,
    /// Whether regions are encoded, without loss.
    pub encoded: bool,
    /// The most checkpoints that are encoded together; 0 where each is encoded alone.
    pub accumulate: u32,
    /// The number of the GPU.
    pub on: u32,
}

impl Plan {
    /// Arenas that hold a few regions of `largest` bytes, and a disk in `directory`; every fifth
    /// seed has no host tier, every other one the check of order, every third one encodes, and
    /// most of those accumulate.
    #[must_use]
    pub fn small(seed: u64, largest: u64, directory: &Path) -> Plan {
        Plan {
            seed,
            operations: 30,
            device: 3 * largest,
            host: if seed.is_multiple_of(5) { 0 } else { 9 * largest },
            disk: Some(directory.to_owned()),
            largest,
            check_order: seed.is_multiple_of(2),
            encoded: seed % 3 == 1,
            accumulate: [3, 0, 8, 100][(seed / 3 % 4) as usize],
            on: 0,
        }
    }
}

/// How often what was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Done {
    pub saves: u64,
    pub restores: u64,
    pub given_up: u64,
    pub discards: u64,
    /// Calls that were refused, where that was asked for.
    pub refused: u64,
    pub compared_bytes: u64,
}

impl Done {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Done) -> Done {
        Done {
            saves: self.saves + other.saves,
            restores: self.restores + other.restores,
            given_up: self.given_up + other.given_up,
            discards: self.discards + other.discards,
            refused: self.refused + other.refused,
            compared_bytes: self.compared_bytes + other.compared_bytes,
        }
    }
}

/// Numbers from a seed (SplitMix64).
pub struct Dice(u64);

impl Dice {
    #[must_use]
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}
