//! Sizes of checkpoints.

use crate::random::Random;

/// `count` checkpoints of the same size.
#[must_use]
pub fn uniform(count: usize, bytes: u64) -> Vec<u64> {
    vec![bytes; count]
}

/// The sizes of a compressed reverse time migration shot, after Score, figure 4: small while the
/// wave field is still small, then around `mean` bytes, with noise.
#[must_use]
pub fn rtm(seed: u64, count: usize, mean: u64) -> Vec<u64> {
    let mut random = Random::new(seed);
    let ramp = (count / 6).max(1) as f64;
    let size = |at: usize| {
        let grown = ((at + 1) as f64 / ramp).min(1.0);
        let noise = 0.6 + 0.8 * random.unit();
        (mean as f64 * grown * noise) as u64
    };
    (0..count).map(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shot_begins_small_and_has_the_volume_that_the_paper_gives() {
        let sizes = rtm(1, 384, 128 << 20);
        assert!(sizes[0] < sizes[383] / 10);
        let total: u64 = sizes.iter().sum();
        assert!((38..=50).contains(&(total / 1_000_000_000)), "{total}");
    }
}
