//! Twine: a stream is the sum of another one and their difference, byte for byte, along chains of
//! any values; and the body of the fuzz target of differences over mutated ones.

mod twine_common;
mod twine_fuzz_body;

use std::collections::BTreeMap;

use proptest::prelude::*;
use twine_common::{
    DTYPES, Noise, absolute, assert_within, decode, encode, layout, pack, pattern, relative,
    specials,
};
use twine_fuzz_body::{check_difference, layouts, repaired_difference};
use unspool_codec::twine::{Layout, add, difference};
use unspool_codec::{Bound, CodecErrorKind, Dtype};

/// The patterns of a next state: most values move a little, some far, some not.
fn moved(layout: &Layout, patterns: &mut [u64], noise: &mut Noise) {
    let floats = layout.kind.is_float();
    let known = if floats { specials(layout) } else { vec![0, u64::MAX, 1 << 63] };
    let quiet = noise.below(4);
    for (i, pattern) in patterns.iter_mut().enumerate() {
        match (noise.below(400), i / 700 % 4 == quiet) {
            (_, true) => {}
            (0, _) => *pattern = noise.next(),
            (1, _) => *pattern = known[noise.below(known.len())],
            _ => *pattern = pattern.wrapping_add(noise.next() & 15),
        }
    }
}

fn shapes() -> impl Strategy<Value = Vec<u64>> {
    prop_oneof![
        prop::collection::vec(0..5_u64, 0..4),
        prop::collection::vec(1..5000_u64, 1),
        (16..70_u64, 32..100_u64).prop_map(|(b, c)| vec![b, c]),
        (4..10_u64, 8..20_u64, 32..70_u64).prop_map(|(a, b, c)| vec![a, b, c]),
    ]
}

