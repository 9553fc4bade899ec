//! Twine: round trips within the bound, whatever the dtype, the shape and the values.

mod twine_common;

use proptest::prelude::*;
use twine_common::{
    DTYPES, FLOATS, Noise, absolute, assert_relative, assert_within, decode, encode, layout, pack,
    pattern, relative, specials, there_and_back,
};
use unspool_codec::twine::{self, Layout};
use unspool_codec::{Bound, Dtype};

/// How values are laid out over an array.
#[derive(Clone, Copy, Debug)]
enum Texture {
    Zeros,
    Constant,
    Ramp,
    Smooth,
    Sparse,
    Noise,
    Narrow,
}

const TEXTURES: [Texture; 7] = [
    Texture::Zeros,
    Texture::Constant,
    Texture::Ramp,
    Texture::Smooth,
    Texture::Sparse,
    Texture::Noise,
    Texture::Narrow,
];

impl Texture {
    fn patterns(self, layout: &Layout, noise: &mut Noise) -> Vec<u64> {
        let constant = noise.next();
        let float = layout.kind.is_float();
        let number = |x: f64| if float { pattern(layout, x) } else { (x * 1000.0) as i64 as u64 };
        let each = |i: u64| match self {
            Texture::Zeros => 0,
            Texture::Constant => constant,
            Texture::Ramp => number(i as f64 * 0.25),
            Texture::Smooth => number((i as f64 * 0.01).sin() * 40.0),
            Texture::Sparse => {
                if noise.below(9) == 0 {
                    noise.next() >> 20
                } else {
                    0
                }
            }
            Texture::Noise => noise.next(),
            Texture::Narrow => number(3.0).wrapping_add(noise.next() & 63),
        };
        (0..layout.n).map(each).collect()
    }
}

/// A source of a texture with some special values at random places.
fn source(layout: &Layout, texture: Texture, special: usize, seed: u64) -> Vec<u8> {
    let mut noise = Noise(seed);
    let mut patterns = texture.patterns(layout, &mut noise);
    let known = if layout.kind.is_float() { specials(layout) } else { vec![0, u64::MAX, 1 << 63] };
    for _ in 0..special.min(patterns.len()) {
        let at = noise.below(patterns.len());
        patterns[at] = known[noise.below(known.len())];
    }
    pack(layout.bits, patterns)
}

fn shapes() -> impl Strategy<Value = Vec<u64>> {
    prop_oneof![
        Just(vec![]),
        prop::collection::vec(0..5_u64, 1..4),
        prop::collection::vec(1..5000_u64, 1),
        (1..3_u64, 16..70_u64, 32..70_u64).prop_map(|(a, b, c)| vec![a, b, c]),
        (16..70_u64, 32..100_u64).prop_map(|(b, c)| vec![b, c]),
        (4..10_u64, 8..20_u64, 32..70_u64).prop_map(|(a, b, c)| vec![a, b, c]),
        (1..3_u64, 4..7_u64, 8..12_u64, 32..40_u64).prop_map(|(a, b, c, d)| vec![a, b, c, d]),
    ]
}

fn bounds() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(1e-3), Just(1e-9), Just(0.5), Just(1e9), 1e-6..10.0_f64]
}

fn texture() -> impl Strategy<Value = Texture> {
    prop::sample::select(&TEXTURES[..])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn without_loss_every_bit_comes_back(
        dtype in prop::sample::select(&DTYPES[..]),
        shape in shapes(),
        texture in texture(),
        special in 0..40_usize,
        seed: u64,
    ) {
        let layout = layout(&dtype, &shape);
        let source = source(&layout, texture, special, seed);
        let (stream, encoded) = encode(layout, None, &source);
        prop_assert!(stream.len() as u64 <= twine::max_bytes(&layout));
        prop_assert_eq!(encoded.achieved.max_error, 0.0);
        prop_assert_eq!(encoded.achieved.values, layout.n);
        prop_assert!(decode(&layout, &stream) == source);
    }

    #[test]
    fn an_absolute_bound_holds_and_the_achieved_error_is_told(
        dtype in prop::sample::select(&FLOATS[..]),
        shape in shapes(),
        texture in texture(),
        special in prop_oneof![Just(0), 0..20_usize, Just(600)],
        bound in bounds(),
        seed: u64,
    ) {
        let layout = layout(&dtype, &shape);
        let source = source(&layout, texture, special, seed);
        let (stream, encoded) = encode(layout, absolute(bound), &source);
        let back = decode(&layout, &stream);
        let largest = assert_within(&layout, &source, &back, bound);
        let said = encoded.achieved.max_error;
        prop_assert!((said - largest).abs() <= 1e-6 * largest + 1e-37, "{said} {largest}");
        prop_assert!(encoded.achieved.rms_error() <= said * (1.0 + 1e-12) + 1e-37);
        prop_assert_eq!(twine::header(&stream).unwrap().max_error, said);
        let (again, _) = encode(layout, absolute(bound), &source);
        prop_assert_eq!(again, stream);
    }

    #[test]
    fn a_relative_bound_holds_down_to_its_floor(
        dtype in prop::sample::select(&FLOATS[..]),
        shape in shapes(),
        texture in texture(),
        special in prop_oneof![Just(0), 0..20_usize],
        cut in 1..60_i32,
        floor in prop_oneof![Just(0.0), Just(1e-3), Just(1e-40), Just(3e38), Just(1e300)],
        seed: u64,
    ) {
        let layout = layout(&dtype, &shape);
        let source = source(&layout, texture, special, seed);
        let bound = 0.5_f64.powi(cut);
        let (back, _) = there_and_back(layout, relative(bound, floor), &source);
        assert_relative(&layout, &source, &back, bound, floor);
    }
}

