//! Helpers that several tests of this crate share.

#![allow(dead_code)] // each test binary uses a part of it

use unspool_codec::{
    CodecId, Dtype, FrameError, FrameErrorKind, Head, OuterId, Packed, RegionSpec, checksum,
    parse_head,
};

/// The version of the golden head.
pub const GOLDEN_VERSION: i64 = -1_234_567_890_123;

/// A description of an array.
pub fn spec(name: &str, dtype: Dtype, shape: &[u64]) -> RegionSpec {
    RegionSpec { name: name.to_owned(), dtype, shape: shape.to_vec() }
}

/// An opaque dtype.
pub fn opaque(itemsize: u64, tag: &str) -> Dtype {
    Dtype::Opaque { itemsize, tag: tag.to_owned() }
}

/// A head with every special case: a scalar, an array without items, the highest rank, names
/// that are empty and not ASCII, opaque items with and without bytes, every dtype.
pub fn golden_head() -> Head {
    let mut specs = vec![
        spec("u", Dtype::Float32, &[3, 5]),
        spec("", Dtype::Complex128, &[]),
        spec("leer", Dtype::Float64, &[0, 9_223_372_036_854_775_807, 7]),
        spec("Größe ∂u/∂t", opaque(12, "T{<i:a:<d:b:}"), &[2]),
        spec("nothing", opaque(0, "|V0"), &[4]),
        spec("untagged", opaque(3, ""), &[1, 2]),
        spec("deep", Dtype::Int8, &[1; 64]),
    ];
    for dtype in Dtype::ALL {
        specs.push(spec(&format!("all/{dtype}"), dtype.clone(), &[2, 1]));
    }
    Head::layout(GOLDEN_VERSION, specs).expect("the golden head is within every limit")
}

/// A head of version 2: encoded arrays beside others, streams of odd lengths, an encoded array
/// without items, and a store that holds the payload packed.
pub fn golden_head_2() -> Head {
    let arrays = vec![
        (spec("u", Dtype::Float32, &[500, 1500]), CodecId::Twine),
        (spec("plain", Dtype::Int16, &[7]), CodecId::Raw),
        (spec("w", Dtype::Float64, &[4, 5, 6]), CodecId::Zfp),
        (spec("leer", Dtype::Float32, &[0]), CodecId::Twine),
        (spec("nv", Dtype::Complex64, &[1000]), CodecId::NvComp),
        (spec("odd", opaque(3, "rgb"), &[11]), CodecId::Twine),
    ];
    let head = Head::encoded(GOLDEN_VERSION, arrays, &[1000, 14, 65, 64, 333, 0]);
    let packed = Packed { coder: OuterId::Zstd, bytes: 1200 };
    head.and_then(|head| head.with_packed(Some(packed))).expect("within every limit")
}

/// The golden frame of version 2: the head, and bytes in place of a packed payload. The checksum
/// is that of a payload that is not in the frame.
pub fn golden_frame_2() -> Vec<u8> {
    let head = golden_head_2();
    let mut frame = head.encode(0x0123_4567_89ab_cdef);
    frame.extend((0..head.stored_bytes()).map(|i| (11 * i + 3) as u8));
    frame
}

/// The payload of the golden frame: the low byte of `7 * position + 1`, zeros in the gaps.
pub fn golden_payload(head: &Head) -> Vec<u8> {
    let mut payload: Vec<u8> = (0..head.payload_bytes).map(|i| (7 * i + 1) as u8).collect();
    for gap in head.gaps() {
        payload[gap.start as usize..gap.end as usize].fill(0);
    }
    payload
}

/// The golden frame: head and payload.
pub fn golden_frame() -> Vec<u8> {
    let head = golden_head();
    let payload = golden_payload(&head);
    let mut frame = head.encode(checksum(&payload));
    frame.extend_from_slice(&payload);
    frame
}

/// Computes the checksum of an encoded head anew, as a writer with other rules would.
pub fn seal(head: &mut [u8]) {
    head[24..32].fill(0);
    let sum = checksum(head);
    head[24..32].copy_from_slice(&sum.to_le_bytes());
}

/// Pseudorandom numbers from a seed (xorshift64*).
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// The error for `head` in which `bytes` stand at `at`, with the right checksum.
pub fn refused(mut head: Vec<u8>, at: usize, bytes: &[u8]) -> FrameError {
    head[at..at + bytes.len()].copy_from_slice(bytes);
    seal(&mut head);
    parse_head(&head).expect_err("a head that breaks a rule")
}

/// Asserts that an error is of this kind, names this place, and has these words.
#[track_caller]
pub fn assert_told(error: &FrameError, kind: FrameErrorKind, place: usize, words: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(error.offset(), Some(place as u64), "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

/// Asserts that a change of any byte of a head is noticed.
#[track_caller]
pub fn assert_changes_are_refused(golden: &[u8]) {
    let mut head = golden.to_vec();
    for at in 0..head.len() {
        for flip in [0x01, 0x80, 0xff, 1 << (at % 8)] {
            head[at] ^= flip;
            assert!(parse_head(&head).is_err(), "byte {at} changed by {flip:#x}");
            head[at] ^= flip;
        }
    }
    assert_eq!(head, golden);
}

/// Asserts that the beginning of a head is recognised as one, however long it is.
#[track_caller]
pub fn assert_truncations_are_refused(head: &[u8]) {
    for len in 0..head.len() {
        let error = parse_head(&head[..len]).expect_err("a part of a head");
        assert_eq!(error.kind(), FrameErrorKind::Truncated, "{len} bytes");
    }
}
