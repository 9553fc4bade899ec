//! Properties of every head.

mod common;

use common::opaque;
use proptest::prelude::*;
use unspool_codec::{
    CodecId, Dtype, Head, OuterId, Packed, Region, RegionSpec, head_len, parse_head,
};

fn any_dtype() -> impl Strategy<Value = Dtype> {
    let known = prop::sample::select(Dtype::ALL);
    let odd = (0..100_u64, ".{0,40}").prop_map(|(itemsize, tag)| opaque(itemsize, &tag));
    prop_oneof![3 => known, 1 => odd]
}

/// Shapes from scalars to the highest rank, with zeros, up to 2^56 items.
fn any_shape() -> impl Strategy<Value = Vec<u64>> {
    prop_oneof![
        4 => prop::collection::vec(0..100_u64, 0..4),
        1 => prop::collection::vec(1..2_u64, 0..=64),
        1 => prop::collection::vec(0..(1_u64 << 28), 0..=2),
    ]
}

fn any_specs() -> impl Strategy<Value = Vec<RegionSpec>> {
    prop::collection::vec((".{0,30}", any_dtype(), any_shape()), 0..40).prop_map(|arrays| {
        let numbered = |(i, (name, dtype, shape)): (usize, (String, Dtype, Vec<u64>))| RegionSpec {
            name: format!("{name}{i}"),
            dtype,
            shape,
        };
        arrays.into_iter().enumerate().map(numbered).collect()
    })
}

fn any_codec() -> impl Strategy<Value = CodecId> {
    (0..4_u16).prop_map(|code| CodecId::from_code(code).expect("four codecs"))
}

/// Heads of version 1 for the most part, and such with streams or packed payloads.
fn any_head() -> impl Strategy<Value = Head> {
    let packed = (any_plain(), any_packing()).prop_map(|(head, packed)| pack(head, packed));
    let encoded = (any_encoded(), any_packing()).prop_map(|(head, packed)| pack(head, packed));
    let all = prop_oneof![3 => any_plain(), 1 => packed, 2 => encoded];
    (all, any::<bool>()).prop_map(|(head, pieces)| if pieces { head.with_pieces() } else { head })
}

fn any_plain() -> impl Strategy<Value = Head> {
    (any::<i64>(), any_specs())
        .prop_filter_map("above the largest payload", |(v, specs)| Head::layout(v, specs).ok())
}

fn any_encoded() -> impl Strategy<Value = Head> {
    let codecs = prop::collection::vec((any_codec(), 0..100_000_u64), 40);
    (any::<i64>(), any_specs(), codecs).prop_filter_map(
        "above the payload",
        |(v, specs, codecs)| {
            let arrays =
                specs.into_iter().zip(&codecs).map(|(spec, (id, _))| (spec, *id)).collect();
            let most: Vec<u64> = codecs.iter().map(|(_, stored)| *stored).collect();
            worst(v, arrays, &most)
        },
    )
}

fn worst(version: i64, arrays: Vec<(RegionSpec, CodecId)>, most: &[u64]) -> Option<Head> {
    let most = &most[..arrays.len()];
    Head::worst(version, arrays, most).ok()
}

fn any_packing() -> impl Strategy<Value = Option<(OuterId, u64)>> {
    let coder = prop::sample::select(&[OuterId::Zstd, OuterId::Lz4, OuterId::Archive][..]);
    prop::option::of((coder, 1..1000_u64))
}

/// The head with a payload that was made this many bytes shorter, where it is longer than that.
fn pack(head: Head, packing: Option<(OuterId, u64)>) -> Head {
    let packed = packing.and_then(|(coder, shorter)| {
        let bytes = head.payload_bytes.checked_sub(shorter).filter(|&bytes| bytes > 0)?;
        Some(Packed { coder, bytes })
    });
    head.with_packed(packed).expect("shorter than the payload")
}

