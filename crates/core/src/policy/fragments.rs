//! The allocation table of an arena: every byte belongs to one fragment, a copy or a gap.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;

use crate::lifecycle::table::Row;
use crate::types::Nanos;

/// A copy in an arena, with what the policies judge it by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Resident {
    pub row: Row,
    /// Zero: may be evicted now. [`Nanos::NEVER`]: must not. Else when it probably may be.
    pub ready_at: Nanos,
    /// The position of its next use in the restore order queue, `u64::MAX` when there is none.
    pub next_use: u64,
    /// When it was last touched, as a count of touches.
    pub last_use: u64,
    /// When it came, as a count of arrivals.
    pub arrived: u64,
}

/// A part of the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fragment {
    pub offset: u64,
    pub bytes: u64,
    /// What is there; `None` for a gap.
    pub resident: Option<Resident>,
}

/// All fragments in address order; no two gaps stand side by side, no fragment is empty.
///
/// Copies of zero bytes take no room and are not in the table.
#[derive(Debug)]
pub(crate) struct Fragments {
    list: Vec<Fragment>,
    capacity: u64,
    free: u64,
    /// (bytes, offset) of every gap.
    gaps: BTreeSet<(u64, u64)>,
    /// Every copy that may be evicted now, the best one to evict last.
    ready: BTreeSet<Ready>,
    /// How many copies there are of each size.
    sizes: BTreeMap<u64, u32>,
}

/// A copy that may be evicted now, in the order in which copies are given up: the later the next
/// use, the better; then the longer ago the last one. A device may still be reading what was used
/// last, and whoever is given its bytes has to wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Ready {
    next_use: u64,
    last_use: Reverse<u64>,
    offset: u64,
}

impl Ready {
    fn of(resident: &Resident, offset: u64) -> Ready {
        let Resident { next_use, last_use, .. } = *resident;
        Ready { next_use, last_use: Reverse(last_use), offset }
    }
}

impl Fragments {
    pub fn new(capacity: u64) -> Fragments {
        let list = match capacity {
            0 => Vec::new(),
            bytes => vec![Fragment { offset: 0, bytes, resident: None }],
        };
        let gaps = list.iter().map(|gap: &Fragment| (gap.bytes, gap.offset)).collect();
        let (ready, sizes) = (BTreeSet::new(), BTreeMap::new());
        Fragments { list, capacity, free: capacity, gaps, ready, sizes }
    }

    pub fn as_slice(&self) -> &[Fragment] {
        &self.list
    }

    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes in gaps.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Says when the copy at `offset` may go and when it is used next.
    pub fn update(&mut self, offset: u64, ready_at: Nanos, next_use: u64) {
        self.change(offset, |resident| {
            (resident.ready_at, resident.next_use) = (ready_at, next_use);
        });
    }

    /// Says that the copy at `offset` was used.
    pub fn touch(&mut self, offset: u64, last_use: u64) {
        self.change(offset, |resident| resident.last_use = last_use);
    }

    /// Changes what is known of the copy at `offset`.
    fn change(&mut self, offset: u64, change: impl FnOnce(&mut Resident)) {
        let index = self.index_of(offset);
        let resident = self.list[index].resident.as_mut().expect("a copy begins here");
        let before = *resident;
        change(resident);
        let after = *resident;
        if before.ready_at == Nanos(0) {
            self.ready.remove(&Ready::of(&before, offset));
        }
        if after.ready_at == Nanos(0) {
            self.ready.insert(Ready::of(&after, offset));
        }
    }

    /// The size of the smallest copy, in bytes.
    pub fn smallest_copy(&self) -> Option<u64> {
        self.sizes.first_key_value().map(|(bytes, _)| *bytes)
    }

    /// Of the copies that may be evicted now, the one whose next use is last, and of those the one
    /// whose last use is longest ago: (next use, index).
    pub fn last_used_ready(&self) -> Option<(u64, usize)> {
        let best = self.ready.last()?;
        Some((best.next_use, self.index_of(best.offset)))
    }

    /// Turns the copy at `offset` into a gap and joins it with the gaps beside it.
    pub fn release(&mut self, offset: u64) -> Resident {
        let index = self.index_of(offset);
        let resident = self.list[index].resident.take().expect("a copy begins here");
        let bytes = self.list[index].bytes;
        self.free += bytes;
        self.count_size(bytes, -1);
        if resident.ready_at == Nanos(0) {
            self.ready.remove(&Ready::of(&resident, offset));
        }
        self.join_gaps_around(index);
        resident
    }

    /// Puts a copy at the beginning of the fragments `window`, all of which must be gaps.
    pub fn place(&mut self, window: Range<usize>, bytes: u64, resident: Resident) -> u64 {
        let parts = &self.list[window.clone()];
        assert!(parts.iter().all(|f| f.resident.is_none()), "a window is empty before it is used");
        let offset = parts[0].offset;
        let room: u64 = parts.iter().map(|f| f.bytes).sum();
        assert!(0 < bytes && bytes <= room, "a window is large enough");
        for gap in parts {
            self.gaps.remove(&(gap.bytes, gap.offset));
        }
        let copy = Fragment { offset, bytes, resident: Some(resident) };
        let rest = Fragment { offset: offset + bytes, bytes: room - bytes, resident: None };
        if rest.bytes == 0 && window.len() == 1 {
            self.list[window.start] = copy;
        } else if rest.bytes == 0 {
            self.list.splice(window, [copy]);
        } else {
            let after = window.start + 1;
            self.list.splice(window, [copy, rest]);
            self.join_gaps_around(after);
        }
        self.free -= bytes;
        self.count_size(bytes, 1);
        if resident.ready_at == Nanos(0) {
            self.ready.insert(Ready::of(&resident, offset));
        }
        offset
    }

