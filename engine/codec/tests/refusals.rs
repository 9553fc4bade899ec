//! Everything that a reader must refuse, each with its reason and its place.

mod common;

use common::{
    assert_changes_are_refused, assert_told, assert_truncations_are_refused, golden_head, opaque,
    refused, seal, spec,
};
use unspool_codec::FrameErrorKind::{
    Damaged, Foreign, Invalid, Limit, Malformed, Newer, Truncated,
};
use unspool_codec::{
    Dtype, FrameError, FrameErrorKind, Head, MAX_DIMENSION, MAX_NAME_BYTES, MAX_PAYLOAD_BYTES,
    MAX_REGIONS, MAX_TAG_BYTES, RegionSpec, head_len, parse_head, version_of,
};
use unspool_core::Failure;

/// Where the first and the second entry of [`two_arrays`] begin.
const FIRST: usize = 64;
const SECOND: usize = FIRST + 72;

/// `ab`, 2 x 3 float32 at byte 0, and `cd`, 5 items of 3 bytes at byte 64.
fn two_arrays() -> Vec<u8> {
    let specs = vec![spec("ab", Dtype::Float32, &[2, 3]), spec("cd", opaque(3, "rgb"), &[5])];
    Head::layout(9, specs).expect("two arrays").encode(1)
}

/// The error for a head in which `bytes` stand at `at`, with the right checksum.
fn refused_with(at: usize, bytes: &[u8]) -> FrameError {
    refused(two_arrays(), at, bytes)
}

#[track_caller]
fn assert_refused(at: usize, bytes: &[u8], kind: FrameErrorKind, place: usize, words: &str) {
    assert_told(&refused_with(at, bytes), kind, place, words);
}

#[test]
fn every_changed_byte_of_a_head_is_refused() {
    assert_changes_are_refused(&golden_head().encode(1));
}

#[test]
fn every_truncation_of_a_head_is_refused_as_such() {
    let head = golden_head().encode(1);
    assert_truncations_are_refused(&head);
    for len in 0..64 {
        assert_eq!(head_len(&head[..len]).unwrap_err().kind(), Truncated, "{len} bytes");
    }
}

#[test]
fn foreign_bytes_are_refused_however_few() {
    for bytes in [&b"\x93NUMPY"[..], b"\x89PNG\r\n\x1a\n", b"hello", &[0; 4096], &[0xff; 64]] {
        assert_eq!(parse_head(bytes).unwrap_err().kind(), Foreign);
        assert_eq!(head_len(bytes).unwrap_err().kind(), Foreign);
    }
}

#[test]
fn newer_format_with_the_right_checksum_is_refused_as_newer() {
    assert_refused(8, &[3], Newer, 8, "version 3");
    assert_refused(8, &[1, 1], Newer, 8, "version 257");
    assert_eq!(refused_with(8, &[3]).failure(), Failure::Permanent);
}

#[test]
fn a_format_version_is_not_believed_when_the_checksum_is_wrong() {
    for byte in 8..12 {
        let mut head = two_arrays();
        head[byte] ^= 0x40;
        let error = parse_head(&head).unwrap_err();
        assert_eq!((error.kind(), error.offset()), (Damaged, Some(24)), "byte {byte}");
        assert_eq!(error.failure(), Failure::Corrupt);
        assert_eq!(head_len(&head), Ok(4096), "the length is where it is in every version");
    }
}

#[test]
fn the_user_version_is_read_from_the_beginning_alone() {
    let head = two_arrays();
    assert_eq!(version_of(&head[..64]), Some(9));
    assert_eq!(version_of(&head[..63]), None);
    assert_eq!(version_of(&[0; 64]), None);
    let mut newer = head;
    newer[8] = 99;
    assert_eq!(version_of(&newer), None, "it may lie elsewhere");
}

#[test]
fn format_version_zero_is_refused() {
    assert_refused(8, &[0; 4], Malformed, 8, "version is 0");
}

#[test]
fn unknown_flag_dtype_and_codec_are_refused_as_newer() {
    assert_refused(12, &[2, 0, 0, 0], Newer, 12, "flags 0x2");
    assert_refused(12, &[3, 0, 0, 0], Newer, 12, "flags 0x3");
    assert_refused(15, &[0x80], Newer, 12, "flags 0x80000000");
    assert_refused(FIRST + 8, &[255, 255], Newer, FIRST + 8, "dtype code 65535");
    assert_refused(FIRST + 10, &[3, 0], Newer, FIRST + 10, "codec 3");
}

