//! Increments of earlier releases can be read, and the body of their fuzz target over mutated seeds
//! and noise.

mod common;
mod fuzz_increment;

use common::Random;
use unspool_codec::increment::{Draft, Increment, Whole, is_increment};
use unspool_codec::twine::{self, Array, Layout};
use unspool_codec::{Bound, CodecId, Dtype, Head, RegionSpec, checksum, parse_head};

fn head(version: i64) -> Head {
    let spec = |name: &str, dtype, shape| RegionSpec { name: name.into(), dtype, shape };
    let specs = vec![
        spec("u", Dtype::Float32, vec![3, 10_000]),
        spec("t", Dtype::Int64, vec![]),
        spec("none", Dtype::UInt8, vec![0]),
    ];
    Head::layout(version, specs).expect("small arrays")
}

/// The stored bytes of each region of a version.
fn regions(version: u8) -> [Vec<u8>; 3] {
    let mut u = vec![1; 120_000];
    u[70_000] = version;
    [u, vec![version; 8], Vec::new()]
}

fn whole(version: u8) -> Whole {
    let head = head(i64::from(version));
    let mut payload = vec![0; head.payload_bytes as usize];
    for (region, bytes) in head.regions.iter().zip(regions(version)) {
        payload[region.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    Whole::of([head.encode(checksum(&payload)), payload].concat()).expect("a whole frame")
}

fn golden_of(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).expect("the golden increment is committed")
}

fn golden() -> Vec<u8> {
    golden_of("increment.frame")
}

/// A checkpoint with streams of Twine, one lossless and one with a bound, as a head and what is
/// stored of its regions.
fn streams(version: i32) -> (Head, [Vec<u8>; 3]) {
    let spec = |name: &str, dtype, shape| RegionSpec { name: name.into(), dtype, shape };
    let value = |i: i32| f64::from(i * i % 1009) + f64::from(i % 7 * version) / 64.0;
    let exact = spec("exact", Dtype::Float64, vec![1500]);
    let bounded = spec("bounded", Dtype::Float32, vec![50, 40]);
    let encoded = |spec: &RegionSpec, bound, values: Vec<u8>| {
        let layout = Layout::of(&spec.dtype, &spec.shape).expect("small arrays");
        let mut stream = vec![0; twine::max_bytes(&layout) as usize];
        let encoded = twine::encode(&Array { layout, bound }, &values, &mut stream);
        stream.truncate(encoded.expect("encodes").bytes as usize);
        stream
    };
    let all = |len: i32| (0..len).map(value);
    let doubles = all(1500).flat_map(f64::to_le_bytes).collect();
    let singles = all(2000).flat_map(|x| (x as f32).to_le_bytes()).collect();
    let stored = [
        encoded(&exact, None, doubles),
        vec![version as u8; 8],
        encoded(&bounded, Some(Bound::Absolute(0.125)), singles),
    ];
    let regions = vec![
        (exact, CodecId::Twine),
        (spec("t", Dtype::Int64, vec![]), CodecId::Raw),
        (bounded, CodecId::Twine),
    ];
    let sizes = stored.each_ref().map(|bytes| bytes.len() as u64);
    (Head::encoded(i64::from(version), regions, &sizes).expect("small arrays"), stored)
}

fn whole_of((head, stored): &(Head, [Vec<u8>; 3])) -> Whole {
    let mut payload = vec![0; head.payload_bytes as usize];
    for (region, bytes) in head.regions.iter().zip(stored) {
        payload[region.offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    Whole::of([head.encode(checksum(&payload)), payload].concat()).expect("a whole frame")
}

#[test]
fn a_golden_increment_with_differences_is_written_byte_for_byte_and_read() {
    let (before, after) = (streams(5), streams(6));
    let mut draft = Draft::new(&before.0, None, 3, u64::MAX);
    before.1.iter().for_each(|bytes| draft.look(bytes));
    let chunks = draft.finish().unwrap().chunks;
    let mut draft = Draft::new(&after.0, Some(&chunks), 3, u64::MAX);
    after.1.iter().for_each(|bytes| draft.look(bytes));
    let made = draft.finish().unwrap().increment.expect("a parent");
    let frame = golden_of("increment_2.frame");
    assert!(made == frame, "the bytes of the format have changed");
    let (outer, _) = parse_head(&frame).unwrap();
    let payload = &frame[outer.encoded_len() as usize..];
    let (increment, bytes) = Increment::parse(&outer, payload).unwrap();
    let made = increment.apply(whole_of(&before), bytes).unwrap();
    made.check().unwrap();
    assert_eq!(made, whole_of(&after));
}

#[test]
fn a_golden_increment_is_written_byte_for_byte() {
    let mut last = None;
    for version in [5, 9] {
        let head = head(i64::from(version));
        let mut draft = Draft::new(&head, last.as_ref(), 3, u64::MAX);
        regions(version).iter().for_each(|bytes| draft.look(bytes));
        let drafted = draft.finish().unwrap();
        assert_eq!(drafted.increment.is_some(), version == 9);
        assert!(drafted.increment.is_none_or(|frame| frame == golden()));
        last = Some(drafted.chunks);
    }
}

#[test]
fn a_golden_increment_is_read() {
    let frame = golden();
    let (outer, sum) = parse_head(&frame).unwrap();
    let payload = &frame[outer.encoded_len() as usize..];
    assert!(is_increment(&outer) && checksum(payload) == sum);
    let (increment, chunks) = Increment::parse(&outer, payload).unwrap();
    // The second chunk of `u`, and all of `t`.
    assert_eq!(chunks.len(), 120_000 - 65_536 + 8);
    assert_eq!((increment.parent().version, increment.head()), (5, &head(9)));
    let made = increment.apply(whole(5), chunks).unwrap();
    made.check().unwrap();
    assert_eq!(made, whole(9));
}

#[test]
fn any_table_is_taken_or_refused() {
    let mut random = Random(0x1ce);
    let mut outcomes = [0; 3];
    for _ in 0..2000 {
        let mut data = vec![random.next() as u8];
        for _ in 0..random.below(3) {
            data.extend((random.below(6) as u64).to_le_bytes());
        }
        data.extend((0..random.below(3)).map(|_| random.next() as u8));
        let taken = fuzz_increment::check(&data);
        outcomes.iter_mut().zip(taken).for_each(|(count, taken)| *count += usize::from(taken));
    }
    assert!(outcomes[0] == 0 && outcomes[1] > 50 && outcomes[2] > 50, "{outcomes:?}");
}