fn methods() -> impl Strategy<Value = Option<Bound>> {
    prop::sample::select(vec![
        None,
        absolute(1e-3),
        absolute(0.0),
        Some(Bound::Range(1e-3)),
        relative(1e-2, 0.0),
        relative(1e-3, 1e-4),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_chain_of_differences_gives_every_stream(
        dtype in prop::sample::select(DTYPES.to_vec()),
        shape in shapes(),
        method in methods(),
        kind in 0..4,
        seed in any::<u64>(),
    ) {
        let layout = layout(&dtype, &shape);
        let method = method.filter(|_| layout.kind.is_float());
        let mut noise = Noise(seed);
        let value = |i: u64| match kind {
            0 => 0,
            1 => noise.next(),
            _ if layout.kind.is_float() => pattern(&layout, (i as f64 * 0.01).sin() * 40.0),
            _ => i / 7,
        };
        let mut patterns: Vec<u64> = (0..layout.n).map(value).collect();
        let (mut parent, _) = encode(layout, method, &pack(layout.bits, patterns.clone()));
        for _ in 0..4 {
            moved(&layout, &mut patterns, &mut noise);
            let (stream, _) = encode(layout, method, &pack(layout.bits, patterns.clone()));
            if let Some(found) = difference(&layout, &stream, &parent).unwrap() {
                prop_assert!(found.len() <= stream.len());
                prop_assert!(add(&layout, &found, &parent).unwrap() == stream);
            } else {
                prop_assert!(matches!(method, Some(Bound::Range(_))), "{method:?}");
            }
            parent = stream;
        }
    }
}

/// The stream of a smooth field at a time.
fn field(layout: Layout, method: Option<Bound>, time: f64) -> Vec<u8> {
    let value = |i: u64| pattern(&layout, source(i, time));
    encode(layout, method, &pack(layout.bits, (0..layout.n).map(value))).0
}

/// A value that differs from those beside it, and changes slowly.
fn source(i: u64, time: f64) -> f64 {
    (i as f64 * 1.7).sin() * 40.0 + (i as f64 * 0.3).cos() * time
}

#[test]
fn what_moves_a_little_is_smaller_as_a_difference() {
    for dtype in [Dtype::Float32, Dtype::Float64, Dtype::Complex64] {
        let layout = layout(&dtype, &[6000]);
        for (method, part) in [(None, 0.8), (absolute(1e-3), 0.6), (relative(1e-4, 0.0), 0.8)] {
            let [parent, stream] = [0.0, 0.001].map(|time| field(layout, method, time));
            let found = difference(&layout, &stream, &parent).unwrap().unwrap();
            let most = part * stream.len() as f64;
            assert!((found.len() as f64) < most, "{dtype:?} {method:?} {}", found.len());
            let nothing = difference(&layout, &stream, &stream).unwrap().unwrap();
            assert!(nothing.len() < 64 + 3 * layout.n_chunks as usize);
        }
    }
}

#[test]
fn after_a_hundred_differences_the_bound_holds_against_the_original() {
    let layout = layout(&Dtype::Float32, &[3000]);
    let mut here = field(layout, absolute(1e-3), 0.0);
    for step in 1..=100 {
        let time = 0.01 * f64::from(step);
        let stream = field(layout, absolute(1e-3), time);
        let parent = field(layout, absolute(1e-3), time - 0.01);
        let found = difference(&layout, &stream, &parent).unwrap().unwrap();
        here = add(&layout, &found, &here).unwrap();
        let values = pack(32, (0..layout.n).map(|i| pattern(&layout, source(i, time))));
        assert_within(&layout, &values, &decode(&layout, &here), 1e-3);
    }
}

#[test]
fn coefficients_of_another_meaning_have_no_difference() {
    let layout = layout(&Dtype::Float32, &[3000]);
    let methods = [None, absolute(1e-3), absolute(2e-3), relative(1e-2, 0.0), relative(1e-3, 0.0)];
    let streams = methods.map(|method| field(layout, method, 0.0));
    for (at, stream) in streams.iter().enumerate() {
        for (other, parent) in streams.iter().enumerate() {
            let found = difference(&layout, stream, parent).unwrap();
            assert_eq!(found.is_some(), at == other);
            let own = difference(&layout, stream, stream).unwrap().unwrap();
            assert_eq!(add(&layout, &own, parent).is_ok(), at == other);
        }
        let elsewhere = Layout::of(&Dtype::Float32, &[3001]).unwrap();
        assert!(difference(&elsewhere, stream, stream).is_err());
        assert!(add(&elsewhere, stream, stream).is_err());
    }
}

/// A difference, and the stream that it is one to.
fn seed(layout: &Layout, method: Option<Bound>) -> (Vec<u8>, Vec<u8>) {
    let mut noise = Noise(layout.n);
    let float = |i: u64| pattern(layout, (i as f64 * 0.02).sin());
    let value = |i: u64| if layout.kind.is_float() { float(i) } else { i / 3 };
    let mut patterns: Vec<u64> = (0..layout.n).map(value).collect();
    let (parent, _) = encode(*layout, method, &pack(layout.bits, patterns.clone()));
    moved(layout, &mut patterns, &mut noise);
    let (stream, _) = encode(*layout, method, &pack(layout.bits, patterns));
    let found = difference(layout, &stream, &parent).expect("streams of this layout");
    (found.expect("of one mode"), parent)
}

#[test]
fn mutated_differences_are_refused_or_give_a_stream() {
    let mut noise = Noise(0xde17a);
    let mut seen: BTreeMap<Result<(), CodecErrorKind>, usize> = BTreeMap::new();
    for layout in layouts() {
        for method in [None, absolute(1e-3), relative(1e-2, 1e-3)] {
            let method = method.filter(|_| layout.kind.is_float());
            let (found, parent) = seed(&layout, method);
            for _ in 0..150 {
                let mut changed = found.clone();
                for _ in 0..=noise.below(3) {
                    let at = 64 + noise.below(changed.len() - 64);
                    match noise.below(4) {
                        0 => changed[at] ^= 1 << noise.below(8),
                        1 => changed[at] = noise.next() as u8,
                        2 => changed[64 + noise.below(4)] ^= 3,
                        _ => changed.truncate(at.max(68)),
                    }
                }
                *seen.entry(check_difference(&layout, &changed, &parent)).or_default() += 1;
                let repaired = repaired_difference(&layout, &changed, &parent);
                *seen.entry(check_difference(&layout, &repaired, &parent)).or_default() += 1;
            }
        }
    }
    let reached = |outcome| seen.get(&outcome).copied().unwrap_or(0);
    assert!(reached(Ok(())) > 500, "{seen:?}");
    assert!(reached(Err(CodecErrorKind::Damaged)) > 500, "{seen:?}");
}
