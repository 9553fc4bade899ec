//! Payloads that outer coders pack come back, and damage is always noticed.

mod common;

use common::{Random, golden_head, golden_payload, opaque, spec};
use proptest::prelude::*;
use unspool_codec::{
    CodecErrorKind, CodecId, Dtype, Head, Outer, OuterId, Packed, RegionSpec, unpack,
};

const ALL: [Outer; 4] = [Outer::Zstd(3), Outer::Zstd(-50), Outer::Lz4, Outer::Archive];

/// Packs a payload; gives the head that says so and the packed bytes.
fn packed(outer: Outer, head: &Head, payload: &[u8]) -> Option<(Head, Vec<u8>)> {
    let mut out = vec![0xee; payload.len()];
    let len = outer.pack(head, payload, &mut out)?;
    out.truncate(len);
    let packing = Packed { coder: outer.id(), bytes: len as u64 };
    Some((head.with_packed(Some(packing)).expect("it is shorter"), out))
}

/// The length of the packed payload, after it was unpacked again; `None` when it is not packed.
fn there_and_back(outer: Outer, head: &Head, payload: &[u8]) -> Option<usize> {
    let (head, bytes) = packed(outer, head, payload)?;
    let mut back = vec![0x55; payload.len()];
    unpack(&head, &bytes, &mut back).expect("what was packed unpacks");
    assert!(back == payload, "{outer:?} changes bytes");
    Some(bytes.len())
}

/// A wave of these items, smooth enough that every coder finds something in it.
fn wave(dtype: &Dtype, items: usize) -> Vec<u8> {
    let value = |i: usize| (i as f64 * 0.003).sin() * 1000.0;
    let bytes = |i: usize| -> Vec<u8> {
        let x = value(i);
        match dtype {
            Dtype::Float32 => (x.round() as f32).to_le_bytes().to_vec(),
            Dtype::Float64 => x.round().to_le_bytes().to_vec(),
            Dtype::Complex64 => {
                [(x.round() as f32).to_le_bytes(), (i as f32).to_le_bytes()].concat()
            }
            Dtype::Complex128 => [x.round().to_le_bytes(), (i as f64).to_le_bytes()].concat(),
            Dtype::Float16 | Dtype::BFloat16 => {
                (0x3c00 | (i / 64 % 512) as u16).to_le_bytes().into()
            }
            _ => (x as i64).to_le_bytes()[..dtype.itemsize() as usize].to_vec(),
        }
    };
    (0..items).flat_map(bytes).collect()
}

fn one(dtype: Dtype, items: usize) -> (Head, Vec<u8>) {
    let payload = wave(&dtype, items);
    (Head::layout(1, vec![spec("u", dtype, &[items as u64])]).expect("one array"), payload)
}

#[test]
fn smooth_arrays_of_every_numeric_dtype_get_shorter_and_come_back() {
    for dtype in [
        Dtype::Int8,
        Dtype::Int16,
        Dtype::Int32,
        Dtype::Int64,
        Dtype::UInt16,
        Dtype::UInt32,
        Dtype::UInt64,
        Dtype::Float16,
        Dtype::BFloat16,
        Dtype::Float32,
        Dtype::Float64,
        Dtype::Complex64,
        Dtype::Complex128,
    ] {
        let (head, payload) = one(dtype.clone(), 100_000);
        for outer in ALL {
            let len = there_and_back(outer, &head, &payload);
            assert!(len.is_some(), "{dtype} {outer:?}");
        }
    }
}

#[test]
fn archive_is_the_smallest_for_numbers() {
    let (head, payload) = one(Dtype::Float32, 700_000);
    let [fast, _, lz4, archive] = ALL.map(|outer| there_and_back(outer, &head, &payload));
    assert!(archive < fast && fast < lz4, "{archive:?} {fast:?} {lz4:?}");
}

