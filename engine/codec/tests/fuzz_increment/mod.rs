//! What must hold for any table of an increment: the body of the fuzz target and of its smoke test.

use std::sync::OnceLock;

use unspool_codec::increment::{Increment, Whole};
use unspool_codec::twine::{self, Array, Layout};
use unspool_codec::{CodecId, Dtype, Head, RegionSpec, checksum, parse_head};

fn head(version: i64, arrays: &[(&str, usize)]) -> Head {
    let spec = |(name, bytes): &(&str, usize)| RegionSpec {
        name: (*name).to_owned(),
        dtype: Dtype::UInt8,
        shape: vec![*bytes as u64],
    };
    Head::layout(version, arrays.iter().map(spec).collect()).expect("small arrays")
}

/// Parses the bytes as a whole table, as the runs of one that is right otherwise, which are
/// then applied, and as differences with their table. Whether each was taken.
pub fn check(data: &[u8]) -> [bool; 3] {
    let Some((choice, data)) = data.split_first() else { return [false; 3] };
    let parent = head(1, &[("u", 70_000), ("v", 10)]);
    let payload = vec![1; parent.payload_bytes as usize];
    let frame = [parent.encode(checksum(&payload)), payload].concat();
    let shapes: [&[(&str, usize)]; 3] =
        [&[("u", 70_000), ("v", 10)], &[("v", 10), ("w", 0), ("u", 200_000)], &[]];
    let whole = head(2, shapes[usize::from(*choice) % 3]).encode(7);
    let runs = &data[..data.len().min(64) / 16 * 16];
    let repaired = [&fixed(&frame, runs.len() as u64 / 16, whole.len() as u64), &whole, runs];
    [
        taken(data, &[], &frame),
        taken(&repaired.concat(), &data[runs.len()..], &frame),
        deltas(*choice, data),
    ]
}

/// A frame with a stream, the head of one that builds on it, its stream, and their difference.
struct Streams {
    parent: Vec<u8>,
    head: Vec<u8>,
    stream: Vec<u8>,
    difference: Vec<u8>,
}

impl Streams {
    fn new() -> Streams {
        let (old, stream) = (stream(0.0), stream(0.01));
        let encoded = |version, stream: &[u8]| {
            let spec = RegionSpec { name: "s".into(), dtype: Dtype::Float32, shape: vec![3000] };
            let regions = vec![(spec, CodecId::Twine)];
            let head = Head::encoded(version, regions, &[stream.len() as u64]);
            head.expect("a small array").encode(checksum(stream))
        };
        let layout = Layout::of(&Dtype::Float32, &[3000]).expect("a small array");
        let difference = twine::difference(&layout, &stream, &old).expect("streams");
        let (parent, head) = (encoded(1, &old), encoded(2, &stream));
        let difference = difference.expect("of one step");
        Streams { parent: [parent, old].concat(), head, stream, difference }
    }
}

/// A stream of 3,000 float32.
fn stream(time: f32) -> Vec<u8> {
    let layout = Layout::of(&Dtype::Float32, &[3000]).expect("a small array");
    let value = |i: u16| f32::from(i % 251) + time * f32::from(i % 3);
    let source: Vec<u8> = (0..3000).flat_map(|i| value(i).to_le_bytes()).collect();
    let mut stream = vec![0; twine::max_bytes(&layout) as usize];
    let encoded = twine::encode(&Array { layout, bound: None }, &source, &mut stream);
    stream.truncate(encoded.expect("encodes").bytes as usize);
    stream
}

/// Takes the first bytes as the table of the differences of an increment that is right otherwise,
/// or, where `choice` is even, a right one; the others change the bytes of a difference.
fn deltas(choice: u8, data: &[u8]) -> bool {
    static STREAMS: OnceLock<Streams> = OnceLock::new();
    let Streams { parent, head: whole, stream, difference } = STREAMS.get_or_init(Streams::new);
    let (pair, changes) = data.split_at_checked(16).unwrap_or((&[], data));
    let right = [0_u64.to_le_bytes(), (difference.len() as u64).to_le_bytes()].concat();
    let pair = if choice.is_multiple_of(2) || pair.is_empty() { &right } else { pair };
    let mut changed = difference.clone();
    for (at, change) in changes.chunks(3).enumerate() {
        let place = change.iter().fold(at, |place, byte| place * 256 + usize::from(*byte));
        let len = changed.len();
        changed[place % len] ^= change[0] >> 1;
    }
    let mut table = fixed(parent, 0, whole.len() as u64);
    table[8] = 2;
    table.extend(1_u64.to_le_bytes());
    let table = [&table[..], whole, pair].concat();
    let specs = [("unspool.increment", table.len()), ("unspool.chunks", changed.len())];
    let outer = head(2, &specs);
    let mut payload = table;
    payload.resize(outer.regions[1].offset as usize, 0);
    payload.extend_from_slice(&changed);
    let Ok((found, stored)) = Increment::parse(&outer, &payload) else { return false };
    let parent = Whole::of(parent.clone()).expect("the parent is whole");
    let Ok(made) = found.apply(parent, stored) else { return true };
    let is_right = made.check().is_ok();
    assert!(is_right == made.into_frame().ends_with(stream), "its checksum tells what is right");
    true
}

/// The table before the head.
fn fixed(parent: &[u8], runs: u64, head_bytes: u64) -> Vec<u8> {
    let mut fixed = b"\x89UNSI\r\n\x1a\x01\0\0\0\0\0\x01\0".to_vec();
    fixed.extend(1_i64.to_le_bytes());
    fixed.extend_from_slice(&parent[24..32]);
    fixed.extend(runs.to_le_bytes());
    fixed.extend(head_bytes.to_le_bytes());
    fixed
}

/// Whether an increment is taken. Its chunks are as many as any table may want.
fn taken(table: &[u8], seed: &[u8], parent: &[u8]) -> bool {
    let most = [0, 10, 4_464, 65_536, 65_546, 70_000, 70_010, 200_000, 200_010];
    most.into_iter().any(|chunks| {
        let outer = head(2, &[("unspool.increment", table.len()), ("unspool.chunks", chunks)]);
        let mut payload = table.to_vec();
        payload.resize(outer.payload_bytes as usize, seed.first().copied().unwrap_or(0));
        let Ok((found, stored)) = Increment::parse(&outer, &payload) else { return false };
        assert_eq!(stored.len(), chunks);
        let whole = Whole::of(parent.to_vec()).expect("the parent is whole");
        let expected = found.head().payload_bytes;
        let Ok(made) = found.apply(whole, stored) else { return true };
        let frame = made.into_frame();
        let (read, _) = parse_head(&frame).expect("a head that was parsed before");
        assert_eq!(read.frame_bytes(), frame.len() as u64);
        assert_eq!(read.payload_bytes, expected);
        true
    })
}
