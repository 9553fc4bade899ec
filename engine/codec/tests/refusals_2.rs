//! What a reader must refuse in a head of format version 2, beyond what holds for version 1.

mod common;

use common::{
    assert_changes_are_refused, assert_told, assert_truncations_are_refused, golden_head_2,
    refused, seal, spec,
};
use unspool_codec::FrameErrorKind::{Invalid, Limit, Malformed, Newer};
use unspool_codec::{
    CodecId, Dtype, FrameErrorKind, Head, MAX_PAYLOAD_BYTES, OuterId, Packed, parse_head,
};

/// Where the packing and the entries of [`two_arrays`] begin.
const PACKING: usize = 64;
const FIRST: usize = PACKING + 32;
const SECOND: usize = FIRST + 72;

fn arrays() -> Vec<(unspool_codec::RegionSpec, CodecId)> {
    vec![
        (spec("ab", Dtype::Float32, &[2, 300]), CodecId::Twine),
        (spec("cd", Dtype::Int8, &[5, 1]), CodecId::Raw),
    ]
}

/// `ab`, 2400 bytes stored in 200, and `cd`, 5 bytes, in a payload of 261 bytes packed into 100.
fn two_arrays() -> Vec<u8> {
    let packed = Packed { coder: OuterId::Lz4, bytes: 100 };
    let head = Head::encoded(9, arrays(), &[200, 5]).expect("two arrays");
    head.with_packed(Some(packed)).expect("shorter").encode(1)
}

#[track_caller]
fn assert_refused(at: usize, bytes: &[u8], kind: FrameErrorKind, place: usize, words: &str) {
    assert_told(&refused(two_arrays(), at, bytes), kind, place, words);
}

#[test]
fn head_is_laid_out_as_the_tests_expect() {
    let head = two_arrays();
    assert_eq!((head.len(), head[8], head[FIRST], head[SECOND]), (4096, 2, 72, 72));
    assert_eq!(head[PACKING..PACKING + 9], [2, 0, 0, 0, 0, 0, 0, 0, 100]);
    let (head, _) = parse_head(&head).unwrap();
    assert_eq!(head.payload_bytes, 261);
    assert_eq!(head.regions[0].bytes, 2400);
    assert_eq!(head.regions[0].range(), 0..200);
    assert!(head.gaps().eq(std::iter::once(200..256)));
}

#[test]
fn every_changed_byte_of_a_head_of_version_2_is_refused() {
    assert_changes_are_refused(&golden_head_2().encode(1));
}

#[test]
fn every_truncation_of_a_head_of_version_2_is_refused_as_such() {
    assert_truncations_are_refused(&golden_head_2().encode(1));
}

#[test]
fn unknown_codec_and_outer_coder_are_refused_as_newer() {
    assert_refused(FIRST + 10, &[4, 0], Newer, FIRST + 10, "codec 4");
    assert_refused(FIRST + 10, &[1, 1], Newer, FIRST + 10, "codec 257");
    assert_refused(PACKING, &[4, 0], Newer, PACKING, "outer coder 4");
    assert_refused(PACKING, &[1, 1], Newer, PACKING, "outer coder 257");
}

#[test]
fn packing_that_does_not_shorten_the_payload_is_refused() {
    let at = PACKING + 8;
    for bytes in [0, 261, 262, u64::MAX] {
        assert_refused(at, &bytes.to_le_bytes(), Malformed, at, &format!("into {bytes} bytes"));
    }
    assert_refused(PACKING, &[0], Malformed, at, "not packed is stored in 100");
}

#[test]
fn version_2_in_which_nothing_is_encoded_or_packed_is_refused() {
    let specs = vec![spec("ab", Dtype::Float32, &[2, 3])];
    let plain = Head::layout(9, specs).unwrap();
    let packed = Packed { coder: OuterId::Zstd, bytes: 23 };
    let mut head = plain.with_packed(Some(packed)).unwrap().encode(1);
    assert!(parse_head(&head).is_ok());
    head[PACKING] = 0;
    head[PACKING + 8] = 24;
    seal(&mut head);
    let error = parse_head(&head).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (Malformed, Some(8)));
}

#[test]
fn array_that_is_not_encoded_cannot_be_stored_in_another_length() {
    assert_refused(SECOND + 40, &[6], Malformed, SECOND + 40, "stored in 6");
    assert_refused(FIRST + 10, &[0], Malformed, FIRST + 40, "has 2400 bytes but is stored in 200");
}

#[test]
fn stream_beyond_the_largest_payload_is_refused() {
    let bytes = (MAX_PAYLOAD_BYTES + 1).to_le_bytes();
    assert_refused(FIRST + 40, &bytes, Malformed, FIRST + 40, "the largest payload");
    assert_refused(FIRST + 40, &u64::MAX.to_le_bytes(), Malformed, FIRST + 40, "largest payload");
}

#[test]
fn nonzero_reserved_byte_of_the_packing_is_refused() {
    for at in [PACKING + 2, PACKING + 7, PACKING + 16, PACKING + 31] {
        assert_refused(at, &[1], Malformed, at, "reserved");
    }
}

#[test]
fn lengths_that_do_not_fit_the_arrays_are_not_laid_out() {
    let kind = |stored: &[u64]| Head::encoded(9, arrays(), stored).unwrap_err().kind();
    assert_eq!(kind(&[200]), Invalid);
    assert_eq!(kind(&[200, 5, 1]), Invalid);
    assert_eq!(kind(&[200, 6]), Invalid);
    assert_eq!(kind(&[MAX_PAYLOAD_BYTES + 1, 5]), Limit);
    assert_eq!(Head::worst(9, arrays(), &[200]).unwrap_err().kind(), Invalid);
}

#[test]
fn longest_streams_do_not_count_for_arrays_that_are_not_encoded() {
    let head = Head::worst(9, arrays(), &[4000, 0]).unwrap();
    assert_eq!(head.regions[1].range(), 4032..4037);
    assert_eq!(head.with_stored(&[200, 5]), Head::encoded(9, arrays(), &[200, 5]));
}

#[test]
fn payload_cannot_be_packed_into_nothing_or_into_more() {
    let head = Head::encoded(9, arrays(), &[200, 5]).unwrap();
    for bytes in [0, 261, u64::MAX] {
        let packed = Packed { coder: OuterId::Zstd, bytes };
        let error = head.with_packed(Some(packed)).unwrap_err();
        assert_eq!(error.kind(), Invalid);
        assert!(error.to_string().contains(&format!("into {bytes} bytes")), "{error}");
    }
    assert_eq!(head.with_packed(None), Ok(head));
}
