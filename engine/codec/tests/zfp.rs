//! zfp streams: those of libzfp, what comes back, what is refused.

mod common;

use common::Random;
use proptest::prelude::*;
use unspool_codec::zfp::{self, PREFIX_BYTES};
use unspool_codec::{CodecError, CodecErrorKind, Dtype, Zfp};

fn encode(
    mode: Zfp,
    dtype: &Dtype,
    shape: &[u64],
    source: &[u8],
) -> Result<(Vec<u8>, unspool_codec::Achieved), CodecError> {
    let most = zfp::max_bytes(&mode, dtype, shape)? as usize;
    let mut stream = vec![0xcc; most];
    let encoded = zfp::encode(&mode, dtype, shape, source, &mut stream)?;
    stream.truncate(encoded.bytes as usize);
    Ok((stream, encoded.achieved))
}

fn decode(dtype: &Dtype, shape: &[u64], stream: &[u8]) -> Result<Vec<u8>, CodecError> {
    let items: u64 = shape.iter().product();
    let mut out = vec![0xee; (items * dtype.itemsize()) as usize];
    zfp::decode(dtype, shape, stream, &mut out).map(|()| out)
}

fn wave(shape: &[u64]) -> Vec<f32> {
    let items: u64 = shape.iter().product();
    let row = shape.last().copied().unwrap_or(1).max(1);
    let value = |i: u64| ((i % row) as f32 * 0.11).sin() * ((i / row) as f32 * 0.07).cos();
    (0..items).map(value).collect()
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// One line of the golden file, made by libzfp through Python.
struct Golden {
    dtype: Dtype,
    shape: Vec<u64>,
    mode: Zfp,
    stream: Vec<u8>,
    decoded: Vec<u8>,
}

fn unhex(digits: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn golden() -> Vec<Golden> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let number: f64 = fields[3].parse().expect("a parameter");
        Golden {
            dtype: Dtype::from_name(fields[0]).expect("a dtype"),
            shape: fields[1].split('x').map(|size| size.parse().expect("a size")).collect(),
            mode: match fields[2] {
                "rate" => Zfp::Rate(number),
                "precision" => Zfp::Precision(number as u32),
                _ => Zfp::Tolerance(number),
            },
            stream: unhex(fields[4]),
            decoded: unhex(fields[5]),
        }
    };
    include_str!("golden/zfp.txt").lines().map(line).collect()
}

/// The field of `make_zfp.py`.
fn golden_values(dtype: &Dtype, items: i64) -> Vec<u8> {
    let whole = |i: i64| {
        let value = (i * i * 5 + i * 11) % 1021 - 400 + i * 16;
        if i % 23 == 7 { 0 } else { value }
    };
    let bytes = |i: i64| match dtype {
        Dtype::Int32 => (whole(i) as i32).to_le_bytes().to_vec(),
        Dtype::Int64 => whole(i).to_le_bytes().to_vec(),
        Dtype::Float32 => (whole(i) as f32 / 256.0).to_le_bytes().to_vec(),
        _ => (whole(i) as f64 / 256.0).to_le_bytes().to_vec(),
    };
    (0..items).flat_map(bytes).collect()
}

#[test]
fn streams_are_those_of_libzfp_byte_for_byte() {
    let cases = golden();
    assert_eq!(cases.len(), 2 * 6 * 4 + 2 * 6 * 3);
    for Golden { dtype, shape, mode, stream, decoded } in cases {
        let source = golden_values(&dtype, shape.iter().product::<u64>() as i64);
        let (made, _) = encode(mode, &dtype, &shape, &source).unwrap();
        let words = stream.len().next_multiple_of(8);
        assert_eq!(made.len(), PREFIX_BYTES + words, "{dtype} {shape:?} {mode:?}");
        let (body, padding) = made[PREFIX_BYTES..].split_at(stream.len());
        assert_eq!(body, stream, "{dtype} {shape:?} {mode:?}");
        assert!(padding.iter().all(|&byte| byte == 0));
        assert_eq!(decode(&dtype, &shape, &made).unwrap(), decoded, "{dtype} {shape:?} {mode:?}");
    }
}

