//! Compressed saves: the size that is kept of them, and when it is known.

use unspool_core::{Nanos, Version};

use crate::random::{Random, Topic};

/// The compression of the application's saves.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Codec {
    /// Share of saves that are compressed.
    pub share: f64,
    /// Lower end of the compression ratios.
    pub lowest: f64,
    /// Upper end of the compression ratios.
    pub highest: f64,
    /// Number of consecutive versions with about the same ratio. Everything depends on the version,
    /// so that a run with fewer calls compresses the remaining ones as before.
    pub epoch: i64,
    /// Share of compressed saves that fail.
    pub fails: f64,
    /// Share of compressed saves to arenas other than a device's that are asynchronous.
    pub asynchronous: f64,
    /// Maximum time between the end of an asynchronous save and its report.
    pub report_delay: Nanos,
}

/// The outcome of one save.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fate {
    /// Size that is kept in bytes.
    pub kept: u64,
    /// Whether it fails.
    pub fails: bool,
    /// Whether it is asynchronous on every tier.
    pub asynchronous: bool,
}

/// A random codec; none for half of the seeds.
pub fn codec(random: &mut Random) -> Option<Codec> {
    if random.chance(0.5) {
        return None;
    }
    let lowest = random.magnitude(1.0, 10.0);
    let rare = |random: &mut Random| if random.chance(0.4) { 0.3 * random.unit() } else { 0.0 };
    Some(Codec {
        share: random.pick(&[1.0, 1.0, 0.5]),
        lowest,
        highest: random.magnitude(lowest, 40.0),
        epoch: random.range(1, 40) as i64,
        fails: rare(random),
        asynchronous: random.pick(&[0.0, 1.0, 0.5]),
        report_delay: Nanos(random.pick(&[0, 1_000, 100_000, 3_000_000])),
    })
}

impl Codec {
    fn random(&self, seed: u64, version: Version) -> Random {
        Random::of(seed, Topic::Codec, version.0 as u64)
    }

    /// Whether the saves of this version are compressed.
    #[must_use]
    pub fn takes(&self, seed: u64, version: Version) -> bool {
        self.random(seed, version).chance(self.share)
    }

    /// The outcome of a compressed save of `bytes` bytes. A few keep everything, a few nothing.
    #[must_use]
    pub fn fate(&self, seed: u64, version: Version, bytes: u64) -> Fate {
        let epoch = version.0.div_euclid(self.epoch);
        let mean =
            Random::of(seed, Topic::Codec, !(epoch as u64)).magnitude(self.lowest, self.highest);
        let mut random = self.random(seed, version);
        let ratio = (mean * (0.8 + 0.4 * random.unit())).max(1.0);
        let kept = match random.below(50) {
            0 => bytes,
            1 => 0,
            _ => (bytes as f64 / ratio) as u64,
        };
        let (fails, asynchronous) = (random.chance(self.fails), random.chance(self.asynchronous));
        Fate { kept: kept.min(bytes), fails, asynchronous }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_change_and_never_make_anything_larger() {
        let random = &mut Random::new(2);
        let codec = std::iter::repeat_with(|| codec(random)).flatten().next().unwrap();
        let codec = Codec { lowest: 1.0, highest: 40.0, epoch: 10, ..codec };
        let kept = |n| codec.fate(1, Version(n), 100_000).kept;
        let all: Vec<u64> = (0..500).map(kept).collect();
        assert!(all.iter().all(|kept| *kept <= 100_000));
        assert!(all.contains(&0) && all.contains(&100_000), "nothing and everything");
        assert!(all.iter().any(|k| *k < 5_000) && all.iter().any(|k| *k > 50_000));
    }
}
