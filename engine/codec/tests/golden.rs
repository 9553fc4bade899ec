//! Frames of earlier releases can be read, and the same head is written as the same bytes.

mod common;

use common::{
    GOLDEN_VERSION, golden_frame, golden_frame_2, golden_head, golden_head_2, golden_payload,
};
use unspool_codec::{Dtype, Head, PieceSums, RegionSpec, checksum, parse_head};

fn path(version: u32) -> String {
    path_of(&format!("v{version}"))
}

fn path_of(name: &str) -> String {
    format!("{}/tests/golden/{name}.frame", env!("CARGO_MANIFEST_DIR"))
}

fn read(version: u32) -> Vec<u8> {
    std::fs::read(path(version)).expect("the golden frame is committed")
}

fn v1() -> Vec<u8> {
    read(1)
}

#[test]
fn golden_frame_of_version_1_is_read() {
    let frame = v1();
    let (head, payload_checksum) = parse_head(&frame).unwrap();
    let payload = &frame[head.encoded_len() as usize..];
    assert_eq!(head, golden_head());
    assert_eq!(head.version, GOLDEN_VERSION);
    assert_eq!(payload, golden_payload(&head));
    assert_eq!(payload_checksum, checksum(payload));
}

#[test]
fn golden_frame_of_version_1_is_written_byte_for_byte() {
    assert_eq!(golden_frame(), v1());
}

/// The facts are written out here, so that a change of `layout` and of the golden head at the
/// same time is noticed.
#[test]
fn golden_frame_has_its_regions_where_they_were() {
    let (head, _) = parse_head(&v1()).unwrap();
    assert_eq!(head.regions.len(), 7 + Dtype::ALL.len());
    let places: Vec<_> = head.regions.iter().map(|r| (r.offset, r.bytes)).take(8).collect();
    let expected = [(0, 60), (64, 16), (128, 0), (128, 24), (192, 0), (192, 6), (256, 1), (320, 2)];
    assert_eq!(places, expected);
}

#[test]
fn golden_frame_of_version_2_is_read_and_written_byte_for_byte() {
    let frame = read(2);
    let (head, payload_checksum) = parse_head(&frame).unwrap();
    assert_eq!(head, golden_head_2());
    assert_eq!(payload_checksum, 0x0123_4567_89ab_cdef);
    assert_eq!(frame.len() as u64, head.frame_bytes());
    assert_eq!(golden_frame_2(), frame);
}

#[test]
fn golden_frame_of_version_2_has_its_streams_where_they_were() {
    let (head, _) = parse_head(&read(2)).unwrap();
    let places: Vec<_> = head.regions.iter().map(|r| (r.offset, r.stored, r.bytes)).collect();
    let expected = [
        (0, 1000, 3_000_000),
        (1024, 14, 14),
        (1088, 65, 960),
        (1216, 64, 0),
        (1280, 333, 8000),
        (1664, 0, 33),
    ];
    assert_eq!(places, expected);
    assert_eq!((head.payload_bytes, head.stored_bytes()), (1664, 1200));
}

/// A payload of three pieces, the last of them short, by a formula; the file has what is around it.
fn pieced() -> (Head, Vec<u8>) {
    let spec = RegionSpec { name: "u".into(), dtype: Dtype::UInt16, shape: vec![70_000] };
    let values = (0..70_000_u32).map(|i| (i.wrapping_mul(i) >> 11) as u16);
    let payload = values.flat_map(u16::to_le_bytes).collect();
    (Head::layout(GOLDEN_VERSION, vec![spec]).expect("one array").with_pieces(), payload)
}

#[test]
fn golden_frame_with_checksums_of_pieces_is_read_and_written_byte_for_byte() {
    let around = std::fs::read(path_of("pieces")).expect("the golden frame is committed");
    let (head, payload) = pieced();
    let (read, sum) = parse_head(&around).unwrap();
    assert_eq!((&read, sum), (&head, checksum(&payload)));
    let (front, sums) = around.split_at(head.encoded_len() as usize);
    let found = PieceSums::parse(sums, &head, sum).unwrap();
    assert_eq!(found.damaged(0, &payload), None);
    assert_eq!((head.encode(sum), PieceSums::of(&payload).encode()), (front.into(), sums.into()));
    assert_eq!(head.frame_bytes(), (around.len() + payload.len()) as u64);
}

/// Writes the golden frame of a new format version. It never replaces an old one.
#[test]
#[ignore = "writes a file; run by hand once for a new format version"]
fn write_golden_frame() {
    let mut file = std::fs::File::create_new(path(unspool_codec::FORMAT_VERSION)).unwrap();
    std::io::Write::write_all(&mut file, &golden_frame_2()).unwrap();
}

/// Writes the golden frame with checksums of pieces. It never replaces an old one.
#[test]
#[ignore = "writes a file; was run by hand once"]
fn write_golden_frame_with_pieces() {
    let (head, payload) = pieced();
    let around = [head.encode(checksum(&payload)), PieceSums::of(&payload).encode()].concat();
    let mut file = std::fs::File::create_new(path_of("pieces")).unwrap();
    std::io::Write::write_all(&mut file, &around).unwrap();
}