#[test]
fn tolerance_holds_and_the_error_is_told() {
    for shape in [&[5000][..], &[70, 81], &[9, 30, 31], &[3, 4, 20, 21], &[2, 2, 3, 20, 21]] {
        let values = wave(shape);
        for tolerance in [0.1, 1e-3, 1e-5] {
            let source = bytes_of(&values);
            let mode = Zfp::Tolerance(tolerance);
            let (stream, achieved) = encode(mode, &Dtype::Float32, shape, &source).unwrap();
            let back = decode(&Dtype::Float32, shape, &stream).unwrap();
            let back = back.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b));
            let error = |(x, y): (&f32, f32)| (f64::from(*x) - f64::from(y)).abs();
            let errors: Vec<f64> = values.iter().zip(back).map(error).collect();
            let worst = errors.iter().copied().fold(0.0, f64::max);
            let sum: f64 = errors.iter().map(|e| e * e).sum();
            assert!(worst <= tolerance, "{shape:?} {tolerance}: {worst}");
            assert_eq!((achieved.max_error, achieved.values), (worst, values.len() as u64));
            assert!((achieved.sum_sq_error - sum).abs() <= 1e-9 * sum);
        }
    }
}

#[test]
fn size_at_a_fixed_rate_is_known_before() {
    for (shape, rate, bytes) in [
        (&[64, 64][..], 4.0, 64 * 64 / 2),
        (&[5, 9], 4.0, 6 * 8),
        (&[5], 0.5, 2 * 9_u64.div_ceil(8)),
        (&[7, 3, 100, 100], 1.0, 2 * 25 * 25 * 32),
    ] {
        let expected = PREFIX_BYTES as u64 + u64::next_multiple_of(bytes, 8);
        let most = zfp::max_bytes(&Zfp::Rate(rate), &Dtype::Float32, shape).unwrap();
        assert_eq!(most, expected, "{shape:?}");
        let source = bytes_of(&wave(shape));
        let (stream, _) = encode(Zfp::Rate(rate), &Dtype::Float32, shape, &source).unwrap();
        assert_eq!(stream.len() as u64, expected, "{shape:?}");
    }
}

#[test]
fn large_fields_are_the_same_with_one_thread_and_with_many() {
    let shape = [300, 700];
    let source = bytes_of(&wave(&shape));
    for mode in [Zfp::Rate(7.5), Zfp::Precision(20), Zfp::Tolerance(1e-4)] {
        let (stream, _) = encode(mode, &Dtype::Float32, &shape, &source).unwrap();
        let config = match mode {
            Zfp::Precision(planes) => zfp_rs::ZfpConfig::fixed_precision(planes),
            Zfp::Tolerance(tolerance) => zfp_rs::ZfpConfig::fixed_accuracy(tolerance),
            _ => zfp_rs::ZfpConfig::fixed_rate(
                7.5,
                zfp_rs::ZfpScalarType::F32,
                zfp_rs::ZfpDimensionality::D2,
                zfp_rs::ZfpStreamAlignment::Unaligned,
            )
            .unwrap(),
        };
        let values = wave(&shape);
        let field = zfp_rs::ZfpField::new(&values, [700_usize, 300]).unwrap();
        let mut alone = zfp_rs::ZfpBitStream::new(stream.len() + 4096).unwrap();
        alone.compress(&config, &field).unwrap();
        assert!(alone.as_bytes() == &stream[PREFIX_BYTES..], "{mode:?}");
    }
}

#[test]
fn memory_that_is_not_aligned_makes_no_difference() {
    let (shape, mode) = ([20, 30], Zfp::Tolerance(1e-3));
    let source = bytes_of(&wave(&shape));
    let (stream, _) = encode(mode, &Dtype::Float32, &shape, &source).unwrap();
    let back = decode(&Dtype::Float32, &shape, &stream).unwrap();
    for shift in 1..8 {
        let shifted = [&vec![0; shift][..], &source].concat();
        let mut out = vec![0; shift + 64 * stream.len()];
        let made =
            zfp::encode(&mode, &Dtype::Float32, &shape, &shifted[shift..], &mut out[shift..]);
        let made = made.unwrap().bytes as usize;
        assert_eq!(out[shift..shift + made], stream);
        let mut room = vec![0; shift + source.len()];
        let moved = [&vec![0; shift][..], &stream].concat();
        zfp::decode(&Dtype::Float32, &shape, &moved[shift..], &mut room[shift..]).unwrap();
        assert_eq!(room[shift..], back);
    }
}

