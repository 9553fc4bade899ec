//! Helpers of the tests of Twine: streams, values of every sort, and exact comparisons.

#![allow(dead_code, reason = "every test file uses its part")]

use unspool_codec::twine::{self, Array, Layout};
use unspool_codec::{Bound, Dtype, EncodedStream};

/// Every dtype that has values of its own kind, and some that are taken as bytes.
pub const DTYPES: [Dtype; 19] = [
    Dtype::Bool,
    Dtype::Int8,
    Dtype::Int16,
    Dtype::Int32,
    Dtype::Int64,
    Dtype::UInt8,
    Dtype::UInt16,
    Dtype::UInt32,
    Dtype::UInt64,
    Dtype::Float16,
    Dtype::BFloat16,
    Dtype::Float32,
    Dtype::Float64,
    Dtype::Complex32,
    Dtype::Complex64,
    Dtype::Complex128,
    Dtype::Float8E4m3,
    Dtype::QInt32,
    Dtype::Bits16,
];

/// The dtypes that can be encoded with a bound.
pub const FLOATS: [Dtype; 7] = [
    Dtype::Float16,
    Dtype::BFloat16,
    Dtype::Float32,
    Dtype::Float64,
    Dtype::Complex32,
    Dtype::Complex64,
    Dtype::Complex128,
];

pub fn layout(dtype: &Dtype, shape: &[u64]) -> Layout {
    Layout::of(dtype, shape).expect("small enough")
}

/// Encodes into memory that is not zeroed, so that what is not written is noticed.
pub fn encode(layout: Layout, method: Option<Bound>, source: &[u8]) -> (Vec<u8>, EncodedStream) {
    let mut stream = vec![0xa5; twine::max_bytes(&layout) as usize];
    let encoded =
        twine::encode(&Array { layout, bound: method }, source, &mut stream).expect("encodes");
    stream.truncate(encoded.bytes as usize);
    (stream, encoded)
}

pub fn decode(layout: &Layout, stream: &[u8]) -> Vec<u8> {
    let mut back = vec![0x5a; layout.bytes() as usize];
    twine::decode(layout, stream, &mut back).expect("decodes");
    back
}

/// The values that come back, and the result of the encoder.
pub fn there_and_back(
    layout: Layout,
    method: Option<Bound>,
    source: &[u8],
) -> (Vec<u8>, EncodedStream) {
    let (stream, encoded) = encode(layout, method, source);
    (decode(&layout, &stream), encoded)
}

pub fn absolute(bound: f64) -> Option<Bound> {
    Some(Bound::Absolute(bound))
}

pub fn relative(bound: f64, floor: f64) -> Option<Bound> {
    Some(Bound::Pointwise { bound, floor })
}

/// The value of a float of `bits` bits; float16 and bfloat16 by their definition.
pub fn value(layout: &Layout, item: &[u8]) -> f64 {
    use unspool_codec::twine::ValueKind::{BFloat16, Float16, Float32};
    match (layout.kind, item) {
        (Float16, &[a, b]) => half(u16::from_le_bytes([a, b])),
        (BFloat16, &[a, b]) => f64::from(f32::from_le_bytes([0, 0, a, b])),
        (Float32, &[a, b, c, d]) => f64::from(f32::from_le_bytes([a, b, c, d])),
        _ => f64::from_le_bytes(item.try_into().expect("eight bytes")),
    }
}

fn half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
    match exponent {
        0 => sign * fraction * 2.0_f64.powi(-24),
        31 if fraction == 0.0 => sign * f64::INFINITY,
        31 => f64::NAN,
        _ => sign * (1024.0 + fraction) * 2.0_f64.powi(exponent - 25),
    }
}

/// Whether |x - y| > bound, without any rounding: the difference as a sum of two floats (Knuth,
/// The Art of Computer Programming, volume 2, 4.2.2, theorem B).
pub fn exceeds(x: f64, y: f64, bound: f64) -> bool {
    let difference = x - y;
    let part = difference - x;
    let rest = (x - (difference - part)) - (y + part);
    let (difference, rest) =
        if difference < 0.0 { (-difference, -rest) } else { (difference, rest) };
    difference > bound || (difference == bound && rest > 0.0)
}

/// The largest error of the finite values. Panics where one exceeds the bound, or where a value
/// that is not finite has not come back bit for bit.
pub fn assert_within(layout: &Layout, source: &[u8], back: &[u8], bound: f64) -> f64 {
    assert_each(layout, source, back, |x, y| !exceeds(x, y, bound))
}

/// As [`assert_within`], with `|x| < floor` becoming 0 and `|x - y| <= bound * |x|` for all others;
/// the product must be exact.
pub fn assert_relative(layout: &Layout, source: &[u8], back: &[u8], bound: f64, floor: f64) {
    let within = |x: f64, y: f64| {
        if x.abs() < floor { y == 0.0 || x == y } else { !exceeds(x, y, bound * x.abs()) }
    };
    assert_each(layout, source, back, within);
}

fn assert_each(
    layout: &Layout,
    source: &[u8],
    back: &[u8],
    within: impl Fn(f64, f64) -> bool,
) -> f64 {
    assert_eq!(source.len(), back.len());
    let bytes = layout.value_bytes();
    let mut largest = 0.0_f64;
    for (from, to) in source.chunks(bytes).zip(back.chunks(bytes)) {
        let (x, y) = (value(layout, from), value(layout, to));
        if x.is_finite() {
            assert!(within(x, y), "{x:e} ({from:02x?}) became {y:e} ({to:02x?})");
            largest = largest.max((x - y).abs());
        } else {
            assert_eq!(from, to);
        }
    }
    largest
}

/// Numbers in an order without a pattern, the same in every run.
pub struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// The bytes of values of `bits` bits.
pub fn pack(bits: u32, patterns: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let bytes = bits as usize / 8;
    patterns.into_iter().flat_map(|pattern| pattern.to_le_bytes()[..bytes].to_vec()).collect()
}

/// The pattern of a float for this layout, to the nearest or next to it.
pub fn pattern(layout: &Layout, x: f64) -> u64 {
    use unspool_codec::twine::ValueKind::{BFloat16, Float16, Float32};
    match layout.kind {
        Float16 => half_pattern(x),
        BFloat16 => u64::from((x as f32).to_bits() >> 16),
        Float32 => u64::from((x as f32).to_bits()),
        _ => x.to_bits(),
    }
}

fn half_pattern(x: f64) -> u64 {
    let bits = (x as f32).to_bits();
    let sign = u64::from(bits >> 16 & 0x8000);
    let exponent = (bits >> 23 & 255) as i32 - 112;
    match exponent {
        ..=0 => sign,
        1..=30 => sign | (exponent as u64) << 10 | u64::from(bits >> 13 & 0x3ff),
        _ => sign | 0x7c00,
    }
}

/// Special patterns: both zeros, subnormal numbers, the largest finite one,
/// infinities, NaN with a payload, and one and minus two.
pub fn specials(layout: &Layout) -> Vec<u64> {
    let sign = 1_u64 << (layout.bits - 1);
    let mantissa = layout.kind.mantissa_bits();
    let infinity = sign - (1 << mantissa);
    let one = pattern(layout, 1.0);
    vec![
        0,
        sign,
        1,
        sign | ((1 << mantissa) - 1),
        1 << mantissa,
        infinity - 1,
        infinity,
        sign | infinity,
        infinity | 5,
        sign | infinity | 1 << (mantissa - 1),
        one,
        sign | pattern(layout, 2.0),
    ]
}