#[test]
fn checksums_of_pieces_of_a_payload_of_one_piece_are_refused() {
    assert_refused(12, &[1, 0, 0, 0], Malformed, 12, "no checksums of pieces");
}

#[test]
fn impossible_head_length_is_refused() {
    for length in [0, 1, 4095, 4097, (16 << 20) + 4096, u64::MAX] {
        assert_refused(16, &length.to_le_bytes(), Damaged, 16, &length.to_string());
    }
}

#[test]
fn head_longer_than_its_region_table_needs_is_refused() {
    let mut head = two_arrays();
    head.resize(8192, 0);
    head[16..24].copy_from_slice(&8192_u64.to_le_bytes());
    seal(&mut head);
    let error = parse_head(&head).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (Malformed, Some(60)));
}

#[test]
fn wrong_checksum_is_refused_as_damage() {
    let mut head = two_arrays();
    head[24] ^= 1;
    let error = parse_head(&head).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (Damaged, Some(24)));
    assert_eq!(error.failure(), Failure::Corrupt);
}

#[test]
fn payload_length_that_is_not_the_end_of_the_arrays_is_refused() {
    assert_refused(32, &80_u64.to_le_bytes(), Malformed, 32, "80 bytes");
    assert_refused(32, &u64::MAX.to_le_bytes(), Malformed, 32, "the arrays end at 79");
}

#[test]
fn count_of_arrays_that_does_not_fit_the_table_is_refused() {
    assert_refused(56, &u32::MAX.to_le_bytes(), Malformed, 56, "4294967295 arrays");
    assert_refused(56, &1_u32.to_le_bytes(), Malformed, SECOND, "1 arrays");
    assert_refused(60, &u32::MAX.to_le_bytes(), Malformed, 60, "4294967295 bytes");
    assert_refused(60, &144_u32.to_le_bytes(), Malformed, SECOND + 64, "144 bytes");
}

#[test]
fn entry_whose_length_contradicts_its_content_is_refused() {
    assert_refused(FIRST, &80_u32.to_le_bytes(), Malformed, FIRST, "80 bytes");
    assert_refused(FIRST, &u32::MAX.to_le_bytes(), Malformed, FIRST, "4294967295 bytes");
    assert_refused(FIRST + 4, &[255, 255], Malformed, FIRST, "does not fit");
    assert_refused(FIRST + 12, &[255], Malformed, FIRST, "does not fit");
}

#[test]
fn entries_beyond_the_end_of_the_head_are_refused() {
    let long = (48 + 65_535_u32 + 16 + 7) & !7;
    let mut start = [0; 6];
    start[..4].copy_from_slice(&long.to_le_bytes());
    start[4..].copy_from_slice(&[255, 255]);
    assert_refused(FIRST, &start, Malformed, FIRST + 64, "beyond the end");
}

#[test]
fn misaligned_overlapping_and_scattered_arrays_are_refused() {
    let at = SECOND + 24;
    assert_refused(at, &65_u64.to_le_bytes(), Malformed, at, "no multiple of 64");
    assert_refused(at, &0_u64.to_le_bytes(), Malformed, at, "within the array before");
    assert_refused(at, &128_u64.to_le_bytes(), Malformed, at, "too far after");
    assert_refused(at, &(u64::MAX - 63).to_le_bytes(), Malformed, at, "too far after");
}

#[test]
fn array_length_that_its_shape_does_not_make_is_refused() {
    let mut both = [0; 16];
    both[0] = 16;
    both[8] = 16;
    assert_refused(SECOND + 32, &both, Malformed, SECOND + 32, "make 15");
    assert_refused(SECOND + 40, &[16], Malformed, SECOND + 40, "stored in 16");
    assert_refused(SECOND + 48, &[4], Malformed, SECOND + 32, "says 15 bytes");
}

#[test]
fn overflowing_array_is_refused() {
    assert_refused(FIRST + 48, &MAX_DIMENSION.to_le_bytes(), Malformed, FIRST, "shape");
    assert_refused(FIRST + 48, &u64::MAX.to_le_bytes(), Malformed, FIRST, "dimension");
    assert_refused(SECOND + 16, &u64::MAX.to_le_bytes(), Malformed, SECOND, "items of");
}

#[test]
fn array_that_reaches_beyond_the_largest_payload_is_refused() {
    let items = MAX_PAYLOAD_BYTES / 3;
    let numbers = [3 * items, 3 * items, items];
    let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    assert_refused(SECOND + 32, &bytes, Malformed, SECOND + 32, "the largest payload");
}