    fn count_size(&mut self, bytes: u64, change: i32) {
        let count = self.sizes.entry(bytes).or_default();
        *count = count.checked_add_signed(change).expect("sizes are counted");
        if *count == 0 {
            self.sizes.remove(&bytes);
        }
    }

    /// The index of the smallest gap of at least `bytes` bytes: nothing is given up for it.
    pub fn smallest_gap(&self, bytes: u64) -> Option<usize> {
        let (_, offset) = *self.gaps.range((bytes, 0)..).next()?;
        Some(self.index_of(offset))
    }

    /// The index of the gap that contains the byte at `offset`.
    pub fn gap_at(&self, offset: u64) -> usize {
        let index = self.list.partition_point(|f| f.offset <= offset) - 1;
        assert!(self.list[index].resident.is_none(), "byte {offset} is in a gap");
        index
    }

    /// The index of the fragment that begins at `offset`.
    pub fn index_of(&self, offset: u64) -> usize {
        self.list
            .binary_search_by_key(&offset, |f| f.offset)
            .unwrap_or_else(|_| panic!("a fragment begins at {offset}"))
    }

    /// Joins the gap at `index`, which is not listed yet, with those beside it, and lists it.
    fn join_gaps_around(&mut self, index: usize) {
        let is_gap = |f: &Fragment| f.resident.is_none();
        let first = if index > 0 && is_gap(&self.list[index - 1]) { index - 1 } else { index };
        let last = if self.list.get(index + 1).is_some_and(is_gap) { index + 1 } else { index };
        for gap in &self.list[first..=last] {
            self.gaps.remove(&(gap.bytes, gap.offset));
        }
        self.list[first].bytes = self.list[first..=last].iter().map(|f| f.bytes).sum();
        self.list.drain(first + 1..=last);
        self.gaps.insert((self.list[first].bytes, self.list[first].offset));
    }

    /// Panics unless the fragments cover the arena, in order, with joined gaps.
    pub fn assert_invariants(&self) {
        let mut at = 0;
        for pair in self.list.windows(2) {
            assert!(pair[0].resident.is_some() || pair[1].resident.is_some(), "gaps are joined");
        }
        for fragment in &self.list {
            assert_eq!(fragment.offset, at, "fragments are contiguous");
            assert!(fragment.bytes > 0, "no fragment is empty");
            at += fragment.bytes;
        }
        assert_eq!(at, self.capacity, "fragments cover the arena");
        let gaps = self.list.iter().filter(|f| f.resident.is_none());
        let gaps: BTreeSet<_> = gaps.map(|f| (f.bytes, f.offset)).collect();
        assert_eq!(gaps, self.gaps, "the gaps are listed");
        assert_eq!(gaps.iter().map(|(bytes, _)| bytes).sum::<u64>(), self.free);
        let copies = || self.list.iter().filter_map(|f| f.resident.map(|r| (f, r)));
        let ready = copies().filter(|(_, r)| r.ready_at == Nanos(0));
        let ready: BTreeSet<_> = ready.map(|(f, r)| Ready::of(&r, f.offset)).collect();
        assert_eq!(ready, self.ready, "the evictable copies are listed");
        assert_eq!(copies().map(|(f, _)| f.bytes).min(), self.smallest_copy());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(super) fn resident(row: u32) -> Resident {
        Resident { row: Row(row), ready_at: Nanos(0), next_use: 0, last_use: 0, arrived: 0 }
    }

    #[test]
    fn releasing_a_copy_between_gaps_leaves_one_gap() {
        let mut fragments = Fragments::new(100);
        for row in 0..4 {
            let last = fragments.as_slice().len() - 1;
            fragments.place(last..last + 1, 25, resident(row));
        }
        for offset in [0, 50, 25] {
            fragments.release(offset);
            fragments.assert_invariants();
        }
        assert_eq!(fragments.as_slice()[0].bytes, 75);
        assert_eq!(fragments.free(), 75);
    }

    #[test]
    fn the_smallest_gap_that_fits_is_found() {
        let mut fragments = Fragments::new(100);
        for bytes in [9, 1, 6, 1, 83] {
            let last = fragments.as_slice().len() - 1;
            fragments.place(last..last + 1, bytes, resident(0));
        }
        [0, 10].into_iter().for_each(|offset| {
            fragments.release(offset);
        });
        assert_eq!([5, 7, 10].map(|bytes| fragments.smallest_gap(bytes)), [Some(2), Some(0), None]);
    }

    #[test]
    fn an_arena_without_bytes_has_no_fragments() {
        let fragments = Fragments::new(0);
        assert!(fragments.as_slice().is_empty());
        fragments.assert_invariants();
    }

    proptest! {
        #[test]
        fn every_sequence_of_places_and_releases_keeps_the_table_whole(
            ops in prop::collection::vec((0u64..40, any::<prop::sample::Index>()), 1..200)
        ) {
            let mut fragments = Fragments::new(256);
            for (bytes, pick) in ops {
                let fits = |f: &Fragment| f.resident.is_none() && f.bytes >= bytes;
                let gap = fragments.as_slice().iter().position(fits);
                match gap {
                    Some(i) if bytes > 0 => { fragments.place(i..i + 1, bytes, resident(1)); }
                    _ => {
                        let copies: Vec<u64> = fragments.as_slice().iter()
                            .filter(|f| f.resident.is_some()).map(|f| f.offset).collect();
                        if !copies.is_empty() {
                            fragments.release(copies[pick.index(copies.len())]);
                        }
                    }
                }
                fragments.assert_invariants();
            }
        }
    }
}
