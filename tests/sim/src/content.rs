//! The bytes of checkpoints: derived from their ids, so that a mix-up is visible.

use unspool_codec::{Dtype, FrameError, Head, RegionSpec, checksum, head_len, parse_head};
use unspool_core::{CheckpointId, Version};

use crate::random::{Random, Topic};

/// The content of memory that was not filled yet, or was freed.
pub const POISON: u8 = 0xdb;

/// The payload of the checkpoint `id` in the run of `seed`.
#[must_use]
pub fn payload(seed: u64, id: CheckpointId, bytes: u64) -> Vec<u8> {
    let mut random = Random::of(seed, Topic::Bytes, id.0);
    let length = usize::try_from(bytes).expect("a payload fits in memory");
    let words = (0..length.div_ceil(8)).flat_map(|_| random.bits().to_le_bytes());
    words.take(length).collect()
}

/// Describes the first difference to the payload, if there is one.
#[must_use]
pub fn difference(expected: &[u8], found: &[u8]) -> Option<String> {
    if expected.len() != found.len() {
        return Some(format!("{} bytes instead of {}", found.len(), expected.len()));
    }
    let at = expected.iter().zip(found).position(|(a, b)| a != b)?;
    let wrong = expected.iter().zip(found).filter(|(a, b)| a != b).count();
    let poison = if found[at] == POISON { ", which looks like poison" } else { "" };
    Some(format!("{wrong} wrong bytes, the first at {at}: {:#04x}{poison}", found[at]))
}

/// The frame of a checkpoint in a store.
#[must_use]
pub fn frame(version: Version, payload: &[u8]) -> Vec<u8> {
    let mut frame = head(version, payload.len() as u64).encode(checksum(payload));
    frame.extend_from_slice(payload);
    frame
}

fn head(version: Version, bytes: u64) -> Head {
    let region = RegionSpec { name: "state".to_owned(), dtype: Dtype::UInt8, shape: vec![bytes] };
    Head::layout(version.0, vec![region]).expect("one small array is within all limits")
}

/// Opens a frame as the spool does: only data with a matching checksum is used.
///
/// # Errors
/// When the head does not parse, the length differs from the head's, or a checksum differs.
pub fn open_frame(frame: &[u8]) -> Result<(Version, &[u8]), Rejected> {
    let length = head_len(frame).map_err(Rejected::Head)?;
    let split = usize::try_from(length).unwrap_or(usize::MAX);
    let (head, payload) = frame.split_at_checked(split).ok_or(Rejected::Length)?;
    let (head, sum) = parse_head(head).map_err(Rejected::Head)?;
    if head.payload_bytes != payload.len() as u64 {
        return Err(Rejected::Length);
    }
    if checksum(payload) != sum {
        return Err(Rejected::Checksum);
    }
    Ok((Version(head.version), payload))
}

/// The reason for rejecting a frame.
#[derive(Clone, PartialEq, Debug)]
pub enum Rejected {
    /// The head does not parse.
    Head(FrameError),
    /// The length differs from the head's.
    Length,
    /// The checksum of the payload differs.
    Checksum,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_opens_to_what_was_framed() {
        for bytes in [0, 1, 100, 5000] {
            let payload = payload(3, CheckpointId(8), bytes);
            let frame = frame(Version(-4), &payload);
            assert_eq!(open_frame(&frame), Ok((Version(-4), payload.as_slice())));
        }
    }

    #[test]
    fn no_shorter_longer_or_changed_frame_opens() {
        let whole = frame(Version(1), &payload(3, CheckpointId(8), 700));
        assert!(whole.len() > 4096);
        for length in 0..whole.len() {
            assert!(open_frame(&whole[..length]).is_err(), "cut at {length}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            assert!(open_frame(&changed).is_err(), "changed at {at}");
        }
        assert_eq!(open_frame(&[whole, vec![0]].concat()), Err(Rejected::Length));
    }

    #[test]
    fn payloads_of_two_checkpoints_differ_and_the_difference_is_reported() {
        let (one, other) = (payload(3, CheckpointId(1), 64), payload(3, CheckpointId(2), 64));
        assert!(difference(&one, &other).is_some_and(|text| text.contains("wrong bytes")));
        assert_eq!(difference(&one, &one), None);
        let poisoned = difference(&one, &[POISON; 64]);
        assert!(poisoned.is_some_and(|text| text.contains("poison")));
    }
}
