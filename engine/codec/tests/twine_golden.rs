//! Streams that never change: one for every kind of chunk, mode and profile. What is written is
//! compared with `golden/twine.txt`, whose lines are a name and the stream in hexadecimal.

mod twine_common;

use std::collections::BTreeMap;
use std::fmt::Write;

use twine_common::{Noise, absolute, assert_within, decode, encode, layout, pack, relative};
use unspool_codec::twine::{self, Layout};
use unspool_codec::{Bound, Dtype};

/// A name, the layout, the method and the values of a golden stream.
struct Case {
    name: &'static str,
    layout: Layout,
    method: Option<Bound>,
    source: Vec<u8>,
}

fn case(
    name: &'static str,
    dtype: Dtype,
    shape: &[u64],
    method: Option<Bound>,
    pattern: impl Fn(u64) -> u64,
) -> Case {
    let layout = layout(&dtype, shape);
    let source = pack(layout.bits, (0..layout.n).map(pattern));
    Case { name, layout, method, source }
}

/// Only additions, products and divisions by powers of two: the same on every machine.
fn wave(i: u64) -> f64 {
    let x = (i % 64) as f64 / 32.0 - 1.0;
    x * (1.0 - x * x) + (i / 64) as f64 / 1024.0
}

fn single(x: f64) -> u64 {
    u64::from((x as f32).to_bits())
}

fn spiky(i: u64) -> u64 {
    match i {
        5 => 0x7fc0_0001,
        40 => 0xff80_0000,
        77 => single(1e20),
        _ => single(wave(i)),
    }
}

fn integers() -> Vec<Case> {
    let noise = |i: u64| Noise(i).next();
    let exact = None;
    vec![
        case("nothing", Dtype::Float32, &[0], exact, |_| 1),
        case("empty", Dtype::Float64, &[1500], exact, |_| 0),
        case("constant", Dtype::Float64, &[1500], exact, |_| 0xfff8_0000_0000_0001),
        case("raw 8", Dtype::Bool, &[13], exact, noise),
        case("raw 64", Dtype::Int64, &[3], exact, noise),
        case("none", Dtype::UInt32, &[96], exact, |i| (i % 2) * 3),
        case(
            "none, sparse",
            Dtype::Int16,
            &[200],
            exact,
            |i| {
                if i % 32 == 7 { noise(i) } else { 0 }
            },
        ),
        case("none, sparse, wide", Dtype::UInt64, &[64], exact, |i| {
            if i % 16 == 3 { noise(i) >> 1 } else { 0 }
        }),
        case("once", Dtype::Int32, &[100], exact, |i| i + noise(i) % 4),
        case("twice", Dtype::Int32, &[64], exact, |i| i),
        case("reference", Dtype::UInt64, &[96], exact, |i| {
            (1 << 60) + noise(i / 32) + noise(i) % 9
        }),
        case("reference, signed", Dtype::Int8, &[400], exact, |i| 100 + noise(i) % 16),
    ]
}

fn floats() -> Vec<Case> {
    let exact = None;
    let wave_32 = |i| single(wave(i));
    vec![
        case("float32", Dtype::Float32, &[300], exact, wave_32),
        case("float16", Dtype::Float16, &[300], exact, |i| 0x3c00 + i / 4),
        case("float32, step", Dtype::Float32, &[300], absolute(1e-3), wave_32),
        case("float64, step", Dtype::Float64, &[300], absolute(1e-9), |i| wave(i).to_bits()),
        case("bfloat16, step", Dtype::BFloat16, &[200], absolute(1e-2), |i| single(wave(i)) >> 16),
        case("float16, step", Dtype::Float16, &[200], absolute(1e-2), |i| 0x3c00 + 5 * i),
        case("outliers", Dtype::Float32, &[200], absolute(1e-3), spiky),
        case("range", Dtype::Float32, &[200], Some(Bound::Range(1e-3)), spiky),
        case("rms", Dtype::Float64, &[2100], Some(Bound::Rms(1e-1)), |i| wave(i).to_bits()),
        case("below the bound", Dtype::Float32, &[200], absolute(100.0), wave_32),
        case("relative", Dtype::Float32, &[200], relative(1e-2, 1e-3), spiky),
        case("relative, 16", Dtype::Float16, &[200], relative(0.1, 0.0), |i| 0xbc00 + i),
        case("flushed only", Dtype::Float32, &[200], relative(0.0, 0.25), wave_32),
        case("complex", Dtype::Complex64, &[50], absolute(1e-2), |i| {
            single(wave(i / 2) + (i % 2) as f64)
        }),
        case("planes", Dtype::Float32, &[2, 17, 33], absolute(0.1), wave_32),
        case("boxes", Dtype::Float32, &[5, 9, 33], absolute(0.25), wave_32),
        case("boxes, exact", Dtype::Float32, &[4, 8, 33], exact, |i| single((i / 33) as f64)),
    ]
}

