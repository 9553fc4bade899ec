//! The checksums of the pieces of a payload, by which a part of a frame can be trusted alone.

use super::checksum::{checksum, joined_checksums};
use super::error::{FrameError, FrameErrorKind};
use super::head::Head;
use super::limits::PIECE_BYTES;

/// The checksum of each [`PIECE_BYTES`] of a payload, as memory tiers hold it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PieceSums(Vec<u64>);

impl PieceSums {
    /// Those of a payload.
    #[must_use]
    pub fn of(payload: &[u8]) -> PieceSums {
        PieceSums(payload.chunks(PIECE_BYTES as usize).map(checksum).collect())
    }

    /// The checksum of the whole payload of `payload_bytes` bytes.
    #[must_use]
    pub fn whole(&self, payload_bytes: u64) -> u64 {
        let starts = (0..).step_by(PIECE_BYTES as usize);
        let lens = starts.map(|start| payload_bytes.saturating_sub(start).min(PIECE_BYTES));
        let join = |first, (second, len): (&u64, _)| joined_checksums(first, *second, len);
        self.0.iter().zip(lens).fold(checksum(&[]), join)
    }

    /// As a store has them after the payload: eight bytes for each piece.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.0.iter().flat_map(|sum| sum.to_le_bytes()).collect()
    }

    /// Reads what a store has after the payload of `head`, whose checksum is `payload_checksum`.
    /// Joined they have to be that, so they need no checksum of their own.
    ///
    /// # Errors
    /// When there are more or fewer than the payload has pieces, and when they were changed.
    pub fn parse(
        bytes: &[u8],
        head: &Head,
        payload_checksum: u64,
    ) -> Result<PieceSums, FrameError> {
        let damaged = |what: String| Err(FrameError::new(FrameErrorKind::Damaged, what));
        if !head.pieces || bytes.len() as u64 != head.sums_bytes() {
            return damaged(format!("{} bytes are no checksums of its pieces", bytes.len()));
        }
        let (words, _) = bytes.as_chunks::<8>();
        let sums = PieceSums(words.iter().map(|word| u64::from_le_bytes(*word)).collect());
        let found = sums.whole(head.payload_bytes);
        if found == payload_checksum {
            return Ok(sums);
        }
        damaged(format!(
            "the checksums of its pieces make {found:#018x} for the payload, it was \
             {payload_checksum:#018x}"
        ))
    }

    /// The first piece of these whole ones, from piece `first` on, that has another checksum.
    #[must_use]
    pub fn damaged(&self, first: usize, pieces: &[u8]) -> Option<usize> {
        let sums = self.0.get(first..).unwrap_or_default();
        let mut found = pieces.chunks(PIECE_BYTES as usize).map(checksum).enumerate();
        found.find(|&(index, sum)| sums.get(index) != Some(&sum)).map(|(index, _)| first + index)
    }
}

impl From<PieceSums> for Vec<u64> {
    fn from(sums: PieceSums) -> Vec<u64> {
        sums.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dtype, RegionSpec};

    fn payload(len: usize) -> Vec<u8> {
        (0..len as u32).map(|i| (i.wrapping_mul(i) >> 9) as u8).collect()
    }

    fn head(len: usize) -> Head {
        let (name, shape) = ("u".to_owned(), vec![len as u64]);
        let spec = RegionSpec { name, dtype: Dtype::UInt8, shape };
        Head::layout(1, vec![spec]).unwrap().with_pieces()
    }

    #[test]
    fn sums_of_pieces_make_that_of_the_whole() {
        for len in [0, 1, 65_535, 65_536, 65_537, 131_072, 200_000] {
            let bytes = payload(len);
            assert_eq!(PieceSums::of(&bytes).whole(len as u64), checksum(&bytes), "{len}");
        }
    }

    #[test]
    fn they_come_back_and_any_change_of_them_is_seen() {
        let bytes = payload(200_000);
        let (sums, sum) = (PieceSums::of(&bytes), checksum(&bytes));
        let encoded = sums.encode();
        assert_eq!(encoded.len() as u64, head(200_000).sums_bytes());
        assert_eq!(PieceSums::parse(&encoded, &head(200_000), sum), Ok(sums));
        for at in 0..encoded.len() {
            let mut changed = encoded.clone();
            changed[at] ^= 16;
            let refused = PieceSums::parse(&changed, &head(200_000), sum).unwrap_err();
            assert_eq!(refused.kind(), FrameErrorKind::Damaged, "byte {at}");
        }
        for other in [&encoded[8..], &[], &[encoded.as_slice(), &[0; 8]].concat()] {
            assert!(PieceSums::parse(other, &head(200_000), sum).is_err());
        }
    }

    #[test]
    fn the_piece_that_was_changed_is_named() {
        let mut bytes = payload(200_000);
        let sums = PieceSums::of(&bytes);
        bytes[140_000] ^= 1;
        assert_eq!(sums.damaged(0, &bytes), Some(2));
        assert_eq!(sums.damaged(0, &bytes[..131_072]), None);
        assert_eq!(sums.damaged(3, &bytes[196_608..]), None);
        assert_eq!(sums.damaged(1, &bytes[65_536..]), Some(2));
        assert_eq!(sums.damaged(4, &[1]), Some(4), "there is no such piece");
    }

    #[test]
    fn a_payload_of_one_piece_has_none() {
        assert!(!head(65_536).pieces);
        assert_eq!(head(65_536).frame_bytes(), 4096 + 65_536);
        assert_eq!(head(65_537).frame_bytes(), 4096 + 65_537 + 16);
    }
}
