//! The places of the blocks of a payload, which follow from the head alone.

use std::ops::Range;

use super::OuterId;
use super::numbers::Numbers;
use crate::frame::Head;
use crate::spec::CodecId;

/// The most bytes of a block.
pub(super) const BLOCK: usize = 1 << 20;

/// The fewest bytes of an array that is a run of its own.
const LEAST_RUN: u64 = 4096;

/// A block of the payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Block {
    pub(super) range: Range<usize>,
    /// The type of its numbers, where it holds nothing but numbers of one type.
    pub(super) numbers: Option<Numbers>,
}

/// The blocks of a payload that is in memory: they follow each other and cover it.
pub(super) fn blocks(head: &Head, coder: OuterId) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut end = 0;
    if coder == OuterId::Archive {
        for region in &head.regions {
            let numbers = Numbers::of(&region.dtype);
            if region.codec == CodecId::Raw && region.stored >= LEAST_RUN && numbers.is_some() {
                cut(&mut blocks, end..region.offset, None);
                cut(&mut blocks, region.range(), numbers);
                end = region.end();
            }
        }
    }
    cut(&mut blocks, end..head.payload_bytes, None);
    blocks
}

/// Cuts a run of a payload that is in memory, so that its places fit `usize`.
fn cut(blocks: &mut Vec<Block>, run: Range<u64>, numbers: Option<Numbers>) {
    let (start, end) = (run.start as usize, run.end as usize);
    let starts = (start..end).step_by(BLOCK);
    blocks.extend(starts.map(|start| Block { range: start..end.min(start + BLOCK), numbers }));
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, blocks};
    use crate::{CodecId, Dtype, Head, OuterId, RegionSpec};

    fn head(lens: &[(Dtype, u64)]) -> Head {
        let spec = |(i, (dtype, items)): (usize, &(Dtype, u64))| RegionSpec {
            name: i.to_string(),
            dtype: dtype.clone(),
            shape: vec![*items],
        };
        Head::layout(1, lens.iter().enumerate().map(spec).collect()).unwrap()
    }

    fn places(head: &Head, coder: OuterId) -> Vec<(usize, usize, bool)> {
        let blocks = blocks(head, coder);
        blocks.iter().map(|b| (b.range.start, b.range.end, b.numbers.is_some())).collect()
    }

    #[test]
    fn whole_payload_is_cut_at_multiples_of_a_block() {
        let head = head(&[(Dtype::Float32, 1 << 18), (Dtype::UInt8, 5)]);
        for coder in [OuterId::Zstd, OuterId::Lz4] {
            assert_eq!(places(&head, coder), [(0, BLOCK, false), (BLOCK, BLOCK + 5, false)]);
        }
    }

    #[test]
    fn archive_cuts_at_large_arrays_of_numbers_and_takes_the_rest_together() {
        let head = head(&[
            (Dtype::UInt8, 10),
            (Dtype::Int16, 3),
            (Dtype::Float64, (1 << 17) + 1),
            (Dtype::Float32, 1023),
            (Dtype::Float32, 1024),
        ]);
        let big = 128 + BLOCK;
        let expected = [
            (0, 128, false),
            (128, big, true),
            (big, big + 8, true),
            (big + 8, big + 64 + 4096, false),
            (big + 64 + 4096, big + 64 + 8192, true),
        ];
        assert_eq!(places(&head, OuterId::Archive), expected);
    }

    #[test]
    fn archive_does_not_take_streams_for_numbers() {
        let spec = RegionSpec { name: String::new(), dtype: Dtype::Float32, shape: vec![9000] };
        let head = Head::encoded(1, vec![(spec, CodecId::Twine)], &[5000]).unwrap();
        assert_eq!(places(&head, OuterId::Archive), [(0, 5000, false)]);
    }

    #[test]
    fn payload_without_bytes_has_no_blocks() {
        assert_eq!(places(&head(&[(Dtype::Float32, 0)]), OuterId::Archive), []);
    }
}
