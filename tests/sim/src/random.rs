//! The only source of randomness: xoshiro256** (Blackman and Vigna, 2018), seeded by SplitMix64.
//!
//! Every decision of a run draws from its own generator, made from the seed of the run and the
//! topic of the decision ([`Random::of`]). So when the shrinker removes a step of a script, only
//! what depends on that step changes.

/// A generator of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

/// The topic of a decision; part of the generator's seed.
#[derive(Clone, Copy, Debug)]
pub enum Topic {
    /// Tiers, links and settings.
    Stack,
    /// Scripts of the application.
    Script,
    /// Frequencies of faults.
    Faults,
    /// Outcome and speed of a transfer.
    Transfer,
    /// Outcome of a deletion.
    Delete,
    /// Outcome and speed of a copy by the application.
    Copy,
    /// Delays of answers, ticks and the like.
    Delay,
    /// The effect of a crash on stores.
    Crash,
    /// The bytes of a checkpoint.
    Bytes,
    /// Compression of a save.
    Codec,
    /// Whether restore orders are learned.
    Learning,
}

impl Random {
    /// The generator of the seed `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        let mut state = seed;
        Random { state: std::array::from_fn(|_| split_mix(&mut state)) }
    }

    /// The generator for decision `index` of `topic` in the run of `seed`.
    #[must_use]
    pub fn of(seed: u64, topic: Topic, index: u64) -> Random {
        let mut state = seed;
        let mut mixed = split_mix(&mut state) ^ (topic as u64).wrapping_mul(0xa076_1d64_78bd_642f);
        mixed = split_mix(&mut mixed) ^ index;
        Random::new(split_mix(&mut mixed))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "no number is below 0");
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// A number from `first` to `last`, both included.
    pub fn range(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True with probability `share`.
    pub fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number from `first` to `last`, uniformly distributed on a logarithmic scale.
    pub fn magnitude(&mut self, first: f64, last: f64) -> f64 {
        first * (last / first).powf(self.unit())
    }

    /// One of `from`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Shuffles `items`.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_their_range_and_reach_its_ends() {
        let mut random = Random::new(1);
        let numbers: Vec<u64> = (0..1000).map(|_| random.range(3, 7)).collect();
        assert_eq!(numbers.iter().min(), Some(&3));
        assert_eq!(numbers.iter().max(), Some(&7));
    }

    #[test]
    fn the_generator_is_the_published_one() {
        // The first outputs for the state 1, 2, 3, 4, from the reference implementation.
        let mut random = Random { state: [1, 2, 3, 4] };
        let first: Vec<u64> = (0..4).map(|_| random.bits()).collect();
        assert_eq!(first, [11520, 0, 1_509_978_240, 1_215_971_899_390_074_240]);
    }

    #[test]
    fn topics_and_indices_are_independent() {
        let first = |topic, index| Random::of(5, topic, index).bits();
        assert_ne!(first(Topic::Copy, 0), first(Topic::Delay, 0));
        assert_ne!(first(Topic::Copy, 0), first(Topic::Copy, 1));
        assert_eq!(first(Topic::Copy, 1), first(Topic::Copy, 1));
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..50).collect();
        Random::new(9).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
