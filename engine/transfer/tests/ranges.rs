//! Parts of payloads that are read from a store.

// A list of one range is one part.
#![allow(clippy::single_range_in_vec_init)]

mod common;

use std::ops::Range;
use std::sync::Arc;

use common::{Store, content, frame};
use unspool_codec::{Outer, checksum};
use unspool_core::{CheckpointId, Failure};
use unspool_tiers::Tier;
use unspool_transfer::{Frame, Pool, TransferError, read_ranges, write_frame};

const ID: CheckpointId = CheckpointId(1);

/// Eight pieces, and a short one.
const BYTES: u64 = (8 << 16) + 77;

fn written(outer: Option<Outer>) -> (Store, Arc<Pool>, Arc<Frame>) {
    let (store, buffers, frame) = (Store::default(), Pool::new(1 << 20), frame(1, BYTES));
    write_frame(&store, ID, &frame, &content(1, BYTES), outer, &buffers).expect("it is taken");
    (store, buffers, frame)
}

fn read(
    (store, buffers, frame): &(Store, Arc<Pool>, Arc<Frame>),
    ranges: &[Range<u64>],
) -> Result<Vec<u8>, TransferError> {
    let mut into = vec![0x77; ranges.iter().map(|range| (range.end - range.start) as usize).sum()];
    read_ranges(store, ID, frame, ranges, &mut into, buffers).map(|()| into)
}

fn of(ranges: &[Range<u64>]) -> Vec<u8> {
    let all = content(1, BYTES);
    ranges.iter().flat_map(|range| all[range.start as usize..range.end as usize].to_vec()).collect()
}

#[test]
fn ranges_are_those_of_the_payload_packed_or_not() {
    let ranges: [&[Range<u64>]; 6] = [
        &[],
        &[0..1],
        &[5..5],
        &[0..BYTES],
        &[65_535..65_537, 65_536..70_000, 0..3, BYTES - 1..BYTES],
        &[1..200_000, 300_000..BYTES],
    ];
    for outer in [None, Some(Outer::default())] {
        let all = written(outer);
        for ranges in ranges {
            assert_eq!(read(&all, ranges).unwrap(), of(ranges), "{ranges:?}");
        }
    }
}

#[test]
fn only_the_damage_of_the_pieces_that_were_asked_for_is_met() {
    let all = written(None);
    let begin = all.2.head().encoded_len() as usize;
    all.0.damage(ID, begin + (3 << 16) + 9);
    assert_eq!(
        read(&all, &[0..3 << 16, 4 << 16..BYTES]).unwrap(),
        of(&[0..3 << 16, 4 << 16..BYTES])
    );
    let error = read(&all, &[(4 << 16) - 1..4 << 16]).unwrap_err();
    assert_eq!(error.kind(), Failure::Corrupt);
    assert!(error.to_string().contains("65536 bytes at 196608"), "{error}");
    assert!(error.to_string().contains("the frame of version 1 in fake"), "{error}");
}

#[test]
fn checksums_of_pieces_that_were_changed_are_found() {
    let all = written(None);
    let at = all.2.head().with_pieces().sums_at() as usize;
    for byte in [at, at + 71] {
        all.0.damage(ID, byte);
        let error = read(&all, &[0..1]).unwrap_err();
        assert_eq!(error.kind(), Failure::Corrupt, "{error}");
        assert!(error.to_string().contains("the checksums of its pieces"), "{error}");
        all.0.damage(ID, byte);
    }
}

#[test]
fn frame_of_an_earlier_release_is_read_whole() {
    let (store, buffers, frame) = (Store::default(), Pool::new(1 << 20), frame(1, BYTES));
    let payload = content(1, BYTES);
    let head = frame.head().encode(checksum(&payload));
    store.put(ID, 0, &[&head, &payload]).unwrap();
    let all = (store, buffers, frame);
    assert_eq!(read(&all, &[7..70_000]).unwrap(), of(&[7..70_000]));
    all.0.damage(ID, head.len() + 300_000);
    assert_eq!(read(&all, &[7..70_000]).unwrap_err().kind(), Failure::Corrupt, "no part can be");
}