#[test]
fn known_dtype_with_a_tag_or_another_item_size_is_refused() {
    assert_refused(FIRST + 16, &[8], Malformed, FIRST + 16, "float32 cannot have 8");
    let code = Dtype::UInt8.code().to_le_bytes();
    assert_refused(SECOND + 8, &code, Malformed, SECOND + 6, "uint8 have a tag");
}

#[test]
fn nonzero_reserved_byte_is_refused() {
    assert_refused(FIRST + 15, &[1], Malformed, FIRST + 15, "reserved");
    assert_refused(FIRST + 67, &[1], Malformed, FIRST + 67, "reserved");
    assert_refused(4095, &[1], Malformed, 4095, "reserved");
}

#[test]
fn text_that_is_not_utf8_is_refused() {
    assert_refused(FIRST + 65, &[0xff], Malformed, FIRST + 65, "UTF-8");
    assert_refused(SECOND + 58, &[0xc0], Malformed, SECOND + 58, "UTF-8");
}

#[test]
fn name_that_occurs_twice_is_refused() {
    let error = refused_with(SECOND + 56, b"ab");
    assert_eq!(error.kind(), Malformed);
    assert!(error.to_string().contains("two arrays have the name \"ab\""), "{error}");
    let specs = vec![spec("x", Dtype::Int8, &[]), spec("x", Dtype::Int8, &[])];
    assert_eq!(Head::layout(0, specs).unwrap_err().kind(), Invalid);
}

#[track_caller]
fn assert_limit(specs: Vec<RegionSpec>, words: &str) {
    let error = Head::layout(0, specs).expect_err("above a limit");
    assert_eq!(error.kind(), Limit, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn arrays_above_a_limit_are_not_laid_out() {
    let byte = |name: &str, shape: &[u64]| spec(name, Dtype::UInt8, shape);
    let many = (0..=MAX_REGIONS).map(|i| byte(&i.to_string(), &[])).collect();
    assert_limit(many, "65537 arrays");
    assert_limit(vec![byte(&"n".repeat(MAX_NAME_BYTES + 1), &[])], "4097 bytes");
    assert_limit(vec![byte("x", &[1; 65])], "65 dimensions");
    assert_limit(vec![byte("x", &[MAX_DIMENSION + 1, 0])], "dimension of 9223372036854775808");
    assert_limit(vec![byte("x", &[MAX_PAYLOAD_BYTES + 1])], "payload may have");
    assert_limit(vec![byte("x", &[1 << 32, 1 << 32])], "payload may have");
    assert_limit(vec![byte("x", &[1]), byte("y", &[MAX_PAYLOAD_BYTES])], "\"y\"");
    let tag = "t".repeat(MAX_TAG_BYTES + 1);
    assert_limit(vec![spec("x", opaque(1, &tag), &[])], "65536 bytes");
    let long = |i: usize| byte(&format!("{i:04096}"), &[]);
    assert_limit((0..4096).map(long).collect(), "the head has");
}

#[test]
fn arrays_at_a_limit_are_laid_out_and_read_back() {
    let many = (0..MAX_REGIONS).map(|i| spec(&i.to_string(), Dtype::Bool, &[1])).collect();
    let texts = vec![
        spec(&"n".repeat(MAX_NAME_BYTES), opaque(1, &"t".repeat(MAX_TAG_BYTES)), &[1; 64]),
        spec("rest", Dtype::Bool, &[MAX_PAYLOAD_BYTES - 64]),
    ];
    for specs in [many, texts, vec![]] {
        let head = Head::layout(i64::MIN, specs).unwrap();
        assert_eq!(parse_head(&head.encode(u64::MAX)), Ok((head, u64::MAX)));
    }
}

#[test]
fn head_that_was_changed_after_its_layout_is_refused_when_read() {
    let changes: [fn(&mut Head); 6] = [
        |head| head.payload_bytes += 1,
        |head| head.regions[1].offset = 0,
        |head| head.regions[1].name = "n".repeat(1 << 17),
        |head| head.regions[1].dtype = opaque(1, &"t".repeat(1 << 17)),
        |head| head.regions[1].shape = vec![1; 300],
        |head| head.regions.reverse(),
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut head = golden_head();
        change(&mut head);
        assert!(parse_head(&head.encode(1)).is_err(), "change {i}");
    }
}

#[test]
fn error_says_what_where_and_what_to_do() {
    let error = refused_with(SECOND + 24, &65_u64.to_le_bytes());
    let text = "array \"cd\" begins at 65, no multiple of 64 (byte 160 of the head). \
                Save it again with another writer; this one is faulty.";
    assert_eq!(error.to_string(), text);
}
