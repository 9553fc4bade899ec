//! The copies of an arena that may go, now or later, in the order in which they are given up.

use alloc::collections::BTreeSet;
use core::cmp::Reverse;

use crate::policy::fragments::Resident;
use crate::policy::window::{LONGEST_WAIT, SHORTEST_WAIT};
use crate::types::Nanos;

/// Lists of copies, each by its order. Copies that must stay are in none.
#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct Evictable {
    /// Every copy that may be evicted now, the best one to evict last.
    ready: BTreeSet<Ready>,
    /// Every copy that may probably be evicted later.
    waiting: BTreeSet<WaitingCopy>,
    /// Every copy that should be evictable at `now` by its estimate and is not: rank and offset.
    /// Where a slow link holds up a faster one, these are nearly all.
    overdue: BTreeSet<(Rank, u64)>,
    now: Nanos,
}

/// How good it is to give up a copy: by its next use, then by its last one. Smaller is better.
type Rank = (Reverse<u64>, u64);

/// A copy that may be evicted now, in the order in which copies are given up: the later the next
/// use, the better; then the longer ago the last one. A device may still be reading a copy that was
/// used lately, and the next user of its bytes would have to wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Ready {
    next_use: u64,
    last_use: Reverse<u64>,
    offset: u64,
}

/// A copy that has to be flushed first: the sooner that is done, the better; then as for copies
/// that may go now.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct WaitingCopy {
    ready_at: Nanos,
    rank: Rank,
    offset: u64,
}

impl Ready {
    fn of(resident: &Resident, offset: u64) -> Ready {
        let Resident { next_use, last_use, .. } = *resident;
        Ready { next_use, last_use: Reverse(last_use), offset }
    }
}

impl WaitingCopy {
    fn of(resident: &Resident, offset: u64) -> WaitingCopy {
        let Resident { ready_at, next_use, last_use, .. } = *resident;
        WaitingCopy { ready_at, rank: (Reverse(next_use), last_use), offset }
    }
}

impl Evictable {
    /// Lists without copies at the same time.
    pub fn emptied(&self) -> Evictable {
        Evictable { now: self.now, ..Evictable::default() }
    }

    /// Lists the copy at `offset`.
    pub fn insert(&mut self, resident: &Resident, offset: u64) {
        match resident.ready_at {
            Nanos::NEVER => {}
            Nanos(0) => _ = self.ready.insert(Ready::of(resident, offset)),
            _ => self.insert_waiting(WaitingCopy::of(resident, offset)),
        }
    }

    /// Takes the copy at `offset` off its list; `resident` is what it was listed with.
    pub fn remove(&mut self, resident: &Resident, offset: u64) {
        match resident.ready_at {
            Nanos::NEVER => {}
            Nanos(0) => _ = self.ready.remove(&Ready::of(resident, offset)),
            _ => self.remove_waiting(&WaitingCopy::of(resident, offset)),
        }
    }

    /// Lets time pass until `now`. It never runs backwards.
    pub fn pass(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        while let Some(first) = self.waiting.first().copied().filter(|c| self.is_overdue(c)) {
            self.waiting.pop_first();
            self.insert_waiting(first);
        }
    }

    /// Whether the estimate for the copy has passed: it then costs the shortest wait.
    fn is_overdue(&self, copy: &WaitingCopy) -> bool {
        copy.ready_at <= self.now.plus(SHORTEST_WAIT)
    }

    fn insert_waiting(&mut self, copy: WaitingCopy) {
        if self.is_overdue(&copy) {
            self.overdue.insert((copy.rank, copy.offset));
        } else {
            self.waiting.insert(copy);
        }
    }

    fn remove_waiting(&mut self, copy: &WaitingCopy) {
        if self.is_overdue(copy) {
            self.overdue.remove(&(copy.rank, copy.offset));
        } else {
            self.waiting.remove(copy);
        }
    }

    /// The copy that is given up first of those that may go now: (next use, offset).
    pub fn best_ready(&self) -> Option<(u64, u64)> {
        self.ready.last().map(|best| (best.next_use, best.offset))
    }

    /// The offsets of the copies that may go now, the best one to evict first.
    pub fn first_to_go(&self) -> impl Iterator<Item = u64> {
        self.ready.iter().rev().map(|ready| ready.offset)
    }

    /// Of the copies that may go later, the one that is worth waiting for: (when it may probably
    /// go, offset). Those that are farther than any wait that is counted are equally far.
    pub fn soonest(&self) -> Option<(Nanos, u64)> {
        if let Some(&(_, offset)) = self.overdue.first() {
            return Some((self.now.plus(SHORTEST_WAIT), offset));
        }
        let first = self.waiting.first()?;
        let far = self.now.plus(LONGEST_WAIT);
        if first.ready_at < far {
            return Some((first.ready_at, first.offset));
        }
        let best = self.waiting.iter().min_by_key(|copy| (copy.rank, copy.offset))?;
        Some((far, best.offset))
    }
    /// The offset of the copy that may go later and whose next use is last, whenever it may go.
    pub fn last_used_waiting(&self) -> Option<u64> {
        let waiting = self.waiting.iter().map(|copy| (copy.rank, copy.offset));
        self.overdue.first().copied().into_iter().chain(waiting).min().map(|(_, offset)| offset)
    }
}
