//! Random calls in random order.

use std::ops::RangeInclusive;

use unspool_core::Version;

use super::sizes::Sizes;
use crate::plan::script::{Care, Step};
use crate::random::Random;

/// Random calls on a few versions that several threads share.
pub(super) fn steps(random: &mut Random, sizes: &Sizes) -> Vec<Step> {
    let count = random.magnitude(5.0, 300.0) as usize;
    let versions = random.range(2, 25) as i64;
    let saves = random.range(1, 40);
    // Any integer is a version, including the smallest and the largest.
    let first = random.pick(&[0, 0, 0, 0, -3, i64::MIN, i64::MAX - versions + 1]);
    let last = first + (versions - 1);
    (0..count).map(|_| step(random, sizes, first..=last, saves)).collect()
}

fn step(random: &mut Random, sizes: &Sizes, versions: RangeInclusive<i64>, saves: u64) -> Step {
    let (first, last) = versions.into_inner();
    let version = first + random.below((last - first + 1) as u64) as i64;
    match random.below(60 + saves) {
        0..=24 => Step::restore(version),
        25..=44 => Step::Expect(Version(version)),
        45..=52 => Step::Discard(Version(version)),
        53 => Step::ForgetHints,
        54 | 55 => Step::HoldPrefetch,
        56 | 57 => Step::StartPrefetch,
        58 | 59 => Step::Flush(Care::default()),
        _ => Step::save(version, sizes.draw(random)),
    }
}
