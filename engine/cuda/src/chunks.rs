//! Where an arena's chunks begin and end, and how a copy is split at their borders.
//!
//! Chunks grow by doubling from a small first one, so that the first bytes are ready soon, up to a
//! largest one: a copy may not cross two registrations (the driver refuses it with
//! `CUDA_ERROR_INVALID_VALUE`), so every copy is split where one chunk ends and the next begins.

use std::ops::Range;

/// The chunks of one arena. Borders are multiples of the first chunk's size, the end excepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Chunks {
    capacity: u64,
    first: u64,
    /// Number of doublings of the chunk size.
    doublings: u32,
}

impl Chunks {
    /// Chunks of `first`, twice `first`, ... up to `largest` bytes, then all of that size.
    /// `largest` is rounded down to `first` times a power of two.
    pub(crate) fn new(capacity: u64, first: u64, largest: u64) -> Chunks {
        let first = first.max(1);
        let doublings = (largest / first).max(1).ilog2();
        Chunks { capacity, first, doublings }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Number of chunks.
    pub(crate) fn count(&self) -> u64 {
        if self.capacity == 0 { 0 } else { self.index_of(self.capacity - 1) + 1 }
    }

    /// The bytes of chunk `index`; empty if there is no such chunk.
    pub(crate) fn range(&self, index: u64) -> Range<u64> {
        let begin = self.begin(index).min(self.capacity);
        begin..self.begin(index + 1).min(self.capacity)
    }

    /// The chunk that holds the byte at `offset`.
    pub(crate) fn index_of(&self, offset: u64) -> u64 {
        debug_assert!(offset < self.capacity);
        let units = offset / self.first;
        // The chunks 0..n of the growing part hold 2^n - 1 units together.
        let growing = (1u64 << self.doublings) - 1;
        if units < growing {
            return u64::from((units + 1).ilog2());
        }
        u64::from(self.doublings) + ((units - growing) >> self.doublings)
    }

    fn begin(&self, index: u64) -> u64 {
        let doublings = u64::from(self.doublings);
        let growing = index.min(doublings);
        let units = (1u64 << growing) - 1;
        let rest = (index - growing) << self.doublings;
        self.first.saturating_mul(units.saturating_add(rest))
    }

    /// Splits `[offset, offset + len)` at the borders of chunks; the pieces are in order.
    pub(crate) fn split(&self, offset: u64, len: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        debug_assert!(offset.checked_add(len).is_some_and(|end| end <= self.capacity));
        let (chunks, end) = (self.clone(), offset + len);
        let mut at = offset;
        std::iter::from_fn(move || {
            let begin = at;
            (begin < end).then(|| {
                at = chunks.range(chunks.index_of(begin)).end.min(end);
                begin..at
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn chunks_double_from_the_first_to_the_largest() {
        let chunks = Chunks::new(40, 2, 8);
        let sizes: Vec<u64> =
            (0..chunks.count()).map(|i| chunks.range(i).end - chunks.range(i).start).collect();
        assert_eq!(sizes, [2, 4, 8, 8, 8, 8, 2]);
    }

    #[test]
    fn an_arena_smaller_than_the_first_chunk_is_one_chunk() {
        let chunks = Chunks::new(5, 64, 256);
        assert_eq!((chunks.count(), chunks.range(0)), (1, 0..5));
        assert_eq!(Chunks::new(0, 64, 256).count(), 0);
    }

    proptest! {
        #[test]
        fn chunks_cover_the_arena_without_gaps(
            capacity in 1u64..10_000, first in 1u64..100, times in 1u64..40,
        ) {
            let chunks = Chunks::new(capacity, first, first * times);
            let mut at = 0;
            for index in 0..chunks.count() {
                let range = chunks.range(index);
                prop_assert_eq!(range.start, at);
                prop_assert!(range.end > range.start);
                prop_assert!(range.end - range.start <= first * times);
                prop_assert_eq!(chunks.index_of(range.start), index);
                prop_assert_eq!(chunks.index_of(range.end - 1), index);
                at = range.end;
            }
            prop_assert_eq!(at, capacity);
            prop_assert!(chunks.range(chunks.count()).is_empty());
        }

        #[test]
        fn a_split_copy_is_the_copy_and_crosses_no_border(
            capacity in 1u64..10_000, first in 1u64..100, times in 1u64..40, a: u64, b: u64,
        ) {
            let chunks = Chunks::new(capacity, first, first * times);
            let offset = a % (capacity + 1);
            let len = b % (capacity - offset + 1);
            let mut at = offset;
            for piece in chunks.split(offset, len) {
                prop_assert_eq!(piece.start, at);
                prop_assert!(!piece.is_empty());
                prop_assert_eq!(chunks.index_of(piece.start), chunks.index_of(piece.end - 1));
                at = piece.end;
            }
            prop_assert_eq!(at, offset + len);
        }
    }
}
