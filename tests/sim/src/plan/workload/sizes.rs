//! Sizes of checkpoints.

use unspool_core::Config;

use super::largest_arena;
use crate::plan::stack::TYPICAL_BYTES;
use crate::random::Random;

/// A distribution of sizes.
#[derive(Clone, Debug)]
pub struct Sizes {
    first: u64,
    last: u64,
    /// Share of empty checkpoints.
    empty: f64,
    /// Share of checkpoints that are larger than some tier, or than all.
    large: f64,
    larger_than: u64,
}

impl Sizes {
    /// Fixed, mixed or extreme sizes.
    pub fn random(random: &mut Random, config: &Config) -> Sizes {
        let typical = random.range(1, TYPICAL_BYTES * 2);
        let (first, last) = match random.below(3) {
            0 => (typical, typical),
            1 => (typical.div_ceil(2), typical),
            _ => (1, TYPICAL_BYTES * 3),
        };
        let capacities: Vec<u64> =
            config.tiers.iter().map(|t| t.capacity).filter(|c| *c < 1_000_000).collect();
        let larger_than =
            if capacities.is_empty() { TYPICAL_BYTES } else { random.pick(&capacities) };
        let rare = |random: &mut Random| if random.chance(0.3) { 0.1 } else { 0.0 };
        Sizes { first, last, empty: rare(random), large: rare(random), larger_than }
            .bounded(largest_arena(config))
    }

    fn bounded(mut self, largest_arena: Option<u64>) -> Sizes {
        self.larger_than = self.larger_than.min(largest_arena.unwrap_or(50_000).max(1000) * 4);
        self
    }

    /// The size of one checkpoint, in bytes.
    pub fn draw(&self, random: &mut Random) -> u64 {
        if random.chance(self.empty) {
            return 0;
        }
        if random.chance(self.large / 10.0) {
            return u64::MAX;
        }
        if random.chance(self.large) {
            return self.larger_than.saturating_sub(64) + random.below(128);
        }
        random.range(self.first, self.last)
    }
}
