//! Increments against full frames.

use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::dtype::Dtype;
use crate::frame::{FrameError, FrameErrorKind, Head, RegionSpec, checksum, parse_head};
use crate::spec::{Bound, CodecId};
use crate::twine;

const SEED: u64 = 7;

/// One array as a test has it.
type Array = (&'static str, Dtype, Vec<u8>);

fn head_of(version: i64, arrays: &[Array]) -> Head {
    let spec = |(name, dtype, bytes): &Array| {
        let items = bytes.len() as u64 / dtype.itemsize();
        RegionSpec { name: (*name).to_owned(), dtype: dtype.clone(), shape: vec![items] }
    };
    Head::layout(version, arrays.iter().map(spec).collect()).unwrap()
}

fn full(head: &Head, arrays: &[Array]) -> Vec<u8> {
    let mut payload = vec![0; head.payload_bytes as usize];
    for (region, (_, _, bytes)) in head.regions.iter().zip(arrays) {
        payload[region.offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    [head.encode(checksum(&payload)), payload].concat()
}

/// What a draft leaves for the next one, and the frame of the increment.
struct Found {
    chunks: Chunks,
    increment: Option<Vec<u8>>,
}

/// The draft of these regions, from their bytes and from hashes of those that are not streams: both
/// have to be the same.
fn found(head: &Head, regions: &[&[u8]], parent: Option<&Chunks>, most: u64) -> Found {
    let made = |is_hashed: bool| {
        let mut draft = Draft::new(head, parent, SEED, most);
        for (region, bytes) in head.regions.iter().zip(regions) {
            if is_hashed && layout_of(region).is_none() {
                let hashes = hashes_of(bytes);
                draft.look_hashed(&hashes, |places, to| gather(bytes, places, to)).unwrap();
            } else {
                draft.look(bytes);
            }
        }
        let Drafted { chunks, increment, payload_sum } = draft.finish().unwrap();
        (Found { chunks, increment }, payload_sum)
    };
    let ((hashed, its_sum), (found, sum)) = (made(true), made(false));
    assert!(hashed.increment == found.increment && its_sum == sum);
    assert_eq!(hashed.chunks.known(head), found.chunks.known(head));
    let changed = |old: &Chunks| {
        let plain = head.regions.iter().zip(regions).filter(|(one, _)| layout_of(one).is_none());
        plain.map(|(region, bytes)| old.changed(region, &hashes_of(bytes))).sum()
    };
    if let Some((old, frame)) = parent.zip(hashed.increment.as_ref()) {
        let (least, len) = (least_bytes(head, changed(old)), frame.len() as u64);
        // But for what begins at a multiple of a page, names, and the numbers of chunks.
        assert!((least..least + 16_384).contains(&len) || len > least && has_stream(head));
    }
    hashed
}

fn has_stream(head: &Head) -> bool {
    head.regions.iter().any(|region| layout_of(region).is_some())
}

fn hashes_of(bytes: &[u8]) -> Vec<u128> {
    bytes.chunks(CHUNK_BYTES).map(|chunk| chunk_hash(SEED, chunk)).collect()
}

fn gather(bytes: &[u8], places: &[Range<usize>], to: &mut [u8]) -> Result<(), FrameError> {
    let all: Vec<&[u8]> = places.iter().map(|place| &bytes[place.clone()]).collect();
    to.copy_from_slice(&all.concat());
    Ok(())
}

fn draft(version: i64, arrays: &[Array], parent: Option<&Chunks>) -> Found {
    let regions: Vec<&[u8]> = arrays.iter().map(|(_, _, bytes)| &bytes[..]).collect();
    found(&head_of(version, arrays), &regions, parent, u64::MAX)
}

fn apply(parent: Whole, frame: &[u8]) -> Result<Whole, FrameError> {
    let (head, sum) = parse_head(frame)?;
    let payload = &frame[head.encoded_len() as usize..];
    assert_eq!(checksum(payload), sum);
    let (increment, chunks) = Increment::parse(&head, payload)?;
    let whole = increment.apply(parent, chunks)?;
    whole.check()?;
    Ok(whole)
}

fn u(bytes: Vec<u8>) -> Vec<Array> {
    vec![("u", Dtype::UInt8, bytes)]
}

fn whole(version: i64, arrays: &[Array]) -> Whole {
    Whole::of(full(&head_of(version, arrays), arrays)).unwrap()
}

#[test]
fn unchanged_chunks_are_not_stored() {
    let (first, mut second) = (u(vec![3; 10 * CHUNK_BYTES + 5]), u(vec![3; 10 * CHUNK_BYTES + 5]));
    second[0].2[4 * CHUNK_BYTES] = 9;
    let before = draft(1, &first, None);
    assert!(before.increment.is_none());
    let frame = draft(2, &second, Some(&before.chunks)).increment.unwrap();
    assert!(frame.len() < CHUNK_BYTES + 3 * 4096, "{}", frame.len());
    assert!(is_increment(&parse_head(&frame).unwrap().0));
    assert_eq!(apply(whole(1, &first), &frame).unwrap(), whole(2, &second));
    let same = draft(2, &first, Some(&before.chunks)).increment.unwrap();
    assert!(same.len() < 3 * 4096);
    assert_eq!(apply(whole(1, &first), &same).unwrap(), whole(2, &first));
}

#[test]
fn an_increment_of_more_than_it_may_have_is_none() {
    let (first, second) = (u(vec![3; 3 * CHUNK_BYTES]), u(vec![4; 3 * CHUNK_BYTES]));
    let before = draft(1, &first, None);
    let head = head_of(2, &second);
    let found = |most: u64| found(&head, &[&second[0].2], Some(&before.chunks), most);
    let least = 3 * CHUNK_BYTES as u64 + 3 * 4096;
    assert!(found(least).increment.is_some());
    for most in [0, CHUNK_BYTES as u64, 3 * CHUNK_BYTES as u64] {
        assert!(found(most).increment.is_none());
    }
    // What comes next is compared with this one all the same.
    let next = draft(3, &second, Some(&found(0).chunks));
    assert_eq!(apply(whole(2, &second), &next.increment.unwrap()).unwrap(), whole(3, &second));
}

#[test]
fn hashes_that_are_not_those_of_the_bytes_are_noticed() {
    let arrays = u(vec![3; 3 * CHUNK_BYTES]);
    let (before, head) = (draft(1, &arrays, None), head_of(2, &arrays));
    let mut hashes = hashes_of(&arrays[0].2);
    assert_eq!(before.chunks.changed(&head.regions[0], &hashes), 0);
    hashes[1] ^= 1;
    assert_eq!(before.chunks.changed(&head.regions[0], &hashes), CHUNK_BYTES as u64);
    let mut draft = Draft::new(&head, Some(&before.chunks), SEED, u64::MAX);
    draft.look_hashed(&hashes, |places, to| gather(&arrays[0].2, places, to)).unwrap();
    assert_eq!(draft.finish().unwrap_err().kind(), FrameErrorKind::Damaged);
}

#[test]
fn what_cannot_be_read_is_an_error() {
    let arrays = u(vec![3; CHUNK_BYTES]);
    let (before, head) = (draft(1, &arrays, None), head_of(2, &arrays));
    let mut draft = Draft::new(&head, Some(&before.chunks), SEED, u64::MAX);
    assert_eq!(draft.look_hashed(&[7], |_, _| Err("gone")), Err("gone"));
}

#[test]
fn another_parent_of_the_same_version_is_noticed() {
    let arrays = u(vec![1; 1000]);
    let before = draft(1, &arrays, None);
    let frame = draft(2, &arrays, Some(&before.chunks)).increment.unwrap();
    for other in [whole(1, &u(vec![2; 1000])), whole(0, &arrays)] {
        let error = apply(other, &frame).unwrap_err();
        assert_eq!(error.kind(), FrameErrorKind::Invalid);
        assert!(error.to_string().contains("version 1"), "{error}");
    }
}

#[test]
fn streams_of_codecs_are_compared_as_they_are_stored() {
    let spec = RegionSpec { name: "u".into(), dtype: Dtype::Float32, shape: vec![5000] };
    let head = |version, stored| {
        Head::encoded(version, vec![(spec.clone(), CodecId::Twine)], &[stored]).unwrap()
    };
    let found = |version, bytes: &[u8], parent: Option<&Chunks>| {
        found(&head(version, bytes.len() as u64), &[bytes], parent, u64::MAX)
    };
    let streams = [vec![7; 70_000], vec![7; 70_001], vec![7; 65_536]];
    let first = head(1, 70_000).encode(checksum(&streams[0]));
    let mut whole = Whole::of([&first[..], &streams[0]].concat()).unwrap();
    let mut chunks = found(1, &streams[0], None).chunks;
    for (version, stream) in (2..).zip(&streams[1..]) {
        let next = found(version, stream, Some(&chunks));
        whole = apply(whole, &next.increment.unwrap()).unwrap();
        chunks = next.chunks;
        assert!(whole.clone().into_frame().ends_with(stream));
    }
}

#[test]
fn every_changed_byte_of_a_table_is_refused_or_noticed() {
    let (first, mut second) = (u(vec![3; 3 * CHUNK_BYTES]), u(vec![3; 3 * CHUNK_BYTES]));
    second[0].2[CHUNK_BYTES] = 9;
    let before = draft(1, &first, None);
    let frame = draft(2, &second, Some(&before.chunks)).increment.unwrap();
    let (head, _) = parse_head(&frame).unwrap();
    let (at, len) = (head.encoded_len() as usize, head.regions[0].bytes as usize);
    // As if the checksum of the frame had not told.
    for place in at..at + len {
        let mut changed = frame.clone();
        changed[place] ^= 1;
        let done = Increment::parse(&head, &changed[at..]).and_then(|(increment, chunks)| {
            let whole = increment.apply(whole(1, &first), chunks)?;
            whole.check()
        });
        assert!(done.is_err(), "{place}");
    }
    for end in 0..len {
        assert!(Increment::parse(&head, &frame[at..at + end]).is_err());
    }
}

/// A stream of Twine, of values that differ by region and move with `time`.
fn stream(spec: &RegionSpec, bound: Option<Bound>, time: f64) -> Vec<u8> {
    let layout = Layout::of(&spec.dtype, &spec.shape).unwrap();
    let value = |i: u64| (i as f64 * 1.7).sin() * 40.0 + (i as f64 * 0.3).cos() * time;
    let source: Vec<u8> = match spec.dtype {
        Dtype::Float64 => (0..layout.n).flat_map(|i| value(i).to_le_bytes()).collect(),
        _ => (0..layout.n).flat_map(|i| (value(i) as f32).to_le_bytes()).collect(),
    };
    let mut stream = vec![0; twine::max_bytes(&layout) as usize];
    let encoded = twine::encode(&twine::Array { layout, bound }, &source, &mut stream).unwrap();
    stream.truncate(encoded.bytes as usize);
    stream
}

/// A checkpoint of regions of which some are streams of Twine.
struct Encoded {
    head: Head,
    stored: Vec<Vec<u8>>,
}

impl Encoded {
    fn of(version: i64, regions: Vec<(RegionSpec, CodecId, Vec<u8>)>) -> Encoded {
        let sizes: Vec<u64> = regions.iter().map(|(_, _, bytes)| bytes.len() as u64).collect();
        let specs = regions.iter().map(|(spec, codec, _)| (spec.clone(), *codec)).collect();
        let head = Head::encoded(version, specs, &sizes).unwrap();
        Encoded { head, stored: regions.into_iter().map(|(_, _, bytes)| bytes).collect() }
    }

    fn whole(&self) -> Whole {
        let mut payload = vec![0; self.head.payload_bytes as usize];
        for (region, bytes) in self.head.regions.iter().zip(&self.stored) {
            payload[region.offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        Whole::of([self.head.encode(checksum(&payload)), payload].concat()).unwrap()
    }

    fn after(&self, parent: Option<&Chunks>) -> Found {
        let regions: Vec<&[u8]> = self.stored.iter().map(|bytes| &bytes[..]).collect();
        found(&self.head, &regions, parent, u64::MAX)
    }
}

/// A field that moves, beside an array of bytes.
fn wave(version: i64, bound: Option<Bound>) -> Encoded {
    let spec = |name: &str, dtype, len| RegionSpec { name: name.into(), dtype, shape: vec![len] };
    let wave = spec("wave", Dtype::Float32, 60_000);
    let stream = stream(&wave, bound, 0.01 * version as f64);
    let plain = spec("plain", Dtype::UInt8, 100_000);
    let regions = vec![
        (plain.clone(), CodecId::Raw, vec![3; 100_000]),
        (wave, CodecId::Twine, stream),
        (RegionSpec { name: "end".into(), ..plain }, CodecId::Raw, vec![version as u8; 100_000]),
    ];
    Encoded::of(version, regions)
}

#[test]
fn a_stream_that_moves_a_little_is_stored_as_a_difference() {
    for bound in [None, Some(Bound::Absolute(1e-3))] {
        let (first, second) = (wave(1, bound), wave(2, bound));
        let before = first.after(None);
        let frame = second.after(Some(&before.chunks)).increment.unwrap();
        assert_eq!(frame[4096 + 8], 2, "the version of the table");
        let plain = second.stored[1].len() as f64;
        assert!(((frame.len() - 100_000) as f64) < 0.8 * plain + 12_288.0, "{}", frame.len());
        assert_eq!(apply(first.whole(), &frame).unwrap(), second.whole());
        // The same values in another place of the payload.
        let mut turned = wave(3, bound);
        turned.stored.reverse();
        let mut regions = turned.head.regions.clone();
        regions.reverse();
        let turned = Encoded::of(
            3,
            regions.iter().zip(turned.stored).map(|(r, s)| (r.spec(), r.codec, s)).collect(),
        );
        let chunks = second.after(Some(&before.chunks)).chunks;
        let frame = turned.after(Some(&chunks)).increment.unwrap();
        assert_eq!(apply(second.whole(), &frame).unwrap(), turned.whole());
        assert!(apply(first.whole(), &frame).is_err(), "another parent");
    }
}

#[test]
fn every_changed_byte_of_a_table_with_differences_is_refused_or_noticed() {
    let (first, second) = (wave(1, None), wave(2, None));
    let frame = second.after(Some(&first.after(None).chunks)).increment.unwrap();
    let (head, _) = parse_head(&frame).unwrap();
    let (at, len) = (head.encoded_len() as usize, head.regions[0].bytes as usize);
    let parent = first.whole();
    let fixed = at..at + 56 + 80;
    for place in fixed.chain(at + len - 64..at + len) {
        let mut changed = frame.clone();
        changed[place] ^= 1;
        let done = Increment::parse(&head, &changed[at..])
            .and_then(|(increment, chunks)| increment.apply(parent.clone(), chunks)?.check());
        assert!(done.is_err(), "{place}");
    }
}

/// An array that is there or not, with a size and bytes that have changed here and there.
fn arrays() -> impl Strategy<Value = Vec<Array>> {
    let sizes = vec![0_usize, 8, 65_528, 65_536, 65_544, 131_072, 200_000];
    let dtypes = [Dtype::UInt8, Dtype::Float64, Dtype::Int16];
    let one = (
        any::<bool>(),
        prop::sample::select(sizes),
        prop::sample::select(dtypes.to_vec()),
        0_u8..3,
        prop::collection::vec((0..200_000_usize, 0_u8..3), 0..3),
    );
    prop::collection::vec(one, 3).prop_map(|all| {
        let mut found: Vec<Array> = Vec::new();
        for (name, (there, size, dtype, fill, changes)) in ["u", "v", "w"].into_iter().zip(all) {
            let mut bytes = vec![fill; size];
            let len = bytes.len();
            changes.iter().filter(|(at, _)| *at < len).for_each(|(at, byte)| bytes[*at] = *byte);
            if there {
                found.push((name, dtype, bytes));
            }
        }
        found
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Regions come, go, grow, shrink, get other types and other places, change or not: what is
    /// put together is what a full frame has.
    #[test]
    fn a_chain_gives_what_full_frames_give(
        states in prop::collection::vec((arrays(), any::<bool>()), 2..7),
    ) {
        let mut chain: Option<(Whole, Chunks)> = None;
        for (version, (mut arrays, turned)) in (0..).zip(states) {
            if turned {
                arrays.reverse();
            }
            let next = draft(version, &arrays, chain.as_ref().map(|(_, chunks)| chunks));
            let expected = whole(version, &arrays);
            let put_together = match (chain, next.increment) {
                (Some((parent, _)), Some(frame)) => apply(parent, &frame).unwrap(),
                _ => expected.clone(),
            };
            prop_assert_eq!(&put_together, &expected);
            let head = head_of(version, &arrays);
            prop_assert_eq!(put_together.clone().into_frame(), full(&head, &arrays));
            chain = Some((put_together, next.chunks));
        }
        prop_assert!(chain.is_some());
    }

    /// Streams come, change their bound, their length and their place, or move a little.
    #[test]
    fn a_chain_with_differences_gives_what_full_frames_give(
        states in prop::collection::vec(
            (prop::sample::select(vec![3000, 20_000_u64]), 0..3_usize, any::<bool>(), 0..4),
            2..7,
        ),
    ) {
        let mut chain: Option<(Whole, Chunks)> = None;
        for (version, (len, method, turned, time)) in (0..).zip(states) {
            let bound = [None, Some(Bound::Absolute(1e-2)), Some(Bound::Range(1e-3))][method];
            let shape = vec![len];
            let spec = |name: &str, dtype| {
                RegionSpec { name: name.into(), dtype, shape: shape.clone() }
            };
            let region = |name, dtype, time| {
                let spec = spec(name, dtype);
                let bytes = stream(&spec, bound, 0.1 * f64::from(time));
                (spec, CodecId::Twine, bytes)
            };
            let plain = (spec("p", Dtype::UInt8), CodecId::Raw, vec![time as u8; len as usize]);
            let (u, w) = (region("u", Dtype::Float32, time), region("w", Dtype::Float64, time / 2));
            let mut regions = vec![u, plain, w];
            if turned {
                regions.swap(0, 2);
            }
            let state = Encoded::of(version, regions);
            let next = state.after(chain.as_ref().map(|(_, chunks)| chunks));
            let expected = state.whole();
            let put_together = match (chain, next.increment) {
                (Some((parent, _)), Some(frame)) => apply(parent, &frame).unwrap(),
                _ => expected.clone(),
            };
            prop_assert!(put_together == expected);
            chain = Some((put_together, next.chunks));
        }
    }

    #[test]
    fn bytes_of_any_kind_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let spec = |name: &str, len: usize| RegionSpec {
            name: name.into(),
            dtype: Dtype::UInt8,
            shape: vec![len as u64],
        };
        let specs = vec![spec("unspool.increment", bytes.len()), spec("unspool.chunks", 0)];
        let head = Head::layout(1, specs).unwrap();
        prop_assert!(Increment::parse(&head, &bytes).is_err());
    }
}
