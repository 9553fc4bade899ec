//! The checksum is CRC-64/NVME, however the bytes are cut.

mod common;

use common::Random;
use proptest::prelude::*;
use unspool_codec::{Checksum, checksum};

/// The definition in `docs/reference/format.md`, one bit at a time.
fn reference(bytes: &[u8]) -> u64 {
    let mut crc = u64::MAX;
    for &byte in bytes {
        crc ^= u64::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x9a6c_9329_ac4b_c9b5 } else { crc >> 1 };
        }
    }
    !crc
}

fn random_bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    (0..len).map(|_| random.next() as u8).collect()
}

#[test]
fn checksum_has_the_published_check_value() {
    assert_eq!(checksum(b"123456789"), 0xae8b_1486_0a79_9888);
    assert_eq!(checksum(b""), 0);
}

#[test]
fn checksum_is_the_documented_one_for_every_short_length() {
    let bytes = random_bytes(1200, 1);
    for len in 0..bytes.len() {
        assert_eq!(checksum(&bytes[..len]), reference(&bytes[..len]), "{len} bytes");
    }
}

#[test]
fn checksum_is_the_documented_one_at_every_address() {
    let bytes = random_bytes(70_000, 2);
    for start in 0..130 {
        assert_eq!(checksum(&bytes[start..]), reference(&bytes[start..]), "from {start}");
    }
}

#[test]
fn reading_the_value_does_not_end_the_stream() {
    let mut sum = Checksum::new();
    sum.update(b"1234");
    assert_eq!(sum.value(), checksum(b"1234"));
    sum.update(b"56789");
    assert_eq!(sum.value(), checksum(b"123456789"));
}

proptest! {
    #[test]
    fn streaming_does_not_depend_on_the_cuts(
        len in 0..20_000_usize,
        seed in 1..u64::MAX,
        cuts in prop::collection::vec(0..3000_usize, 0..40),
    ) {
        let bytes = random_bytes(len, seed);
        let mut sum = Checksum::new();
        let mut rest = &bytes[..];
        for cut in cuts {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            sum.update(piece);
            rest = after;
        }
        sum.update(rest);
        prop_assert_eq!(sum.value(), checksum(&bytes));
        prop_assert_eq!(sum.value(), reference(&bytes));
    }
}
