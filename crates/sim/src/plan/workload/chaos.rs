//! Any call at any time.

use unspool_core::Version;

use super::sizes::Sizes;
use crate::plan::script::{Care, Step};
use crate::random::Random;

/// Random calls on few versions, which several threads share.
pub(super) fn steps(random: &mut Random, sizes: &Sizes) -> Vec<Step> {
    let count = random.magnitude(5.0, 100.0) as usize;
    let versions = random.range(2, 25);
    let saves = random.range(1, 40);
    (0..count).map(|_| step(random, sizes, versions, saves)).collect()
}

fn step(random: &mut Random, sizes: &Sizes, versions: u64, saves: u64) -> Step {
    let version = Version(random.below(versions) as i64);
    match random.below(60 + saves) {
        0..=24 => Step::restore(version.0),
        25..=44 => Step::Expect(version),
        45..=52 => Step::Discard(version),
        53 => Step::ForgetHints,
        54 | 55 => Step::HoldPrefetch,
        56 | 57 => Step::StartPrefetch,
        58 | 59 => Step::Flush(Care::default()),
        _ => Step::save(version.0, sizes.draw(random)),
    }
}
