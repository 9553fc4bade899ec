//! The allocation table of an arena: every byte belongs to one fragment, a copy or a gap.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
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
    /// What was released last, the latest at the end.
    released: VecDeque<Released>,
}

/// Bytes that belonged to a copy until lately. A device may still be working on them, and the more
/// so the later the copy was used.
#[derive(Clone, Copy, Debug)]
struct Released {
    offset: u64,
    end: u64,
    last_use: u64,
}

/// So many releases are remembered: more than calls are ahead of a device.
const REMEMBERED: usize = 64;
/// So many places inside a gap are compared with its ends.
const OLDEST: usize = 4;
/// So many gaps of one size are compared.
const COMPARED: usize = 16;

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
        let (ready, sizes, released) = (BTreeSet::new(), BTreeMap::new(), VecDeque::new());
        Fragments { list, capacity, free: capacity, gaps, ready, sizes, released }
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
        if self.released.len() == REMEMBERED {
            self.released.pop_front();
        }
        let last_use = resident.last_use;
        self.released.push_back(Released { offset, end: offset + bytes, last_use });
        self.join_gaps_around(index);
        resident
    }

    /// When the bytes were used last, as far as that is remembered; 0 when it is long ago.
    fn last_use(&self, offset: u64, bytes: u64) -> u64 {
        let meets = |r: &&Released| r.offset < offset + bytes && offset < r.end;
        self.released.iter().filter(meets).map(|r| r.last_use).max().unwrap_or(0)
    }

    /// Where `bytes` bytes go in a gap, and when that place was used last: (last use, offset). At
    /// that end of it that was used longer ago; or where a copy of the same size was, if that is
    /// longer ago still: copies of one size then stay side by side.
    fn place_in_gap(&self, gap: u64, room: u64, bytes: u64) -> (u64, u64) {
        let used = |offset: u64| (self.last_use(offset, bytes), offset);
        let best = used(gap).min(used(gap + room - bytes));
        let inside =
            |r: &&Released| r.end - r.offset == bytes && gap <= r.offset && r.end <= gap + room;
        // What was released first was mostly used first.
        let oldest = self.released.iter().filter(inside).take(OLDEST);
        oldest.map(|r| used(r.offset)).fold(
            best,
            |best, place| {
                if place.0 < best.0 { place } else { best }
            },
        )
    }

    /// Puts a copy into the fragments `window`, all of which must be gaps.
    pub fn place(&mut self, window: Range<usize>, bytes: u64, resident: Resident) -> u64 {
        let parts = &self.list[window.clone()];
        assert!(parts.iter().all(|f| f.resident.is_none()), "a window is empty before it is used");
        let start = parts[0].offset;
        let room: u64 = parts.iter().map(|f| f.bytes).sum();
        assert!(0 < bytes && bytes <= room, "a window is large enough");
        for gap in parts {
            self.gaps.remove(&(gap.bytes, gap.offset));
        }
        let (_, offset) = self.place_in_gap(start, room, bytes);
        let (before, after) = (offset - start, room - bytes - (offset - start));
        let gap = |offset, bytes| Fragment { offset, bytes, resident: None };
        let copy = Fragment { offset, bytes, resident: Some(resident) };
        let parts = [gap(start, before), copy, gap(offset + bytes, after)];
        let first = window.start;
        if room == bytes && window.len() == 1 {
            self.list[first] = copy;
        } else {
            self.list.splice(window, parts.into_iter().filter(|part| part.bytes > 0));
        }
        if after > 0 {
            self.join_gaps_around(first + 1 + usize::from(before > 0));
        }
        if before > 0 {
            self.join_gaps_around(first);
        }
        self.released.retain(|r| r.end <= offset || offset + bytes <= r.offset);
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

    /// The index of the smallest gap of at least `bytes` bytes, for which nothing is given up; of
    /// several, the one that was used longest ago.
    pub fn smallest_gap(&self, bytes: u64) -> Option<usize> {
        let (room, _) = *self.gaps.range((bytes, 0)..).next()?;
        let same = self.gaps.range((room, 0)..=(room, u64::MAX)).take(COMPARED);
        let (_, offset) = same.min_by_key(|(_, offset)| self.place_in_gap(*offset, room, bytes))?;
        Some(self.index_of(*offset))
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

    /// An arena full of copies of 8 bytes, used in the order of `uses`.
    fn full(uses: &[u64]) -> Fragments {
        let mut fragments = Fragments::new(uses.len() as u64 * 8);
        for (row, last_use) in (0..).zip(uses) {
            let gap = fragments.gap_at(u64::from(row) * 8);
            fragments.place(gap..gap + 1, 8, Resident { last_use: *last_use, ..resident(row) });
        }
        fragments
    }

    #[test]
    fn a_copy_goes_to_the_end_of_a_gap_that_was_used_longer_ago() {
        for (uses, expected) in [([1, 2, 3, 4], [0, 8, 16]), ([4, 3, 2, 1], [24, 16, 8])] {
            let mut fragments = full(&uses);
            (0..4).for_each(|copy| _ = fragments.release(copy * 8));
            for offset in expected {
                let gap = fragments.smallest_gap(8).unwrap();
                assert_eq!(fragments.place(gap..gap + 1, 8, resident(9)), offset, "{uses:?}");
                fragments.assert_invariants();
            }
        }
    }

    #[test]
    fn a_copy_goes_where_one_of_its_size_was_longest_ago_also_inside_a_gap() {
        // The order of a ring: the second copy was used first, then down and around.
        let mut fragments = full(&[2, 1, 4, 3]);
        [8, 0, 24, 16].into_iter().for_each(|offset| _ = fragments.release(offset));
        for offset in [8, 0, 24, 16] {
            let gap = fragments.smallest_gap(8).unwrap();
            assert_eq!(fragments.place(gap..gap + 1, 8, resident(9)), offset);
            fragments.assert_invariants();
        }
    }

    #[test]
    fn of_gaps_of_one_size_the_one_that_was_used_longest_ago_is_taken() {
        let mut fragments = full(&[5, 1, 3, 2, 4]);
        [0, 16, 32].into_iter().for_each(|offset| _ = fragments.release(offset));
        for offset in [16, 32, 0] {
            let gap = fragments.smallest_gap(8).unwrap();
            assert_eq!(fragments.place(gap..gap + 1, 8, resident(9)), offset);
        }
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
