//! The allocation table of an arena: every byte belongs to one fragment, a copy or a gap.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::lifecycle::table::Row;
use crate::policy::evictable::Evictable;
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
    growth: Growth,
    /// (bytes, offset) of every gap.
    gaps: BTreeSet<(u64, u64)>,
    /// The copies that may be evicted now or later, in their order.
    evictable: Evictable,
    /// How many copies there are of each size.
    sizes: BTreeMap<u64, u32>,
    /// What was released last, the latest at the end.
    released: VecDeque<Released>,
    /// Gaps are not joined until [`Fragments::place`] is called.
    clearing: bool,
}

/// What bytes of an arena cost that no copy ever had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Growth {
    /// Nothing: all of the arena is there.
    Free,
    /// The system has to bring them, which happens from the start of the arena on. Copies have had
    /// the bytes before `reached`.
    ByNeed { reached: u64 },
}

/// Bytes that belonged to a copy until lately. A device may still be working on them, the more
/// likely the later the copy was used.
#[derive(Clone, Copy, Debug)]
struct Released {
    offset: u64,
    end: u64,
    last_use: u64,
}

/// The releases that are remembered: more than the calls by which an application is ahead of a
/// device.
const REMEMBERED: usize = 64;
/// The places inside a gap that are compared with its ends.
const OLDEST: usize = 4;
/// The gaps of one size that are compared.
const COMPARED: usize = 16;

impl Fragments {
    pub fn new(capacity: u64, growth: Growth) -> Fragments {
        let list = match capacity {
            0 => Vec::new(),
            bytes => vec![Fragment { offset: 0, bytes, resident: None }],
        };
        let gaps = list.iter().map(|gap: &Fragment| (gap.bytes, gap.offset)).collect();
        let (evictable, sizes) = (Evictable::default(), BTreeMap::new());
        let (released, clearing) = (VecDeque::new(), false);
        let free = capacity;
        Fragments { list, capacity, free, growth, gaps, evictable, sizes, released, clearing }
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
        if before != after {
            self.evictable.remove(&before, offset);
            self.evictable.insert(&after, offset);
        }
    }

    /// The size of the smallest copy, in bytes.
    pub fn smallest_copy(&self) -> Option<u64> {
        self.sizes.first_key_value().map(|(bytes, _)| *bytes)
    }

    /// Of the copies that may be evicted now, the one whose next use is last, and of those the one
    /// whose last use is longest ago: (next use, index).
    pub fn last_used_ready(&self) -> Option<(u64, usize)> {
        let (next_use, offset) = self.evictable.best_ready()?;
        Some((next_use, self.index_of(offset)))
    }

    /// Lets time pass until `now`, by which some copies should be evictable.
    pub fn pass_time(&mut self, now: Nanos) {
        self.evictable.pass(now);
    }

    /// Of the copies that may be evicted later, the one that is worth waiting for: (when, index).
    pub fn soonest_ready(&self) -> Option<(Nanos, usize)> {
        let (at, offset) = self.evictable.soonest()?;
        Some((at, self.index_of(offset)))
    }

    /// The index of the copy that may be evicted later and whose next use is last.
    pub fn last_used_waiting(&self) -> Option<usize> {
        self.evictable.last_used_waiting().map(|offset| self.index_of(offset))
    }

    /// The indices of the copies that may be evicted now, the best one to evict first.
    pub fn first_to_go(&self) -> impl Iterator<Item = usize> {
        self.evictable.first_to_go().map(|offset| self.index_of(offset))
    }

    /// The indices of the gaps, the largest first.
    pub fn largest_gaps(&self) -> impl Iterator<Item = usize> {
        self.gaps.iter().rev().map(|(_, offset)| self.index_of(*offset))
    }

    /// Gives the window with the gaps beside it, and stops joining gaps until [`Fragments::place`]
    /// has taken it: its copies are released one by one, and each join would move all fragments
    /// after it.
    pub fn begin_clearing(&mut self, window: Range<usize>) -> Range<usize> {
        debug_assert!(!window.is_empty(), "a window has a fragment");
        let is_gap = |index: usize| self.list.get(index).is_some_and(|f| f.resident.is_none());
        let start = window.start - usize::from(window.start > 0 && is_gap(window.start - 1));
        let end = window.end + usize::from(is_gap(window.end));
        self.clearing = true;
        start..end
    }

    /// Turns the copy at `offset` into a gap and joins it with the gaps beside it.
    pub fn release(&mut self, offset: u64) -> Resident {
        let index = self.index_of(offset);
        let resident = self.list[index].resident.take().expect("a copy begins here");
        let bytes = self.list[index].bytes;
        self.free += bytes;
        self.count_size(bytes, -1);
        self.evictable.remove(&resident, offset);
        if self.released.len() == REMEMBERED {
            self.released.pop_front();
        }
        let last_use = resident.last_use;
        self.released.push_back(Released { offset, end: offset + bytes, last_use });
        if !self.clearing {
            self.join_gaps_around(index);
        }
        resident
    }