fn committed() -> BTreeMap<String, String> {
    let text = include_str!("golden/twine.txt");
    let pairs = text.lines().filter_map(|line| line.split_once(": "));
    pairs.map(|(name, stream)| (name.to_owned(), stream.to_owned())).collect()
}

fn hex(stream: &[u8]) -> String {
    stream.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("memory");
        text
    })
}

#[test]
fn streams_are_those_that_have_been_written_before() {
    let committed = committed();
    let mut written = String::new();
    for case in integers().into_iter().chain(floats()) {
        let (stream, _) = encode(case.layout, case.method, &case.source);
        let stream = hex(&stream);
        if committed.get(case.name) != Some(&stream) {
            writeln!(written, "{}: {stream}", case.name).expect("memory");
        }
    }
    assert!(written.is_empty(), "these differ from golden/twine.txt:\n{written}");
    let count = integers().len() + floats().len() + OLDER.len();
    assert_eq!(committed.len(), count);
}

/// Streams of earlier encoders, whose steps were not rounded down.
const OLDER: [&str; 2] = ["range", "rms"];

#[test]
fn streams_with_any_step_are_read() {
    let committed = committed();
    for case in floats().into_iter().filter(|case| OLDER.contains(&case.name)) {
        let old = bytes_of(&committed[&format!("{}, off the grid", case.name)]);
        let (new, _) = encode(case.layout, case.method, &case.source);
        let (before, now) = (twine::header(&old).unwrap(), twine::header(&new).unwrap());
        assert!(before.bound > now.bound && before.bound < now.bound * 1.125, "{}", case.name);
        let (first, second) = (decode(&case.layout, &old), decode(&case.layout, &new));
        assert!(first != second && first.len() == case.source.len(), "{}", case.name);
        assert_within(&case.layout, &case.source, &first, before.bound);
    }
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().as_chunks::<2>().0;
    let byte = |pair: &[u8; 2]| {
        let digits = std::str::from_utf8(pair).expect("ASCII");
        u8::from_str_radix(digits, 16).expect("hexadecimal")
    };
    pairs.iter().map(byte).collect()
}

#[test]
fn golden_streams_are_read_as_what_was_written() {
    for case in integers().into_iter().chain(floats()) {
        let (stream, encoded) = encode(case.layout, case.method, &case.source);
        let back = decode(&case.layout, &stream);
        if case.method.is_none() {
            assert!(back == case.source, "{}", case.name);
        }
        let (again, second) = encode(case.layout, case.method, &case.source);
        assert_eq!((again, second), (stream, encoded));
    }
}

/// The kinds of the chunks of a stream; 6 for empty ones.
fn kinds(stream: &[u8]) -> Vec<u32> {
    let words: Vec<u32> =
        stream.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let chunks = words[9] as usize;
    let (table, payload) = words[16..].split_at(chunks + 1);
    let kind = |ends: &[u32]| {
        if ends[0] == ends[1] { 6 } else { payload[ends[0] as usize] & 0xffff }
    };
    table.windows(2).map(kind).collect()
}

#[test]
fn the_golden_streams_have_every_kind_of_chunk() {
    let mut seen = [0; 7];
    for case in integers().into_iter().chain(floats()) {
        for kind in kinds(&encode(case.layout, case.method, &case.source).0) {
            seen[kind as usize] += 1;
        }
    }
    assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
}

#[test]
fn the_example_of_the_specification_is_what_is_written() {
    let layout = layout(&Dtype::Int32, &[64]);
    let (stream, _) = encode(layout, None, &pack(32, 0..64));
    let text = include_str!("../../../docs/reference/twine.md");
    let example = text.rsplit_once("```text").expect("the example").1;
    let lines = example.lines().take_while(|line| *line != "```");
    let mut bytes = Vec::new();
    for word in lines.flat_map(|line| line.split("   ").next()).flat_map(str::split_whitespace) {
        match (word, u8::from_str_radix(word, 16)) {
            ("28", _) => bytes.extend([0; 27]),
            (_, Ok(byte)) => bytes.push(byte),
            _ => {}
        }
    }
    assert_eq!(bytes, stream);
}
