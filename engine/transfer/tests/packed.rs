//! Frames whose payload a store holds packed.

mod common;

use std::sync::Arc;

use common::{Store, content, frame};
use unspool_codec::{Dtype, Head, Outer, OuterId, Packed, RegionSpec, parse_head};
use unspool_core::{CheckpointId, Failure};
use unspool_tiers::Tier;
use unspool_transfer::{Frame, Pool, TransferError, read_frame, write_frame};

const ID: CheckpointId = CheckpointId(1);
const BYTES: u64 = 200_000;
const ALL: [Outer; 3] = [Outer::Zstd(3), Outer::Lz4, Outer::Archive];

fn stored(store: &Store) -> Vec<u8> {
    let bytes = store.list().expect("a store in memory lists")[0].bytes;
    let mut all = vec![0; bytes as usize];
    store.get(ID, 0, &mut [&mut all]).expect("it is there");
    all
}

fn written(outer: Outer) -> (Store, Arc<Pool>, Arc<Frame>) {
    let (store, buffers, frame) = (Store::default(), Pool::new(1 << 20), frame(1, BYTES));
    write_frame(&store, ID, &frame, &content(1, BYTES), Some(outer), &buffers)
        .expect("a store in memory takes it");
    (store, buffers, frame)
}

fn read(
    store: &Store,
    frame: &Frame,
    verify: bool,
    buffers: &Arc<Pool>,
) -> Result<Vec<u8>, TransferError> {
    let mut out = vec![0x77; frame.head().payload_bytes as usize];
    read_frame(store, ID, frame, verify, &mut out, buffers).map(|()| out)
}

#[test]
fn packed_frame_is_shorter_says_so_and_comes_back() {
    for outer in ALL {
        let (store, buffers, frame) = written(outer);
        let bytes = stored(&store);
        let (head, _) = parse_head(&bytes).unwrap();
        assert!(bytes.len() < BYTES as usize / 2, "{outer:?}: {} bytes", bytes.len());
        assert_eq!(head.packed.map(|packed| packed.coder), Some(outer.id()));
        assert_eq!(head.frame_bytes(), bytes.len() as u64);
        for verify in [false, true] {
            assert_eq!(read(&store, &frame, verify, &buffers).unwrap(), content(1, BYTES));
        }
    }
}

#[test]
fn packed_frame_that_an_earlier_run_left_is_read() {
    let (store, buffers, _) = written(Outer::Zstd(3));
    let (head, sum) = parse_head(&stored(&store)).unwrap();
    let found = Frame::found(head, sum);
    assert_eq!(found.head().packed, None, "memory tiers know nothing of it");
    assert_eq!(read(&store, &found, true, &buffers).unwrap(), content(1, BYTES));
}

#[test]
fn payload_that_does_not_get_shorter_is_stored_as_it_is() {
    let (store, buffers, frame) = (Store::default(), Pool::new(1 << 20), frame(1, 50_000));
    let mut x = 1_u64;
    let mut noise = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 56) as u8
    };
    let payload: Vec<u8> = (0..50_000).map(|_| noise()).collect();
    write_frame(&store, ID, &frame, &payload, Some(Outer::Zstd(3)), &buffers).unwrap();
    let bytes = stored(&store);
    assert_eq!((bytes.len(), bytes[8]), (4096 + 50_000, 1), "a frame of version 1");
    assert_eq!(read(&store, &frame, true, &buffers).unwrap(), payload);
}

#[test]
fn one_checkpoint_may_be_packed_in_one_store_and_plain_in_another() {
    let (near, buffers, frame) = written(Outer::Lz4);
    let far = Store::default();
    write_frame(&far, ID, &frame, &content(1, BYTES), None, &buffers).unwrap();
    assert_eq!(stored(&far)[8], 1);
    for store in [&near, &far] {
        assert_eq!(read(store, &frame, true, &buffers).unwrap(), content(1, BYTES));
    }
}

#[test]
fn head_of_many_arrays_is_read_whole_before_what_is_packed() {
    let spec = |i: usize| RegionSpec {
        name: format!("an array with a long name {i}"),
        dtype: Dtype::Float32,
        shape: vec![100],
    };
    let head = Head::layout(1, (0..200).map(spec).collect()).unwrap();
    assert!(head.encoded_len() > 3 * 4096);
    let payload = content(3, head.payload_bytes);
    let (store, buffers, frame) = (Store::default(), Pool::new(1 << 20), Frame::new(head));
    write_frame(&store, ID, &frame, &payload, Some(Outer::Archive), &buffers).unwrap();
    assert_eq!(stored(&store)[8], 2);
    assert_eq!(read(&store, &frame, true, &buffers).unwrap(), payload);
}

#[test]
fn damage_of_a_packed_frame_is_found_with_its_checksum() {
    for outer in ALL {
        let (store, buffers, frame) = written(outer);
        let end = parse_head(&stored(&store)).unwrap().0.sums_at() as usize;
        for byte in [20, 4096, 4096 + 3, end - 1] {
            store.damage(ID, byte);
            let error = read(&store, &frame, true, &buffers).expect_err("damaged");
            assert_eq!(error.kind(), Failure::Corrupt, "{outer:?}, byte {byte}: {error}");
            assert!(error.to_string().contains("the frame of version 1 in fake"), "{error}");
            store.damage(ID, byte);
        }
        assert!(read(&store, &frame, true, &buffers).is_ok());
    }
}

#[test]
fn lengths_are_checked_without_the_checksum_too() {
    let (store, buffers, frame) = written(Outer::Zstd(3));
    store.damage(ID, 4096);
    let error = read(&store, &frame, false, &buffers).expect_err("another length");
    assert_eq!(error.kind(), Failure::Corrupt);
    assert!(error.to_string().contains("packed payload is damaged"), "{error}");
}

#[test]
fn packed_frame_where_a_plain_one_was_written_is_refused() {
    let (store, buffers, plain) = (Store::default(), Pool::new(1 << 20), frame(1, BYTES));
    let payload = content(1, BYTES);
    write_frame(&store, ID, &plain, &payload, None, &buffers).unwrap();
    let packed = Packed { coder: OuterId::Lz4, bytes: BYTES - 1 };
    let head = plain.head().with_packed(Some(packed)).unwrap();
    let head = head.encode(plain.checksum().unwrap());
    store.put(ID, 0, &[&head, &payload]).unwrap();
    let error = read(&store, &plain, false, &buffers).expect_err("packed");
    assert_eq!(error.kind(), Failure::Corrupt);
    assert!(error.to_string().contains("is packed"), "{error}");
}

#[test]
fn nothing_is_left_of_a_packed_frame_that_cannot_be_written() {
    let (store, buffers, frame) = (Store::default(), Pool::new(1 << 20), frame(1, BYTES));
    store.fail_next(common::Fault::Fail(Failure::NoSpace));
    let outer = Some(Outer::default());
    let written = write_frame(&store, ID, &frame, &content(1, BYTES), outer, &buffers);
    assert_eq!(written.unwrap_err().kind(), Failure::NoSpace);
    assert!(store.list().unwrap().is_empty());
}
