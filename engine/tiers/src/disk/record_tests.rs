//! What a record says, and what is not believed.

use super::*;
use crate::testing::{Random, bytes};

const TAG: Tag = Tag(0x0123_4567_89ab_cdef);
const PACK: PackFile = PackFile(3);

/// The record of a frame, as it lies at `offset`.
fn record(frame: &[u8], offset: u32) -> Vec<u8> {
    let mut record = encode(CheckpointId(7), &[frame]);
    seal(&mut record, TAG, PACK, offset);
    record
}

/// Bytes with runs of zeros.
fn sparse(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut frame = bytes(seed, len);
    for _ in 0..random.below(5) {
        let from = random.below(len as u64 + 1) as usize;
        let to = from + random.below((len - from) as u64 + 1) as usize;
        frame[from..to].fill(0);
    }
    frame
}

#[test]
fn a_frame_comes_back_however_it_was_cut_and_wherever_it_has_zeros() {
    for seed in 0..300 {
        let len = [1, 31, 32, 33, 4096, 4128, 65_535][seed as usize % 7];
        let frame = sparse(seed, len);
        let (one, other) = frame.split_at(Random(seed).below(len as u64 + 1) as usize);
        let mut packed = encode(CheckpointId(seed), &[one, other]);
        seal(&mut packed, TAG, PACK, 32);
        let found = check(&packed, TAG, PACK, 32).unwrap();
        assert_eq!((found.id, found.bytes), (CheckpointId(seed), len as u64));
        assert_eq!(found.place.length as usize, packed.len());
        assert!(decode(&packed).unwrap() == frame, "seed {seed}");
        assert!(packed.len() <= len + 8 * len.div_ceil(64) + 56, "{} of {len}", packed.len());
    }
}

#[test]
fn a_record_with_a_changed_byte_or_in_another_place_is_not_one() {
    let packed = record(&sparse(1, 300), 32);
    for at in 0..packed.len() {
        let mut changed = packed.clone();
        changed[at] ^= 0x10;
        assert_eq!(check(&changed, TAG, PACK, 32), None, "byte {at}");
        assert_eq!(check(&packed[..at], TAG, PACK, 32), None, "{at} bytes");
    }
    assert_eq!(check(&packed, TAG, PACK, 40), None);
    assert_eq!(check(&packed, TAG, PackFile(4), 32), None);
    assert_eq!(check(&packed, Tag(1), PACK, 32), None);
}

#[test]
fn a_scan_passes_over_what_is_damaged_and_what_is_inside_a_frame() {
    let mut pack = Vec::new();
    for len in [40, 200, 90] {
        let inner = record(&bytes(1, 40), pack.len() as u32);
        let frame = [&bytes(2, len)[..], &inner].concat();
        pack.extend(record(&frame, pack.len() as u32));
    }
    let offsets = |pack: &[u8]| -> Vec<u32> {
        scan(pack, TAG, PACK).iter().map(|found| found.place.offset).collect()
    };
    let all = offsets(&pack);
    assert_eq!(all.len(), 3);
    pack[all[1] as usize + 50] ^= 1;
    assert_eq!(offsets(&pack), [all[0], all[2]]);
    assert_eq!(offsets(&pack[..pack.len() - 1]), [all[0]]);
}

#[test]
fn a_body_that_is_not_as_we_write_it_is_refused() {
    for (at, value) in [(32, 500_u32), (36, 500), (36, 3), (32, u32::MAX), (16, 4)] {
        let mut packed = record(&bytes(1, 40), 32);
        packed[at..at + 4].copy_from_slice(&value.to_le_bytes());
        assert_eq!(decode(&packed), None, "{value} at {at}");
    }
}

/// The bytes of a record whose checksum was computed by another program: what was written with it
/// is read for ever.
#[test]
fn the_bytes_of_a_record_are_those_of_the_page() {
    let mut frame: Vec<u8> = (1..=8).collect();
    frame.resize(96, 0);
    frame.extend(b"end");
    let mut expected = b"\x89UNR\x33\0\0\0\x07\0\0\0\0\0\0\0\x63\0\0\0\0\0\0\0".to_vec();
    expected.extend([0x05, 0x5e, 0x90, 0x73, 0xd1, 0xd9, 0x9d, 0xd4]);
    expected.extend([0, 0, 0, 0, 32, 0, 0, 0]);
    expected.extend(&frame[..32]);
    expected.extend(b"\x40\0\0\0\x03\0\0\0end\0\0\0\0\0");
    assert_eq!(record(&frame, 4096), expected);
    assert_eq!(decode(&expected), Some(frame));
}
