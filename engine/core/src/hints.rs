//! The restore order queue (Score, HPDC'23, section 4.1.1): what will be restored next.
//!
//! Every entry has a position that never changes; the head moves. The prefetch distance of a
//! version is its next position less that of the head. Hints are advice: a restore out of order
//! takes its own entry away and leaves the others where they are. Two restores in a row that pass
//! over the head, in queue order, mean that the application does not come back: the entries
//! before the first of the two are then dropped.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::types::Version;

/// A position that no entry has, later than all.
pub(crate) const NO_USE: u64 = u64::MAX;

/// What becomes of a version after the restore that an entry announces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Then {
    /// Nothing: it stays until it is discarded.
    Stays,
    /// The application discards it.
    Ends,
    /// It is discarded here.
    Goes,
}

#[derive(Clone, Copy, Debug)]
struct HintEntry {
    version: Version,
    live: bool,
    then: Then,
    /// Bytes that the planner's windows count for this entry, once one of them covers it.
    charge: Option<u64>,
}

/// The queue. Positions are `u64` and start at 0.
#[derive(Default, Debug)]
pub(crate) struct Hints {
    /// The entries from position `base` on. The first one is live.
    queue: VecDeque<HintEntry>,
    base: u64,
    /// Live positions of every hinted version, ascending.
    uses: BTreeMap<Version, VecDeque<u64>>,
    live: usize,
    /// The position of the last hinted restore.
    taken: u64,
}

/// An entry that left the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Removed {
    pub version: Version,
    pub position: u64,
    pub charge: Option<u64>,
}

impl Hints {
    /// Appends an entry and returns its position.
    pub fn push(&mut self, version: Version, then: Then) -> u64 {
        let position = self.end();
        self.queue.push_back(HintEntry { version, live: true, then, charge: None });
        self.uses.entry(version).or_default().push_back(position);
        self.live += 1;
        position
    }

    /// The position after the last entry.
    pub fn end(&self) -> u64 {
        self.base + self.queue.len() as u64
    }

    /// The position of the first live entry, or [`Hints::end`].
    pub fn head(&self) -> u64 {
        self.base
    }

    /// The number of live entries.
    pub fn len(&self) -> usize {
        self.live
    }

    /// The number of versions that live entries name.
    pub fn versions(&self) -> usize {
        self.uses.len()
    }

    /// The version at `position`, when that entry is live.
    pub fn get(&self, position: u64) -> Option<Version> {
        self.entry(position).filter(|e| e.live).map(|e| e.version)
    }

    /// The next position of `version`, or [`NO_USE`].
    pub fn next_use(&self, version: Version) -> u64 {
        self.nth_use(version, 0)
    }

    /// The position of `version` after `skip` others of its own, or [`NO_USE`].
    pub fn nth_use(&self, version: Version, skip: usize) -> u64 {
        self.uses.get(&version).and_then(|u| u.get(skip).copied()).unwrap_or(NO_USE)
    }

    /// What becomes of `version` after the last entry that names it; `None` when there is none.
    pub fn then(&self, version: Version) -> Option<Then> {
        let position = *self.uses.get(&version)?.back()?;
        self.entry(position).map(|e| e.then)
    }

    /// Entries between the head and the next one that names `version`. Entries that were taken
    /// out of order keep their place until the head passes them, so they count.
    #[cfg(test)]
    fn distance(&self, version: Version) -> Option<u64> {
        let position = self.next_use(version);
        (position != NO_USE).then(|| position - self.head())
    }

    /// The bytes that were charged for the entry at `position`.
    pub fn charge(&self, position: u64) -> Option<u64> {
        self.entry(position).and_then(|e| e.charge)
    }

    /// The charge of the entry at `position`, when the entry is live and has one.
    pub fn live_charge(&self, position: u64) -> Option<u64> {
        self.entry(position).filter(|e| e.live).and_then(|e| e.charge)
    }

    /// Sets the charge of a live entry.
    pub fn set_charge(&mut self, position: u64, bytes: u64) {
        let index = self.index(position).expect("a position in the queue");
        debug_assert!(self.queue[index].live);
        self.queue[index].charge = Some(bytes);
    }

    /// `version` is being restored: takes its next entry away and realigns the queue.
    /// All entries that left are added to `removed`, that of `version` first.
    pub fn take(&mut self, version: Version, removed: &mut Vec<Removed>) {
        let position = self.next_use(version);
        if position == NO_USE {
            return;
        }
        self.remove(position, removed);
        if self.taken < position {
            // Nothing is before one that was taken in order.
            self.drop_before(self.taken, removed);
        }
        self.taken = position;
    }

    /// Drops every entry.
    pub fn clear(&mut self, removed: &mut Vec<Removed>) {
        self.drop_before(self.end(), removed);
    }

    fn drop_before(&mut self, position: u64, removed: &mut Vec<Removed>) {
        while self.head() < position {
            self.remove(self.head(), removed);
        }
    }