#[test]
fn large_arrays_give_the_same_stream_on_any_number_of_threads() {
    let shape = [3, 200, 300];
    for (dtype, method) in [(Dtype::Float32, absolute(1e-3)), (Dtype::UInt16, None)] {
        let layout = layout(&dtype, &shape);
        let source = source(&layout, Texture::Smooth, 500, 3);
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let (stream, encoded) = encode(layout, method, &source);
                (decode(&layout, &stream), stream, encoded)
            })
        };
        assert!(with(1) == with(3));
    }
}

#[test]
fn bounds_relative_to_the_values_are_those_of_their_definition() {
    let layout = layout(&Dtype::Float64, &[40, 50]);
    let source = source(&layout, Texture::Smooth, 0, 1);
    let values: Vec<f64> =
        source.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
    let range = values.iter().fold(0.0_f64, |m, x| m.max(*x))
        - values.iter().fold(0.0_f64, |m, x| m.min(*x));
    let rms = (values.iter().map(|x| x * x).sum::<f64>() / values.len() as f64).sqrt();
    let sqrt_3 = 3.0_f64.sqrt();
    for (bound, expected) in [
        (Bound::Range(1e-3), 1e-3 * range),
        (Bound::Rms(1e-3), 1e-3 * rms),
        (Bound::Psnr(60.0), sqrt_3 * 1e-3 * range),
        (Bound::L2(1e-3), sqrt_3 * 1e-3 * rms),
    ] {
        let (stream, _) = encode(layout, Some(bound), &source);
        let held = twine::header(&stream).unwrap().bound;
        // The largest one of the grid that is not above it: three bits after the leading one.
        let grid = f64::from_bits(expected.to_bits() >> 49 << 49);
        assert!(held <= expected && held == grid, "{bound:?}: {held} {expected}");
        assert_within(&layout, &source, &decode(&layout, &stream), held);
    }
}

#[test]
fn values_that_are_not_finite_do_not_disturb_bounds_that_are_relative_to_the_values() {
    let layout = layout(&Dtype::Float32, &[3000]);
    let patterns = |i: u64| match i % 100 {
        0 => 0x7f80_0000,
        1 => 0x7fc0_1234,
        _ => u64::from((i as f32 * 0.1).sin().to_bits()),
    };
    let source = pack(32, (0..3000).map(patterns));
    let summary = twine::reduce(&layout, &source);
    assert_eq!(summary.n_finite, 2940);
    assert!(summary.min >= -1.0 && summary.max <= 1.0 && summary.max > 0.99);
    let (back, encoded) = there_and_back(layout, Some(Bound::Range(1e-3)), &source);
    assert_within(&layout, &source, &back, 1e-3 * (summary.max - summary.min));
    assert_eq!(encoded.achieved.outliers, 60);
}

#[test]
fn a_bound_that_no_value_can_be_held_to_keeps_every_value() {
    let layout = layout(&Dtype::Float32, &[5000]);
    let source = source(&layout, Texture::Noise, 100, 5);
    for bound in [0.0, 1e-40, 1e-300] {
        let (stream, encoded) = encode(layout, absolute(bound), &source);
        assert_eq!(decode(&layout, &stream), source);
        let header = twine::header(&stream).unwrap();
        assert_eq!((header.bound, header.step, encoded.achieved.outliers), (0.0, 0.0, 5000));
    }
    let wide = pack(64, (0..4000).map(|i| if i % 2 == 0 { f64::MAX } else { f64::MIN }.to_bits()));
    let layout = Layout::of(&Dtype::Float64, &[4000]).unwrap();
    for bound in [Bound::Range(0.1), Bound::Rms(0.1)] {
        let (back, _) = there_and_back(layout, Some(bound), &wide);
        assert!(back == wide, "the range overflows: {bound:?}");
    }
}

#[test]
fn a_bound_above_all_values_leaves_nothing_but_what_is_not_finite() {
    let layout = layout(&Dtype::Float32, &[4096]);
    let patterns = |i: u64| if i == 77 { 0x7f80_0000 } else { u64::from((i as f32).to_bits()) };
    let source = pack(32, (0..4096).map(patterns));
    for bound in [1e5, 1e39, 1e300] {
        let (stream, encoded) = encode(layout, absolute(bound), &source);
        assert_eq!((stream.len(), encoded.achieved.outliers), (64 + 20 + 4 * 11, 1));
        assert_within(&layout, &source, &decode(&layout, &stream), bound);
    }
}

#[test]
fn a_source_at_an_odd_address_is_read_as_well() {
    let layout = layout(&Dtype::Float64, &[70, 90]);
    let source = source(&layout, Texture::Smooth, 9, 2);
    let mut moved = vec![0; source.len() + 1];
    moved[1..].copy_from_slice(&source);
    assert_eq!(
        encode(layout, absolute(1e-3), &source),
        encode(layout, absolute(1e-3), &moved[1..])
    );
}

#[test]
fn a_chunk_of_outliers_alone_leaves_nothing_of_the_chunk_before() {
    let layout = layout(&Dtype::Float32, &[2048]);
    let patterns = |i: u64| match i {
        0..1024 => u64::from((i as f32 * 0.1).sin().to_bits()),
        1500 => 0x7fc0_0000,
        _ => 0,
    };
    let source = pack(32, (0..2048).map(patterns));
    let (back, _) = there_and_back(layout, absolute(1e-3), &source);
    assert_within(&layout, &source, &back, 1e-3);
    assert!(back[4096..] == source[4096..]);
}
