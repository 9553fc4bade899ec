//! The body of the decoder's fuzz target over mutated streams, from a fixed seed, and refusals one
//! by one.

mod twine_common;
mod twine_fuzz_body;

use std::collections::BTreeMap;

use twine_common::{Noise, absolute, encode, layout, pack, relative};
use twine_fuzz_body::{check, layouts, repaired};
use unspool_codec::twine::{self, Layout};
use unspool_codec::{Bound, CodecErrorKind, Dtype};

const CASES: usize = 20_000;

/// A stream with several kinds of chunks.
fn stream(layout: &Layout, method: Option<Bound>, noise: &mut Noise) -> Vec<u8> {
    let float = |i: u64| twine_common::pattern(layout, (i as f64 * 0.02).sin());
    let each = |i: u64| match i % 97 {
        0 => noise.next(),
        _ if i / 200 % 3 < 1 => u64::from(i % 37 < 1) * noise.next(),
        _ if layout.kind.is_float() => float(i),
        _ => i / 3,
    };
    encode(*layout, method, &pack(layout.bits, (0..layout.n).map(each))).0
}

fn seeds() -> Vec<(Layout, Vec<u8>)> {
    let mut noise = Noise(1);
    let mut seeds = Vec::new();
    for layout in layouts() {
        seeds.push((layout, stream(&layout, None, &mut noise)));
        if layout.kind.is_float() {
            seeds.push((layout, stream(&layout, absolute(1e-3), &mut noise)));
            seeds.push((layout, stream(&layout, relative(1e-2, 1e-3), &mut noise)));
        }
    }
    seeds
}

/// One to four changes, most of them after the header.
fn mutate(stream: &mut Vec<u8>, noise: &mut Noise) {
    for _ in 0..=noise.below(4) {
        let len = stream.len().max(80);
        stream.resize(len, 0);
        let at = if noise.below(8) == 0 { noise.below(64) } else { 64 + noise.below(len - 64) };
        let word = at.min(len - 4) & !3;
        match noise.below(6) {
            0 => stream[at] ^= 1 << noise.below(8),
            1 => stream[at] = noise.next() as u8,
            2 => stream[word..word + 4].copy_from_slice(&[[0; 4], [0xff; 4]][noise.below(2)]),
            3 => stream.copy_within(word..word + 4, 64 + noise.below(len - 68)),
            4 => stream[word] = stream[word].wrapping_add(1),
            _ => stream.resize(len.saturating_add(noise.below(40)) - 20, noise.next() as u8),
        }
    }
}

#[test]
fn mutated_streams_are_refused_or_fill_the_array_and_no_more() {
    let seeds = seeds();
    let mut noise = Noise(0x5eed);
    let mut seen: BTreeMap<Result<(), CodecErrorKind>, usize> = BTreeMap::new();
    for case in 0..CASES {
        let (layout, stream) = &seeds[case % seeds.len()];
        let mut stream = stream.clone();
        mutate(&mut stream, &mut noise);
        *seen.entry(check(layout, &stream)).or_default() += 1;
        *seen.entry(check(layout, &repaired(layout, &stream))).or_default() += 1;
    }
    let reached = |outcome| seen.get(&outcome).copied().unwrap_or(0);
    assert!(reached(Ok(())) > 3000, "{seen:?}");
    assert!(reached(Err(CodecErrorKind::Damaged)) > 3000, "{seen:?}");
    assert!(reached(Err(CodecErrorKind::Newer)) > 10, "{seen:?}");
}

#[test]
fn random_bytes_are_refused() {
    let mut noise = Noise(0xf00d);
    for layout in layouts() {
        for _ in 0..50 {
            let bytes: Vec<u8> = (0..noise.below(3000)).map(|_| noise.next() as u8).collect();
            assert_eq!(check(&layout, &bytes), Err(CodecErrorKind::Damaged));
        }
    }
}

/// The outcome of decoding 64 ramping int32 values after some words of the stream were changed.
fn changed(changes: &[(usize, u32)]) -> Result<(), CodecErrorKind> {
    let layout = layout(&Dtype::Int32, &[64]);
    let (mut stream, _) = encode(layout, None, &pack(32, 0..64));
    for &(word, value) in changes {
        stream[4 * word..4 * word + 4].copy_from_slice(&value.to_le_bytes());
    }
    check(&layout, &stream)
}