#[test]
fn scalars_empty_arrays_and_many_dimensions_come_back() {
    let shapes: [&[u64]; 6] = [&[], &[0], &[3, 0, 1 << 40], &[1; 9], &[2, 3, 2, 1, 2, 5], &[1, 1]];
    for shape in shapes {
        let source = bytes_of(&wave(shape));
        let mode = Zfp::Precision(32);
        let (stream, achieved) = encode(mode, &Dtype::Float32, shape, &source).unwrap();
        let back = decode(&Dtype::Float32, shape, &stream).unwrap();
        assert_eq!(back.len(), source.len(), "{shape:?}");
        assert!(achieved.max_error < 1e-6);
    }
}

#[test]
fn integers_within_the_middle_half_of_their_range_come_back_whole() {
    let values = [-(1 << 30), -7, 0, 1, 5, (1 << 30) - 1, 3, 3, 3];
    let source: Vec<u8> = values.iter().flat_map(|v: &i32| v.to_le_bytes()).collect();
    let (stream, achieved) = encode(Zfp::Precision(32), &Dtype::Int32, &[9], &source).unwrap();
    assert!(achieved.max_error <= 4.0, "{achieved:?}");
    let back = decode(&Dtype::Int32, &[9], &stream).unwrap();
    for (value, back) in values.iter().zip(back.as_chunks::<4>().0) {
        assert!(value.abs_diff(i32::from_le_bytes(*back)) <= 4);
    }
}

#[track_caller]
fn assert_refused(
    mode: Zfp,
    dtype: &Dtype,
    shape: &[u64],
    source: &[u8],
    kind: CodecErrorKind,
    words: &str,
) {
    let error = encode(mode, dtype, shape, source).expect_err("refused");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn values_that_zfp_cannot_hold_are_refused_with_their_place() {
    use CodecErrorKind::Invalid;
    let mode = Zfp::Tolerance(0.1);
    for (bad, name) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
        let mut values = wave(&[100]);
        values[37] = bad;
        let words = format!("no form for {name}, value 37");
        assert_refused(mode, &Dtype::Float32, &[100], &bytes_of(&values), Invalid, &words);
    }
    for bad in [1_i32 << 30, i32::MIN] {
        let source: Vec<u8> = [0, bad].iter().flat_map(|v: &i32| v.to_le_bytes()).collect();
        let words = format!("no form for {bad}, value 1");
        assert_refused(Zfp::Rate(8.0), &Dtype::Int32, &[2], &source, Invalid, &words);
    }
    let source = (1_i64 << 62).to_le_bytes();
    assert_refused(Zfp::Rate(8.0), &Dtype::Int64, &[1], &source, Invalid, "4611686018427387904");
}

#[test]
fn modes_and_arrays_that_zfp_does_not_know_are_refused() {
    use CodecErrorKind::{Invalid, TooLarge};
    let f32 = Dtype::Float32;
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e6] {
        assert_refused(Zfp::Rate(rate), &f32, &[4], &[0; 16], Invalid, "no rate of");
    }
    for planes in [0, 33] {
        assert_refused(Zfp::Precision(planes), &f32, &[4], &[0; 16], Invalid, "1 to 32");
    }
    for tolerance in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_refused(Zfp::Tolerance(tolerance), &f32, &[4], &[0; 16], Invalid, "above 0");
    }
    assert_refused(Zfp::Tolerance(1.0), &Dtype::Int32, &[4], &[0; 16], Invalid, "integers");
    assert_refused(Zfp::Rate(8.0), &Dtype::Float16, &[4], &[0; 8], Invalid, "not float16");
    assert_refused(Zfp::Rate(8.0), &f32, &[4], &[0; 15], Invalid, "16 bytes");
    assert_refused(Zfp::Rate(8.0), &f32, &[1 << 32], &[], TooLarge, "Split");
    assert_refused(Zfp::Rate(8.0), &f32, &[1 << 31, 1 << 31], &[], TooLarge, "Split");
    let folded = [1 << 17, 1 << 17, 1, 1, 1];
    assert_refused(Zfp::Rate(8.0), &f32, &folded, &[], TooLarge, "Split");
}