#[test]
fn payload_of_many_blocks_with_gaps_and_streams_comes_back() {
    let arrays = vec![
        (spec("a", Dtype::Float32, &[1_300_001]), CodecId::Raw),
        (spec("b", Dtype::Float64, &[1 << 20]), CodecId::Twine),
        (spec("c", opaque(3, "rgb"), &[777]), CodecId::Raw),
        (spec("d", Dtype::Complex128, &[70_001]), CodecId::Raw),
    ];
    let head = Head::encoded(4, arrays, &[5_200_004, 123_457, 2331, 1_120_016]).unwrap();
    let mut payload = wave(&Dtype::Float32, head.payload_bytes as usize / 4);
    payload.resize(head.payload_bytes as usize, 9);
    for outer in ALL {
        assert!(there_and_back(outer, &head, &payload).is_some(), "{outer:?}");
    }
}

#[test]
fn golden_payload_of_every_dtype_comes_back() {
    let head = golden_head();
    let payload = golden_payload(&head);
    for outer in ALL {
        let len = there_and_back(outer, &head, &payload);
        assert!(len.is_none_or(|len| len < payload.len()), "{outer:?}: {len:?}");
    }
}

#[test]
fn noise_is_not_packed() {
    let head = Head::layout(1, vec![spec("u", Dtype::UInt8, &[3_000_000])]).unwrap();
    let mut random = Random(5);
    let payload: Vec<u8> = (0..3_000_000).map(|_| random.next() as u8).collect();
    for outer in ALL {
        assert!(packed(outer, &head, &payload).is_none(), "{outer:?}");
    }
}

#[test]
fn payload_without_bytes_is_not_packed() {
    let head = Head::layout(1, vec![spec("u", Dtype::Float32, &[0])]).unwrap();
    for outer in ALL {
        assert_eq!(outer.pack(&head, &[], &mut [0; 100]), None);
    }
}

#[test]
fn packing_stays_within_the_memory_that_it_is_given() {
    let (head, payload) = one(Dtype::Float32, 600_000);
    let (_, whole) = packed(Outer::Zstd(1), &head, &payload).unwrap();
    for len in [0, 1, 11, 12, whole.len() - 1] {
        let mut out = vec![0; len];
        assert_eq!(Outer::Zstd(1).pack(&head, &payload, &mut out), None, "{len} bytes");
    }
    let mut out = vec![0; whole.len()];
    assert_eq!(Outer::Zstd(1).pack(&head, &payload, &mut out), Some(whole.len()));
}

#[test]
fn nan_payloads_infinities_and_signed_zeros_survive_an_archive() {
    let specials = [0x7fc0_0001_u32, 0xffff_ffff, 0x7f80_0000, 0xff80_0000, 0x8000_0000, 1, 0];
    let bits = (0..50_000).map(|i| if i % 9 < 7 { specials[i % 9] } else { i as u32 });
    let payload: Vec<u8> = bits.flat_map(u32::to_le_bytes).collect();
    let head = Head::layout(1, vec![spec("u", Dtype::Float32, &[50_000])]).unwrap();
    assert!(there_and_back(Outer::Archive, &head, &payload).is_some());
}