    /// From now on the bytes after the last copy are brought by need.
    pub fn take_by_need(&mut self) {
        let last = self.list.iter().rev().find(|fragment| fragment.resident.is_some());
        let reached = last.map_or(0, |fragment| fragment.offset + fragment.bytes);
        self.growth = Growth::ByNeed { reached };
    }

    /// Gives up the bytes from `capacity` on. Copies whose bytes are arriving there are not in the
    /// table any more; one that begins before it keeps the part before it.
    pub fn shrink(&mut self, capacity: u64) {
        assert!(capacity <= self.capacity, "it becomes smaller");
        debug_assert!(!self.clearing, "no window is being cleared");
        while let Some(last) = self.list.pop_if(|last| last.offset + last.bytes > capacity) {
            let kept = capacity.saturating_sub(last.offset);
            match last.resident {
                Some(resident) => {
                    assert!(resident.ready_at == Nanos::NEVER, "what goes is still arriving");
                    self.count_size(last.bytes, -1);
                }
                None => {
                    self.gaps.remove(&(last.bytes, last.offset));
                    self.free -= last.bytes - kept;
                }
            }
            if kept > 0 {
                self.list.push(Fragment { bytes: kept, ..last });
                match last.resident {
                    Some(_) => self.count_size(kept, 1),
                    None => _ = self.gaps.insert((kept, last.offset)),
                }
            }
        }
        self.released.retain(|released| released.end <= capacity);
        if let Growth::ByNeed { reached } = &mut self.growth {
            *reached = capacity.min(*reached);
        }
        self.capacity = capacity;
    }

    /// Adds bytes at the end, up to `capacity`.
    pub fn grow(&mut self, capacity: u64) {
        debug_assert!(!self.clearing, "no window is being cleared");
        let Some(bytes) = capacity.checked_sub(self.capacity).filter(|&bytes| bytes > 0) else {
            return;
        };
        self.list.push(Fragment { offset: self.capacity, bytes, resident: None });
        (self.free, self.capacity) = (self.free + bytes, capacity);
        self.join_gaps_around(self.list.len() - 1);
    }

    /// When the bytes were used last, as far as that is remembered; 0 when it is long ago.
    fn last_use(&self, offset: u64, bytes: u64) -> u64 {
        let meets = |r: &&Released| r.offset < offset + bytes && offset < r.end;
        self.released.iter().filter(meets).map(|r| r.last_use).max().unwrap_or(0)
    }

    /// What speaks against `bytes` bytes at `offset`: whether the arena has to grow for them, and
    /// when they were used last, or how far it has to grow.
    fn drawback(&self, offset: u64, bytes: u64) -> (bool, u64) {
        match self.growth {
            Growth::ByNeed { reached } if offset + bytes > reached => (true, offset),
            _ => (false, self.last_use(offset, bytes)),
        }
    }

    /// The place for `bytes` bytes in a gap, after what speaks against it. That is the end of the
    /// gap that was used longer ago, or where a copy of the same size was, if that was used longer
    /// ago still: copies of one size then stay side by side. Bytes for which the arena has to grow
    /// come after all others.
    fn place_in_gap(&self, gap: u64, room: u64, bytes: u64) -> ((bool, u64), u64) {
        let used = |offset: u64| (self.drawback(offset, bytes), offset);
        let end = match self.growth {
            Growth::Free => gap + room,
            Growth::ByNeed { reached } => (gap + room).min(reached.max(gap + bytes)),
        };
        let best = used(gap).min(used(end - bytes));
        let inside =
            |r: &&Released| r.end - r.offset == bytes && gap <= r.offset && r.end <= gap + room;
        // Copies that were released first were mostly used first.
        let oldest = self.released.iter().filter(inside).take(OLDEST);
        oldest.map(|r| used(r.offset)).fold(
            best,
            |best, place| {
                if place.0 < best.0 { place } else { best }
            },
        )
    }

    /// Puts a copy into the fragments `window`, all of which must be gaps: at their start, or
    /// wherever the bytes were used longest ago.
    pub fn place(
        &mut self,
        window: Range<usize>,
        bytes: u64,
        at_start: bool,
        resident: Resident,
    ) -> u64 {
        self.clearing = false;
        let parts = &self.list[window.clone()];
        assert!(parts.iter().all(|f| f.resident.is_none()), "a window is empty before it is used");
        let start = parts[0].offset;
        let room: u64 = parts.iter().map(|f| f.bytes).sum();
        assert!(0 < bytes && bytes <= room, "a window is large enough");
        for gap in parts {
            self.gaps.remove(&(gap.bytes, gap.offset));
        }
        let offset = if at_start { start } else { self.place_in_gap(start, room, bytes).1 };
        if let Growth::ByNeed { reached } = &mut self.growth {
            *reached = (*reached).max(offset + bytes);
        }
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
        self.evictable.insert(&resident, offset);
        offset
    }