    fn remove(&mut self, position: u64, removed: &mut Vec<Removed>) {
        let index = self.index(position).expect("a position in the queue");
        let entry = &mut self.queue[index];
        assert!(entry.live, "an entry leaves once");
        entry.live = false;
        removed.push(Removed { version: entry.version, position, charge: entry.charge });
        let version = entry.version;
        self.live -= 1;
        let uses = self.uses.get_mut(&version).expect("a live entry is listed");
        let first = uses.pop_front();
        debug_assert_eq!(first, Some(position), "the entries of a version leave in their order");
        if uses.is_empty() {
            self.uses.remove(&version);
        }
        while self.queue.front().is_some_and(|e| !e.live) {
            self.queue.pop_front();
            self.base += 1;
        }
    }

    fn index(&self, position: u64) -> Option<usize> {
        let index = usize::try_from(position.checked_sub(self.base)?).ok()?;
        (index < self.queue.len()).then_some(index)
    }

    fn entry(&self, position: u64) -> Option<&HintEntry> {
        self.index(position).map(|i| &self.queue[i])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(versions: &[i64]) -> Hints {
        let mut hints = Hints::default();
        for v in versions {
            hints.push(Version(*v), Then::Stays);
        }
        hints
    }

    fn take(hints: &mut Hints, version: i64) -> Vec<i64> {
        let mut removed = Vec::new();
        hints.take(Version(version), &mut removed);
        removed.iter().map(|r| r.version.0).collect()
    }

    #[test]
    fn the_distance_counts_from_the_head() {
        let mut hints = queue(&[7, 8, 9]);
        assert_eq!(hints.distance(Version(9)), Some(2));
        assert_eq!(take(&mut hints, 7), [7]);
        assert_eq!(hints.distance(Version(9)), Some(1));
        assert_eq!(hints.distance(Version(7)), None);
    }

    #[test]
    fn a_version_hinted_several_times_is_used_in_turn() {
        let mut hints = queue(&[1, 2, 1, 3, 1]);
        assert_eq!(hints.nth_use(Version(1), 2), 4);
        assert_eq!(hints.nth_use(Version(1), 3), NO_USE);
        take(&mut hints, 1);
        assert_eq!(hints.distance(Version(1)), Some(1));
        take(&mut hints, 2);
        take(&mut hints, 1);
        assert_eq!((hints.distance(Version(1)), hints.len()), (Some(1), 2));
    }

    #[test]
    fn the_last_entry_of_a_version_says_what_becomes_of_it() {
        let mut hints = queue(&[1, 2]);
        assert_eq!((hints.then(Version(1)), hints.then(Version(7))), (Some(Then::Stays), None));
        for then in [Then::Ends, Then::Stays, Then::Goes] {
            hints.push(Version(1), then);
            assert_eq!(hints.then(Version(1)), Some(then));
        }
    }

    #[test]
    fn a_single_look_at_the_far_end_leaves_the_order_alone() {
        let mut hints = queue(&[5, 4, 3, 2, 1, 0]);
        assert_eq!(take(&mut hints, 0), [0]);
        assert_eq!(take(&mut hints, 5), [5]);
        assert_eq!(take(&mut hints, 4), [4]);
        assert_eq!(hints.len(), 3);
    }

    #[test]
    fn an_application_that_skips_entries_is_followed() {
        let mut hints = queue(&[9, 8, 7, 6, 5, 4, 3]);
        assert_eq!(take(&mut hints, 9), [9]);
        assert_eq!(take(&mut hints, 7), [7]);
        assert_eq!(take(&mut hints, 5), [5, 8]);
        assert_eq!(take(&mut hints, 3), [3, 6]);
        assert_eq!(hints.get(hints.head()), Some(Version(4)));
    }

    #[test]
    fn a_restore_without_a_hint_changes_nothing() {
        let mut hints = queue(&[2, 1]);
        assert!(take(&mut hints, 77).is_empty());
        assert_eq!(hints.len(), 2);
    }

    #[test]
    fn an_empty_queue_has_its_head_at_its_end() {
        let mut hints = queue(&[1]);
        take(&mut hints, 1);
        assert_eq!((hints.head(), hints.end(), hints.len()), (1, 1, 0));
        assert_eq!(hints.push(Version(4), Then::Stays), 1);
    }

    #[test]
    fn clearing_returns_every_live_entry_with_its_charge() {
        let mut hints = queue(&[1, 2, 3]);
        hints.set_charge(1, 50);
        take(&mut hints, 3);
        let mut removed = Vec::new();
        hints.clear(&mut removed);
        let charges: Vec<_> = removed.iter().map(|r| (r.version.0, r.charge)).collect();
        assert_eq!(charges, [(1, None), (2, Some(50))]);
        assert_eq!(hints.len(), 0);
    }
}