#[test]
fn each_rule_of_the_format_is_checked() {
    let damaged = Err(CodecErrorKind::Damaged);
    assert_eq!(changed(&[]), Ok(()));
    assert_eq!(changed(&[(1, 0x0100_0402)]), Err(CodecErrorKind::Newer));
    let rules = [
        ("magic", (0, 0x314e_5755)),
        ("dtype", (1, 0x0100_0301)),
        ("mode", (1, 0x0101_0401)),
        ("profile", (1, 0x0200_0401)),
        ("values", (2, 65)),
        ("chunks", (9, 2)),
        ("payload", (13, 12)),
        ("first offset", (16, 1)),
        ("last offset", (17, 10)),
        ("kind", (18, 6)),
        ("outliers without loss", (18, 0x0001_0002)),
        ("too wide", (19, 33)),
        ("sparse of no width", (19, 128)),
        ("another width", (19, 1)),
        ("raw", (18, 3)),
        ("constant", (18, 4)),
    ];
    for (rule, change) in rules {
        assert_eq!(changed(&[change]), damaged, "{rule}");
    }
    let reference = [(18, 5), (19, 2)];
    assert_eq!(changed(&reference), damaged, "a block of kind 5 without a reference");
}

#[test]
fn outliers_ascend_and_belong_to_values() {
    let layout = layout(&Dtype::Float32, &[100]);
    let nan = |i: u64| if i == 5 || i == 40 { 0x7fc0_0000 } else { ((i + 1) % 2) << 29 };
    let (stream, encoded) = encode(layout, absolute(1e-2), &pack(32, (0..100).map(nan)));
    assert_eq!(encoded.achieved.outliers, 2);
    let at = stream.len() - 12;
    assert_eq!(stream[at..at + 4], [5, 0, 40, 0]);
    let with = |positions: [u16; 2]| {
        let mut stream = stream.clone();
        stream[at..at + 4].copy_from_slice(positions.map(u16::to_le_bytes).as_flattened());
        check(&layout, &stream)
    };
    assert_eq!(with([5, 99]), Ok(()));
    for positions in [[40, 5], [5, 5], [5, 100], [5, 0xffff]] {
        assert_eq!(with(positions), Err(CodecErrorKind::Damaged), "{positions:?}");
    }
}

#[test]
fn a_table_that_goes_back_is_refused() {
    let layout = layout(&Dtype::Float32, &[3000]);
    let mut noise = Noise(4);
    let (stream, _) = encode(layout, None, &pack(32, (0..3000).map(|_| noise.next())));
    for word in [0, 5000, 3100] {
        let mut stream = stream.clone();
        stream[68..72].copy_from_slice(&u32::to_le_bytes(word));
        assert_eq!(check(&layout, &stream), Err(CodecErrorKind::Damaged));
    }
}

#[test]
fn bounds_that_make_no_sense_are_refused_and_say_why() {
    let refused = |dtype: &Dtype, bound: Bound| {
        let layout = Layout::of(dtype, &[10]).unwrap();
        let spec = twine::Array { layout, bound: Some(bound) };
        let mut out = vec![0; twine::max_bytes(&layout) as usize];
        let source = vec![0; layout.bytes() as usize];
        let error = twine::encode(&spec, &source, &mut out).unwrap_err();
        assert_eq!(spec.rule(), Err(error.clone()));
        assert_eq!(error.kind(), CodecErrorKind::Invalid);
        error.to_string()
    };
    assert!(refused(&Dtype::Int32, Bound::Absolute(1.0)).contains("lossless"));
    for bound in [-1.0, f64::NAN, f64::INFINITY] {
        for bound in [
            Bound::Absolute(bound),
            Bound::Range(bound),
            Bound::Rms(bound),
            Bound::L2(bound),
            Bound::Pointwise { bound, floor: 0.0 },
            Bound::Pointwise { bound: 0.1, floor: bound },
        ] {
            assert!(refused(&Dtype::Float32, bound).contains("not negative"), "{bound:?}");
        }
    }
}

#[test]
fn buffers_of_another_length_are_refused() {
    let layout = layout(&Dtype::Float32, &[10]);
    let spec = twine::Array { layout, bound: None };
    let mut out = vec![0; twine::max_bytes(&layout) as usize];
    assert!(twine::encode(&spec, &[0; 39], &mut out).is_err());
    assert!(twine::encode(&spec, &[0; 40], &mut out[1..]).is_err());
    let bytes = twine::encode(&spec, &[0; 40], &mut out).unwrap().bytes as usize;
    let error = twine::decode(&layout, &out[..bytes], &mut [0; 44]).unwrap_err();
    assert_eq!(error.kind(), CodecErrorKind::Invalid);
}

#[test]
fn arrays_that_are_too_large_are_refused_before_anything_is_reserved() {
    for shape in [&[u64::MAX][..], &[1 << 32, 1 << 32], &[1 << 33], &[3, 1 << 31]] {
        let error = Layout::of(&Dtype::Float64, shape).unwrap_err();
        assert_eq!(error.kind(), CodecErrorKind::TooLarge, "{shape:?}");
    }
    assert_eq!(Layout::of(&Dtype::Float64, &[u64::MAX, 0]).unwrap().n, 0);
    assert_eq!(Layout::of(&Dtype::UInt8, &[1 << 33]).unwrap().profile, 1);
}
