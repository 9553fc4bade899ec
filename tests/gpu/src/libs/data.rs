//! Values to encode.

use unspool_codec::Dtype;

/// A random number generator (SplitMix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A number from 0 to 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Number of kinds of values of [`value`].
pub const KINDS: u64 = 7;

/// Value number `i` of a field of some kind.
fn value(dice: &mut Dice, kind: u64, i: u64) -> f64 {
    let (x, noise) = (i as f64, dice.unit() - 0.5);
    match kind {
        0 => noise,
        1 => (x * 0.031).sin() * (x * 0.0017).cos() * 1e3,
        // Values of many magnitudes, including those whose scale overflows in libzfp.
        2 => noise * (dice.unit() * 170.0 - 85.0).exp(),
        3 if dice.below(9) == 0 => noise,
        4 => noise * 3e38,
        5 => noise * 1e-40,
        _ => 0.0,
    }
}

/// `count` finite values as bytes.
pub fn field(dice: &mut Dice, dtype: &Dtype, kind: u64, count: u64) -> Vec<u8> {
    let bytes = |i| {
        let x = value(dice, kind, i);
        match dtype {
            Dtype::Float32 => (x as f32).to_le_bytes().to_vec(),
            Dtype::Float64 => x.to_le_bytes().to_vec(),
            _ => (x * 1e3).to_le_bytes()[..dtype.itemsize() as usize].to_vec(),
        }
    };
    (0..count).flat_map(bytes).collect()
}

/// A wave that has reached only `share` of the array; the rest is 0. For measurements.
pub fn wave(bytes: u64, share: f64) -> Vec<u8> {
    let count = bytes / 4;
    let end = (count as f64 * share) as u64;
    let value = |i: u64| {
        let x = i as f64;
        if i < end { ((x * 0.013).sin() * (x * 0.00021).cos()) as f32 } else { 0.0 }
    };
    (0..count).flat_map(|i| value(i).to_le_bytes()).collect()
}