/// A stream of 20 x 30 values and its mode.
fn streams() -> Vec<Vec<u8>> {
    let source = bytes_of(&wave(&[20, 30]));
    [Zfp::Rate(8.0), Zfp::Precision(12), Zfp::Tolerance(1e-3)]
        .map(|mode| encode(mode, &Dtype::Float32, &[20, 30], &source).expect("a wave").0)
        .to_vec()
}

#[track_caller]
fn assert_damaged(dtype: &Dtype, shape: &[u64], stream: &[u8]) {
    let error = decode(dtype, shape, stream).expect_err("damaged");
    assert_eq!(error.kind(), CodecErrorKind::Damaged, "{error}");
}

#[test]
fn stream_of_another_array_is_refused() {
    for stream in streams() {
        assert_damaged(&Dtype::Float32, &[30, 20], &stream);
        assert_damaged(&Dtype::Float32, &[600], &stream);
        assert_damaged(&Dtype::Int32, &[20, 31], &stream);
    }
}

#[test]
fn every_truncation_and_every_longer_stream_is_refused() {
    for stream in streams() {
        for len in 0..stream.len() {
            assert_damaged(&Dtype::Float32, &[20, 30], &stream[..len]);
        }
        for more in [1, 8] {
            let longer = [&stream[..], &vec![0; more]].concat();
            assert_damaged(&Dtype::Float32, &[20, 30], &longer);
            let mut said = longer;
            let len = (said.len() - PREFIX_BYTES) as u64;
            said[40..48].copy_from_slice(&len.to_le_bytes());
            assert_damaged(&Dtype::Float32, &[20, 30], &said);
        }
    }
}

#[test]
fn every_changed_byte_of_a_prefix_is_refused_unless_it_is_the_parameter() {
    for stream in streams() {
        for at in (0..PREFIX_BYTES).filter(|at| !(24..32).contains(at)) {
            for flip in [1, 0x80] {
                let mut changed = stream.clone();
                changed[at] ^= flip;
                let outcome = decode(&Dtype::Float32, &[20, 30], &changed);
                assert!(outcome.is_err(), "byte {at} changed by {flip:#x}");
            }
        }
    }
}

#[test]
fn newer_stream_is_told_apart_from_a_damaged_one() {
    let mut stream = streams().remove(0);
    stream[4] = 2;
    let error = decode(&Dtype::Float32, &[20, 30], &stream).unwrap_err();
    assert_eq!(error.kind(), CodecErrorKind::Newer);
}

#[test]
fn prefix_says_what_was_asked_for() {
    let prefix = zfp::header(&streams()[2]).unwrap();
    assert_eq!((prefix.mode, prefix.dims, prefix.sizes), (Zfp::Tolerance(1e-3), 2, [30, 20, 0, 0]));
    assert_eq!(prefix.stream_bytes as usize, streams()[2].len() - PREFIX_BYTES);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn doubles_come_back_within_any_tolerance(
        shape in prop::collection::vec(1..12_u64, 1..5),
        scale in -40..40_i32,
        digits in 1..10_i32,
        seed in 1..u64::MAX,
    ) {
        let mut random = Random(seed);
        let scale = 2_f64.powi(scale);
        let items: u64 = shape.iter().product();
        let values = (0..items).map(|_| (random.next() as i32 as f64 / 2_f64.powi(31)) * scale);
        let source: Vec<u8> = values.flat_map(f64::to_le_bytes).collect();
        let tolerance = scale * 10_f64.powi(-digits);
        let mode = Zfp::Tolerance(tolerance);
        let (stream, achieved) = encode(mode, &Dtype::Float64, &shape, &source).unwrap();
        prop_assert!(achieved.max_error <= tolerance);
        let back = decode(&Dtype::Float64, &shape, &stream).unwrap();
        for (x, y) in source.as_chunks::<8>().0.iter().zip(back.as_chunks::<8>().0) {
            prop_assert!((f64::from_le_bytes(*x) - f64::from_le_bytes(*y)).abs() <= tolerance);
        }
    }

    #[test]
    fn changed_streams_never_panic(which in 0..3_usize, at: prop::sample::Index, byte: u8) {
        let mut stream = streams().remove(which);
        let at = at.index(stream.len());
        stream[at] = byte;
        let outcome = decode(&Dtype::Float32, &[20, 30], &stream);
        prop_assert!(outcome.is_ok() || outcome.is_err_and(|e| e.to_string().len() > 20));
    }
}
