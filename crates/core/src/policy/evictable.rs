//! The copies of an arena that may go, now or later, in the order in which they are given up.

use alloc::collections::BTreeSet;
use core::cmp::Reverse;

use crate::policy::fragments::Resident;
use crate::policy::window::{LONGEST_WAIT, SHORTEST_WAIT};
use crate::types::Nanos;

/// Two lists of copies, each by its order. Copies that must stay are in neither.
#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct Evictable {
    /// Every copy that may be evicted now, the best one to evict last.
    ready: BTreeSet<Ready>,
    /// Every copy that may probably be evicted later.
    waiting: BTreeSet<Waiting>,
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

/// A copy that has to be flushed first: the sooner that is done, the better; then as for copies
/// that may go now.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Waiting {
    ready_at: Nanos,
    order: (Reverse<u64>, u64),
    offset: u64,
}

impl Ready {
    fn of(resident: &Resident, offset: u64) -> Ready {
        let Resident { next_use, last_use, .. } = *resident;
        Ready { next_use, last_use: Reverse(last_use), offset }
    }
}

impl Waiting {
    fn of(resident: &Resident, offset: u64) -> Waiting {
        let Resident { ready_at, next_use, last_use, .. } = *resident;
        Waiting { ready_at, order: (Reverse(next_use), last_use), offset }
    }
}

impl Evictable {
    /// Lists the copy at `offset`.
    pub fn insert(&mut self, resident: &Resident, offset: u64) {
        match resident.ready_at {
            Nanos::NEVER => {}
            Nanos(0) => _ = self.ready.insert(Ready::of(resident, offset)),
            _ => _ = self.waiting.insert(Waiting::of(resident, offset)),
        }
    }

    /// Takes the copy at `offset` off its list; `resident` is what it was listed with.
    pub fn remove(&mut self, resident: &Resident, offset: u64) {
        match resident.ready_at {
            Nanos::NEVER => {}
            Nanos(0) => _ = self.ready.remove(&Ready::of(resident, offset)),
            _ => _ = self.waiting.remove(&Waiting::of(resident, offset)),
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
    /// go, offset). Those whose time has passed at `now` and that still may not go are equally
    /// close, and so are those that are farther than any wait that is counted.
    pub fn soonest(&self, now: Nanos) -> Option<(Nanos, u64)> {
        let first = self.waiting.first()?;
        let (overdue, far) = (now.plus(SHORTEST_WAIT), now.plus(LONGEST_WAIT));
        if overdue < first.ready_at && first.ready_at < far {
            return Some((first.ready_at, first.offset));
        }
        let equal = |w: &&Waiting| w.ready_at <= overdue || far <= first.ready_at;
        let equal = self.waiting.iter().take_while(equal);
        let best = equal.min_by_key(|w| (w.order, w.offset))?;
        Some((best.ready_at.clamp(overdue, far), best.offset))
    }
}