    /// Reduces the room of the copy at `offset`, whose bytes were arriving, to `kept`. The room
    /// before that becomes a gap. So does the room after it, unless it goes `to_next`: to the next
    /// fragment, a copy whose bytes are arriving and whose room then begins there.
    pub fn keep(&mut self, offset: u64, kept: Range<u64>, to_next: bool) {
        let index = self.index_of(offset);
        let Fragment { bytes, resident, .. } = self.list[index];
        let end = offset + bytes;
        assert!(resident.is_some(), "a copy begins here");
        assert!(offset <= kept.start && kept.start <= kept.end && kept.end <= end, "in its room");
        let kept = if kept.is_empty() { offset..offset } else { kept };
        self.count_size(bytes, -1);
        if kept.start < kept.end {
            self.count_size(kept.end - kept.start, 1);
        }
        let after = if to_next { 0 } else { end - kept.end };
        if to_next {
            self.begin_earlier(index + 1, kept.end);
        }
        self.free += kept.start - offset + after;
        if kept.start == offset
            && kept.end > offset
            && (to_next || self.widen_gap(index + 1, kept.end))
        {
            self.list[index].bytes = kept.end - offset;
            return;
        }
        let parts = [
            Fragment { offset, bytes: kept.start - offset, resident: None },
            Fragment { offset: kept.start, bytes: kept.end - kept.start, resident },
            Fragment { offset: kept.end, bytes: after, resident: None },
        ];
        let parts = parts.into_iter().filter(|part| part.bytes > 0);
        let gaps: Vec<u64> =
            parts.clone().filter(|part| part.resident.is_none()).map(|part| part.offset).collect();
        self.list.splice(index..=index, parts);
        for gap in gaps.into_iter().rev() {
            self.join_gaps_around(self.index_of(gap));
        }
    }

    /// Lets the gap at `index` begin at `start`, where the copy before it ends now. False when that
    /// fragment is not a gap.
    fn widen_gap(&mut self, index: usize, start: u64) -> bool {
        let Some(gap) = self.list.get_mut(index).filter(|f| f.resident.is_none()) else {
            return false;
        };
        self.gaps.remove(&(gap.bytes, gap.offset));
        gap.bytes += gap.offset - start;
        gap.offset = start;
        self.gaps.insert((gap.bytes, gap.offset));
        true
    }

    /// Lets the room of the copy at `index` begin at `start`.
    fn begin_earlier(&mut self, index: usize, start: u64) {
        let Fragment { offset, bytes, resident } = self.list[index];
        assert!(
            resident.is_some_and(|r| r.ready_at == Nanos::NEVER),
            "the bytes of the next copy are arriving"
        );
        self.count_size(bytes, -1);
        let bytes = bytes + (offset - start);
        self.count_size(bytes, 1);
        self.list[index] = Fragment { offset: start, bytes, resident };
    }

    /// The fragment after the one that begins at `offset`.
    pub fn next_after(&self, offset: u64) -> Option<&Fragment> {
        self.list.get(self.index_of(offset) + 1)
    }

    /// The index of the gap around the byte at `offset`, if it is in one.
    pub fn gap_around(&self, offset: u64) -> Option<usize> {
        let index = self.list.partition_point(|f| f.offset <= offset).checked_sub(1)?;
        self.list[index].resident.is_none().then_some(index)
    }

    fn count_size(&mut self, bytes: u64, change: i32) {
        let count = self.sizes.entry(bytes).or_default();
        *count = count.checked_add_signed(change).expect("sizes are counted");
        if *count == 0 {
            self.sizes.remove(&bytes);
        }
    }

    /// The index of the smallest gap of at least `bytes` bytes; of several, the one that was used
    /// longest ago.
    pub fn smallest_gap(&self, bytes: u64) -> Option<usize> {
        let (room, _) = *self.gaps.range((bytes, 0)..).next()?;
        let same = self.gaps.range((room, 0)..=(room, u64::MAX)).take(COMPARED);
        let (_, offset) = same.min_by_key(|(_, offset)| self.place_in_gap(*offset, room, bytes))?;
        Some(self.index_of(*offset))
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
        let mut evictable = self.evictable.emptied();
        copies().for_each(|(f, r)| evictable.insert(&r, f.offset));
        assert_eq!(evictable, self.evictable, "the evictable copies are listed");
        assert_eq!(copies().map(|(f, _)| f.bytes).min(), self.smallest_copy());
    }
}

#[cfg(test)]
#[path = "fragments_tests.rs"]
mod tests;
