//! Twine: the bound holds for every bit pattern of the narrow types, for a sample of the float32
//! patterns (all of them in an ignored test) and for random float64 patterns.

mod twine_common;

use rayon::prelude::*;
use twine_common::{
    Noise, absolute, assert_relative, assert_within, exceeds, layout, pack, relative,
    there_and_back,
};
use unspool_codec::twine::Layout;
use unspool_codec::{Bound, Dtype};

const ABSOLUTE: [f64; 7] = [1e-30, 6e-8, 1e-4, 0.037, 1.0, 1000.0, 1e30];

/// Bounds whose product with a float32 is exact in float64, each with a floor.
const RELATIVE: [(f64, f64); 5] =
    [(0.5, 0.0), (0.0625, 1e-3), (0.000_976_562_5, 0.0), (1e-10, 1e-38), (0.25, 1e30)];

/// Checks one array with all the bounds.
fn check_all(layout: Layout, source: &[u8]) {
    assert!(there_and_back(layout, None, source).0 == source);
    for bound in ABSOLUTE {
        let (back, encoded) = there_and_back(layout, absolute(bound), source);
        assert_within(&layout, source, &back, bound);
        assert!(encoded.achieved.max_error <= bound);
    }
    for (bound, floor) in RELATIVE {
        let (back, _) = there_and_back(layout, relative(bound, floor), source);
        assert_relative(&layout, source, &back, bound, floor);
    }
}

/// The patterns `0..2^16` in ascending order, then without order.
fn sixteen_bits() -> [Vec<u8>; 2] {
    let shuffled = |i: u64| i.wrapping_mul(40_503) & 0xffff;
    [pack(16, 0..1 << 16), pack(16, (0..1 << 16).map(shuffled))]
}

#[test]
fn every_pattern_of_float16_and_bfloat16_is_held() {
    for dtype in [Dtype::Float16, Dtype::BFloat16] {
        for source in sixteen_bits() {
            check_all(layout(&dtype, &[1 << 16]), &source);
            check_all(layout(&dtype, &[256, 256]), &source);
        }
    }
}

#[test]
fn sampled_patterns_of_float32_are_held() {
    let n = 1 << 18;
    let ascending = |i: u64| (i * 16_381) & 0xffff_ffff;
    let mut noise = Noise(32);
    let sources = [pack(32, (0..n).map(ascending)), pack(32, (0..n).map(|_| noise.next()))];
    for source in sources {
        check_all(layout(&Dtype::Float32, &[n]), &source);
    }
}

#[test]
fn random_patterns_of_float64_are_held() {
    let mut noise = Noise(64);
    let anything = pack(64, (0..100_000).map(|_| noise.next()));
    // Exponents around those of the bounds, where rounding matters.
    let near = |_| noise.next() & !(0x7ff << 52) | (1023 - 40 + noise.next() % 60) << 52;
    let near = pack(64, (0..100_000).map(near));
    for source in [anything, near] {
        check_all(layout(&Dtype::Float64, &[100_000]), &source);
    }
}

#[test]
fn values_next_to_the_edges_between_two_steps_are_held() {
    for bound in [1e-4, 0.1, 3.0] {
        let near = |i: i64| {
            let edge = (i as f64 + 0.5) * 2.0 * bound;
            let bits = u64::from((edge as f32).to_bits());
            [bits - 1, bits, bits + 1]
        };
        let patterns: Vec<u64> = (-20_000..20_000).flat_map(near).collect();
        let source = pack(32, patterns.iter().copied());
        let layout = layout(&Dtype::Float32, &[patterns.len() as u64]);
        let (back, encoded) = there_and_back(layout, absolute(bound), &source);
        let largest = assert_within(&layout, &source, &back, bound);
        assert!(largest > 0.999 * bound && encoded.achieved.outliers < 60_000);
    }
}

/// All patterns of float32 under one method, in pieces of 2^20: in ascending order, or those of a
/// piece without order. `holds` is asked about every finite value.
fn check_every_float32(
    method: Option<Bound>,
    ascending: bool,
    holds: impl Fn(f64, f64) -> bool + Sync,
) {
    const PIECE: u32 = 1 << 20;
    let layout = layout(&Dtype::Float32, &[u64::from(PIECE)]);
    let checked = (0..u32::MAX / PIECE + 1).into_par_iter().map(|piece| {
        let place = |i: u32| if ascending { i } else { i.wrapping_mul(0x9_e377) % PIECE };
        let patterns: Vec<u32> = (0..PIECE).map(|i| piece * PIECE + place(i)).collect();
        let source: Vec<u8> = patterns.iter().flat_map(|bits| bits.to_le_bytes()).collect();
        let (back, _) = there_and_back(layout, method, &source);
        for (&bits, back) in patterns.iter().zip(back.as_chunks::<4>().0) {
            let (x, back) = (f32::from_bits(bits), u32::from_le_bytes(*back));
            let y = f64::from(f32::from_bits(back));
            let held = if x.is_finite() { holds(f64::from(x), y) } else { back == bits };
            assert!(held, "{bits:08x} became {back:08x} under {method:?}");
        }
        patterns.len() as u64
    });
    assert_eq!(checked.sum::<u64>(), 1 << 32);
}

/// Takes minutes: `cargo test --release -p unspool-codec --test twine_patterns -- --ignored`.
#[test]
#[ignore = "all 2^32 patterns of float32, seven times"]
fn every_pattern_of_float32_is_held() {
    check_every_float32(None, false, |x, y| x.to_bits() == y.to_bits());
    for (bound, ascending) in [(1e-30, true), (1e-4, false), (0.037, true), (1e30, false)] {
        check_every_float32(absolute(bound), ascending, |x, y| !exceeds(x, y, bound));
    }
    for (bound, floor, ascending) in [(0.0625, 1e-3, true), (0.000_976_562_5, 0.0, false)] {
        check_every_float32(relative(bound, floor), ascending, |x, y| {
            if x.abs() < floor { y == 0.0 } else { !exceeds(x, y, bound * x.abs()) }
        });
    }
}