proptest! {
    #[test]
    fn head_is_read_as_it_was_written(head in any_head(), sum: u64, tail in 0..5000_usize) {
        let mut bytes = head.encode(sum);
        prop_assert_eq!(bytes.len() as u64, head.encoded_len());
        prop_assert_eq!(bytes.len() % 4096, 0);
        bytes.resize(bytes.len() + tail, 0xaa);
        prop_assert_eq!(head_len(&bytes[..4096]), Ok(head.encoded_len()));
        prop_assert_eq!(parse_head(&bytes), Ok((head, sum)));
    }

    #[test]
    fn format_version_is_2_exactly_when_something_is_encoded_or_packed(head in any_head()) {
        let version = head.encode(1)[8];
        prop_assert_eq!(version == 2, head.is_encoded() || head.packed.is_some());
        prop_assert!(version == 1 || version == 2);
        prop_assert_eq!(head.frame_bytes() - head.sums_bytes(), head.sums_at());
        prop_assert_eq!(head.sums_at(), head.encoded_len() + head.stored_bytes());
        prop_assert_eq!(head.pieces, head.encode(1)[12] == 1);
        prop_assert_eq!(head.in_memory().frame_bytes(), head.encoded_len() + head.payload_bytes);
    }

    #[test]
    fn room_for_the_longest_streams_is_room_for_shorter_ones(
        head in any_encoded(),
        shorter in prop::collection::vec(0..100_000_u64, 40),
    ) {
        let stored = |(r, less): (&Region, &u64)| match r.codec {
            CodecId::Raw => r.bytes,
            _ => r.stored.saturating_sub(*less),
        };
        let stored: Vec<u64> = head.regions.iter().zip(&shorter).map(stored).collect();
        let shorter = head.with_stored(&stored).unwrap();
        prop_assert!(shorter.payload_bytes <= head.payload_bytes);
        prop_assert_eq!(shorter.encoded_len(), head.encoded_len());
        prop_assert_eq!(shorter.with_stored(&stored), Ok(shorter.clone()));
        let found: Vec<u64> = shorter.regions.iter().map(|region| region.stored).collect();
        prop_assert_eq!(found, stored);
    }

    #[test]
    fn regions_are_aligned_apart_and_within_the_payload(specs in any_specs()) {
        let head = Head::layout(1, specs.clone());
        prop_assume!(head.is_ok());
        let head = head.unwrap();
        let mut end = 0;
        for (region, spec) in head.regions.iter().zip(&specs) {
            prop_assert_eq!(region.offset % 64, 0);
            prop_assert!(region.offset >= end && region.offset - end < 64);
            let items: u128 = spec.shape.iter().map(|&d| u128::from(d)).product();
            prop_assert_eq!(u128::from(region.bytes), items * u128::from(spec.dtype.itemsize()));
            end = region.end();
        }
        prop_assert_eq!(head.payload_bytes, end);
        prop_assert_eq!(head.regions.len(), specs.len());
        prop_assert_eq!(head.frame_bytes(), head.encoded_len() + end);
        prop_assert!(head.regions.iter().all(|r| head.region(&r.name) == Some(r)));
    }

    #[test]
    fn gaps_and_regions_cover_the_payload_once(head in any_head()) {
        let mut ranges: Vec<_> = head.regions.iter().map(Region::range).collect();
        ranges.extend(head.gaps());
        ranges.retain(|range| !range.is_empty());
        ranges.sort_by_key(|range| range.start);
        let mut end = 0;
        for range in ranges {
            prop_assert_eq!(range.start, end);
            end = range.end;
        }
        prop_assert_eq!(end, head.payload_bytes);
    }

    #[test]
    fn changed_byte_is_refused(head in any_head(), at: prop::sample::Index, flip in 1..=255_u8) {
        let mut bytes = head.encode(1);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        prop_assert!(parse_head(&bytes).is_err(), "byte {}", at);
    }

    #[test]
    fn truncated_head_is_refused(head in any_head(), len: prop::sample::Index) {
        let bytes = head.encode(1);
        prop_assert!(parse_head(&bytes[..len.index(bytes.len())]).is_err());
    }

    #[test]
    fn random_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..10_000)) {
        prop_assert!(head_len(&bytes).is_err());
        prop_assert!(parse_head(&bytes).is_err());
    }

    #[test]
    fn dtype_is_found_by_its_name(dtype in any_dtype()) {
        prop_assert_eq!(Dtype::from_name(&dtype.name()), Some(dtype.clone()));
        prop_assert_eq!(dtype.to_string(), dtype.name());
    }
}