#[track_caller]
fn assert_damaged(head: &Head, bytes: &[u8], payload_len: usize, words: &str) {
    let error = unpack(head, bytes, &mut vec![0; payload_len]).expect_err("damaged");
    assert_eq!(error.kind(), CodecErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn lengths_that_contradict_the_head_are_refused() {
    let (head, payload) = one(Dtype::Float32, 600_000);
    let (head, bytes) = packed(Outer::Zstd(3), &head, &payload).unwrap();
    let n = payload.len();
    assert_damaged(&head, &bytes[..bytes.len() - 1], n, "its head says");
    assert_damaged(&head, &[&bytes[..], &[0]].concat(), n, "its head says");
    let resized = |bytes: &[u8]| {
        let packing = Packed { coder: OuterId::Zstd, bytes: bytes.len() as u64 };
        head.with_packed(Some(packing)).unwrap()
    };
    assert_damaged(&resized(&bytes[..11]), &bytes[..11], n, "in its table");
    let cut = &bytes[..bytes.len() - 1];
    assert_damaged(&resized(cut), cut, n, "ends within block 2");
    let long = [&bytes[..], &[0]].concat();
    assert_damaged(&resized(&long), &long, n, "after its last block");
}

#[test]
fn methods_and_lengths_that_a_block_cannot_have_are_refused() {
    let (head, payload) = one(Dtype::Float32, 600_000);
    for outer in [Outer::Zstd(3), Outer::Lz4, Outer::Archive] {
        let (head, bytes) = packed(outer, &head, &payload).unwrap();
        let with = |entry: u32| {
            let mut bytes = bytes.clone();
            bytes[..4].copy_from_slice(&entry.to_le_bytes());
            bytes
        };
        for method in [4_u32, 255] {
            let words = format!("block 0 is packed by method {method}");
            assert_damaged(&head, &with(method << 24 | 100), payload.len(), &words);
        }
        let other = if outer == Outer::Lz4 { 1 } else { 2 };
        let words = format!("by method {other}");
        assert_damaged(&head, &with(other << 24 | 100), payload.len(), &words);
        assert_damaged(&head, &with(100), payload.len(), "of 1048576 bytes is packed into 100");
        let own = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) & 0xff00_0000;
        assert_damaged(&head, &with(own), payload.len(), "packed into 0");
        assert_damaged(&head, &with(own | 1 << 20), payload.len(), "packed into 1048576");
    }
}

#[test]
fn pco_is_refused_where_there_are_no_numbers() {
    let (head, payload) = one(Dtype::Int8, 100_000);
    let (head, mut bytes) = packed(Outer::Archive, &head, &payload).unwrap();
    bytes[3] = 3;
    assert_damaged(&head, &bytes, payload.len(), "by method 3");
}

#[test]
fn block_that_unpacks_to_fewer_or_more_bytes_is_refused() {
    for outer in ALL {
        let (short_head, short) = one(Dtype::Float32, 20_000);
        let (long_head, long) = one(Dtype::Float32, 20_001);
        let (_, short_bytes) = packed(outer, &short_head, &short).unwrap();
        let (_, long_bytes) = packed(outer, &long_head, &long).unwrap();
        let packing = |bytes: &[u8]| Packed { coder: outer.id(), bytes: bytes.len() as u64 };
        let wrong = long_head.with_packed(Some(packing(&short_bytes))).unwrap();
        assert_damaged(&wrong, &short_bytes, long.len(), "block 0 cannot be unpacked");
        let wrong = short_head.with_packed(Some(packing(&long_bytes))).unwrap();
        assert_damaged(&wrong, &long_bytes, short.len(), "block 0 cannot be unpacked");
    }
}

#[test]
fn unpacking_without_a_packing_or_into_other_memory_is_refused() {
    let (head, payload) = one(Dtype::Float32, 1000);
    let mut room = vec![0; payload.len()];
    assert_eq!(unpack(&head, &payload, &mut room).unwrap_err().kind(), CodecErrorKind::Invalid);
    let (head, bytes) = packed(Outer::Lz4, &head, &payload).unwrap();
    room.pop();
    assert_eq!(unpack(&head, &bytes, &mut room).unwrap_err().kind(), CodecErrorKind::Invalid);
}

fn any_array() -> impl Strategy<Value = (Dtype, u64)> {
    (prop::sample::select(Dtype::ALL), 0..30_000_u64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_payload_comes_back(
        arrays in prop::collection::vec(any_array(), 0..6),
        seed in 1..u64::MAX,
        mask: u64,
        which in 0..ALL.len(),
    ) {
        let named = |(i, (dtype, n)): (usize, (Dtype, u64))| RegionSpec {
            name: i.to_string(),
            dtype,
            shape: vec![n],
        };
        let head = Head::layout(1, arrays.into_iter().enumerate().map(named).collect()).unwrap();
        let mut random = Random(seed);
        let words = std::iter::repeat_with(|| (random.next() & mask).to_le_bytes());
        let payload: Vec<u8> = words.flatten().take(head.payload_bytes as usize).collect();
        let len = there_and_back(ALL[which], &head, &payload);
        prop_assert!(len.is_none_or(|len| len < payload.len()));
    }

    #[test]
    fn changed_byte_never_panics_and_keeps_lengths(
        at: prop::sample::Index,
        flip in 1..=255_u8,
        which in 0..ALL.len(),
    ) {
        let (head, payload) = one(Dtype::Float32, 40_000);
        let (head, mut bytes) = packed(ALL[which], &head, &payload).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let mut back = vec![0; payload.len()];
        let outcome = unpack(&head, &bytes, &mut back);
        prop_assert!(outcome.is_ok() || outcome.unwrap_err().kind() == CodecErrorKind::Damaged);
    }
}
