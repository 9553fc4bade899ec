//! The table of an arena: which bytes belong to whom, who borrows them, and which operations of the
//! device on them may be unfinished. Plain bookkeeping.
//!
//! Work on a device is enqueued and done later. A fence (an event after the work) stays with the
//! entry whose bytes it touches; when the entry goes, it stays with the bytes as a pending range.
//! Whoever borrows bytes learns which fences his own work has to come after.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use unspool_core::{CheckpointId, Failure};
use unspool_cuda::Fence;

use crate::arena::given::{GivenArray, LeavingArray};
use crate::tier::Stored;

/// One entry of the table.
#[derive(Debug)]
struct ArenaEntry {
    offset: u64,
    len: u64,
    state: Access,
    /// After the work that wrote it.
    written: Vec<Fence>,
    /// After work that reads it.
    reads: Vec<Fence>,
    /// Work on it may be under way, and when it is done is not known.
    stuck: bool,
    /// The array that has the bytes, in place of those at `offset`.
    given: Option<GivenArray>,
}

/// Bytes that belonged to an entry, with work on them that may be unfinished.
#[derive(Debug)]
struct PendingFree {
    offset: u64,
    end: u64,
    fences: Vec<Fence>,
    /// Work on the bytes may be under way that no fence is after: nobody gets them before the
    /// device was seen to have nothing left to do.
    stuck: Option<Stuck>,
}

impl PendingFree {
    /// Forgets what is done; whether something is left.
    fn is_there(&mut self) -> bool {
        self.fences.retain(|fence| !fence.is_done());
        self.stuck.is_some() || !self.fences.is_empty()
    }
}

/// The number of pending ranges that had got stuck before this one: a wait for the device says
/// something only about those that were there when it began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Stuck(u64);

/// Bytes that are borrowed.
#[derive(Debug)]
pub(super) struct BorrowedBytes {
    pub(super) offset: u64,
    pub(super) len: u64,
    /// What the borrower's work has to come after.
    pub(super) after: Vec<Fence>,
    /// The array that has the bytes, in place of those at `offset`.
    pub(super) given: Option<GivenArray>,
}

/// Who may touch the bytes of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    /// Held by the one `WriteGuard`. Commit -> `Complete`; drop -> the entry is removed.
    Writing,
    /// Readable, with this many `ReadGuard`s alive. Forget with none alive -> removed.
    Complete { readers: u32 },
}

/// A request that the table refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Misuse {
    Duplicate,
    OutOfRange { offset: u64, len: u64, capacity: u64 },
    Overlap { offset: u64, len: u64, other: CheckpointId, other_offset: u64, other_len: u64 },
    Unknown,
    StillWritten,
    StillRead { readers: u32 },
    TooShort { held: u64, skip: u64, wanted: u64 },
    Stuck,
}

impl Misuse {
    /// What it means to the core.
    pub(super) fn failure(self) -> Failure {
        match self {
            Misuse::Unknown => Failure::Missing,
            Misuse::OutOfRange { .. } => Failure::NoSpace,
            Misuse::TooShort { .. } => Failure::Corrupt,
            _ => Failure::Permanent,
        }
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Misuse::Duplicate => write!(f, "the id already has an entry"),
            Misuse::OutOfRange { offset, len, capacity } => {
                write!(
                    f,
                    "{len} bytes at offset {offset} end beyond the {capacity} bytes there are"
                )
            }
            Misuse::Overlap { offset, len, other, other_offset, other_len } => write!(
                f,
                "{len} bytes at offset {offset} overlap frame {}, {other_len} bytes at offset \
                 {other_offset}",
                other.0
            ),
            Misuse::Unknown => write!(f, "the id has no entry"),
            Misuse::StillWritten => write!(f, "the entry is still being written"),
            Misuse::StillRead { readers } => write!(f, "the entry is being read by {readers}"),
            Misuse::Stuck => {
                write!(f, "work of a device on these bytes failed, and may still be under way")
            }
            Misuse::TooShort { held, skip, wanted } => {
                write!(f, "{wanted} bytes from byte {skip} on were asked for, it has {held}")
            }
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct ArenaTable {
    capacity: u64,
    used: u64,
    by_id: HashMap<CheckpointId, ArenaEntry>,
    /// The owner of every range that is not empty, by its first byte.
    by_offset: BTreeMap<u64, CheckpointId>,
    /// Few: what the device has not done yet, and what was not looked at since.
    pending: Vec<PendingFree>,
    /// When there are so many pending, all of them are looked at: asking the device costs a call
    /// for each, so that is left until their number has doubled.
    crowd: usize,
    /// What the next range that gets stuck has.
    stuck: Stuck,
    /// Arrays whose entries have gone, until somebody takes them who has no lock.
    leaving: Vec<LeavingArray>,
}

/// So many pending are not a crowd.
const FEW: usize = 64;

impl ArenaTable {
    pub(super) fn new(capacity: u64) -> ArenaTable {
        let (by_id, by_offset, pending) = (HashMap::new(), BTreeMap::new(), Vec::new());
        let leaving = Vec::new();
        let (crowd, stuck) = (FEW, Stuck(0));
        ArenaTable { capacity, used: 0, by_id, by_offset, pending, crowd, stuck, leaving }
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn create(
        &mut self,
        id: CheckpointId,
        offset: u64,
        len: u64,
    ) -> Result<BorrowedBytes, Misuse> {
        let end = self.check(id, offset, len)?;
        let after = self.unfinished_in(offset, end)?;
        self.insert(id, offset, len, None);
        Ok(BorrowedBytes { offset, len, after, given: None })
    }

    /// Whether `id` may have these bytes, as far as other entries go; gives their end.
    fn check(&self, id: CheckpointId, offset: u64, len: u64) -> Result<u64, Misuse> {
        if self.by_id.contains_key(&id) {
            return Err(Misuse::Duplicate);
        }
        let end = offset.checked_add(len).filter(|&end| end <= self.capacity);
        let end = end.ok_or(Misuse::OutOfRange { offset, len, capacity: self.capacity })?;
        match self.owner_in(offset, end) {
            Some((other, other_offset, other_len)) => {
                Err(Misuse::Overlap { offset, len, other, other_offset, other_len })
            }
            None => Ok(end),
        }
    }

    fn insert(&mut self, id: CheckpointId, offset: u64, len: u64, given: Option<GivenArray>) {
        if len > 0 {
            self.by_offset.insert(offset, id);
        }
        let (state, written, reads) = (Access::Writing, Vec::new(), Vec::new());
        let entry = ArenaEntry { offset, len, state, written, reads, stuck: false, given };
        self.by_id.insert(id, entry);
        self.used += len;
        debug_assert!(self.used <= self.capacity);
    }

    /// As [`ArenaTable::create`], for bytes that an array of the application has: nothing was done
    /// to those by earlier owners of the place. An array that is refused is leaving.
    pub(super) fn create_given(
        &mut self,
        id: CheckpointId,
        offset: u64,
        given: GivenArray,
    ) -> Result<BorrowedBytes, Misuse> {
        let len = given.span().len();
        if let Err(misuse) = self.check(id, offset, len) {
            self.leaving.push(given.leaving(Vec::new()));
            return Err(misuse);
        }
        self.insert(id, offset, len, Some(given.clone()));
        Ok(BorrowedBytes { offset, len, after: Vec::new(), given: Some(given) })
    }

    /// Fences of earlier owners of these bytes whose work may be unfinished. What is done is
    /// forgotten; what is not stays, because the new owner may give up before he has waited.
    fn unfinished_in(&mut self, start: u64, end: u64) -> Result<Vec<Fence>, Misuse> {
        if self.pending.len() >= self.crowd {
            self.pending.retain_mut(PendingFree::is_there);
            self.crowd = FEW.max(2 * self.pending.len());
        }
        let mut fences = Vec::new();
        for range in self.pending.iter_mut().filter(|range| range.offset < end && start < range.end)
        {
            if range.stuck.is_some() {
                return Err(Misuse::Stuck);
            }
            if range.is_there() {
                fences.extend(range.fences.iter().cloned());
            }
        }
        Ok(fences)
    }

    /// Work on the bytes of `id` was enqueued, and when it will be done is not known.
    pub(super) fn stick(&mut self, id: CheckpointId) {
        if let Some(entry) = self.by_id.get_mut(&id) {
            entry.stuck = true;
        }
    }

    /// The place of the next range that gets stuck among all: those before it are there already.
    pub(super) fn stuck_so_far(&self) -> Stuck {
        self.stuck
    }

    /// The device had nothing left to do at a moment after [`ArenaTable::stuck_so_far`] was `seen`:
    /// the ranges that were stuck then may be given to others.
    pub(super) fn unstick(&mut self, seen: Stuck) {
        for range in self.pending.iter_mut().filter(|range| range.stuck < Some(seen)) {
            range.stuck = None;
        }
    }

    /// Keeps `[offset, end)` from others until the work on it is done.
    fn leave_pending(&mut self, offset: u64, end: u64, fences: Vec<Fence>, stuck: bool) {
        if offset >= end || (fences.is_empty() && !stuck) {
            return;
        }
        let number = self.stuck;
        self.stuck.0 += u64::from(stuck);
        let stuck = stuck.then_some(number);
        self.pending.push(PendingFree { offset, end, fences, stuck });
    }

    /// The last entry that begins before `end`, if it reaches beyond `start`. As entries do not
    /// overlap, no other one can reach into the range when this one does not.
    fn owner_in(&self, start: u64, end: u64) -> Option<(CheckpointId, u64, u64)> {
        let (&offset, &id) = self.by_offset.range(..end).next_back()?;
        let len = self.by_id.get(&id)?.len;
        (start < end && offset + len > start).then_some((id, offset, len))
    }

    /// The entry is complete once the work before `written` is done.
    pub(super) fn commit(&mut self, id: CheckpointId, written: Vec<Fence>) {
        let entry = self.by_id.get_mut(&id);
        debug_assert!(entry.as_ref().is_some_and(|entry| entry.state == Access::Writing));
        if let Some(entry) = entry {
            entry.state = Access::Complete { readers: 0 };
            entry.written = written;
        }
    }

    /// As [`ArenaTable::commit`], for an entry that turned out to be `[offset, offset + len)`. That
    /// range may begin in bytes before its own that nobody owns any more; what it leaves of its own
    /// stays with the work that may still be under way there. Nothing has changed after an error.
    pub(super) fn commit_at(
        &mut self,
        id: CheckpointId,
        offset: u64,
        len: u64,
        written: &[Fence],
    ) -> Result<(), Misuse> {
        let entry = self.by_id.get(&id).ok_or(Misuse::Unknown)?;
        debug_assert_eq!(entry.state, Access::Writing);
        let own = (entry.offset, entry.offset + entry.len);
        let end = offset.checked_add(len).filter(|&end| end <= self.capacity);
        let end = end.ok_or(Misuse::OutOfRange { offset, len, capacity: self.capacity })?;
        // What is its own is free of others: only what lies around it has to be looked at.
        for (start, end) in [(offset, end.min(own.0)), (offset.max(own.1), end)] {
            if let Some((other, other_offset, other_len)) = self.owner_in(start, end) {
                return Err(Misuse::Overlap { offset, len, other, other_offset, other_len });
            }
            if self.pending.iter().any(|g| g.stuck.is_some() && g.offset < end && start < g.end) {
                return Err(Misuse::Stuck);
            }
        }
        self.shrink(id, own, (offset, end), written);
        self.commit(id, written.to_vec());
        Ok(())
    }

    /// Gives an entry other bytes than it had, and those that it leaves to the work on them.
    fn shrink(&mut self, id: CheckpointId, own: (u64, u64), kept: (u64, u64), written: &[Fence]) {
        let Some(entry) = self.by_id.get_mut(&id) else { return };
        (entry.offset, entry.len) = (kept.0, kept.1 - kept.0);
        let stuck = entry.stuck;
        if own.0 < own.1 {
            self.by_offset.remove(&own.0);
        }
        if kept.0 < kept.1 {
            self.by_offset.insert(kept.0, id);
        }
        self.used = self.used - (own.1 - own.0) + (kept.1 - kept.0);
        let fences: Vec<Fence> = written.iter().filter(|fence| !fence.is_done()).cloned().collect();
        for (offset, end) in [(own.0, own.1.min(kept.0)), (own.0.max(kept.1), own.1)] {
            self.leave_pending(offset, end, fences.clone(), stuck);
        }
    }

    /// Removes an entry whose writer gave up after he had enqueued the work before `fences`.
    pub(super) fn abandon(&mut self, id: CheckpointId, fences: Vec<Fence>) {
        debug_assert!(self.by_id.get(&id).is_some_and(|entry| entry.state == Access::Writing));
        if let Some(entry) = self.by_id.get_mut(&id) {
            entry.written = fences;
        }
        self.remove(id);
    }

    /// Counts one more reader and says where the bytes are.
    pub(super) fn begin_read(&mut self, id: CheckpointId) -> Result<BorrowedBytes, Misuse> {
        let entry = self.by_id.get_mut(&id).ok_or(Misuse::Unknown)?;
        match &mut entry.state {
            Access::Writing => Err(Misuse::StillWritten),
            Access::Complete { readers } => {
                *readers += 1;
                entry.written.retain(|fence| !fence.is_done());
                let after = entry.written.clone();
                let (offset, len, given) = (entry.offset, entry.len, entry.given.clone());
                Ok(BorrowedBytes { offset, len, after, given })
            }
        }
    }

    /// A reader has enqueued the last of its work, which is done when `fences` are.
    pub(super) fn end_read(&mut self, id: CheckpointId, fences: Vec<Fence>) {
        match self.by_id.get_mut(&id) {
            Some(ArenaEntry { state: Access::Complete { readers }, reads, .. }) if *readers > 0 => {
                *readers -= 1;
                reads.retain(|fence| !fence.is_done());
                reads.extend(fences);
            }
            other => debug_assert!(false, "end of a read that never began: {id:?} {other:?}"),
        }
    }

    pub(super) fn forget(&mut self, id: CheckpointId) -> Result<(), Misuse> {
        match self.by_id.get(&id).ok_or(Misuse::Unknown)?.state {
            Access::Writing => Err(Misuse::StillWritten),
            Access::Complete { readers: 0 } => {
                self.remove(id);
                Ok(())
            }
            Access::Complete { readers } => Err(Misuse::StillRead { readers }),
        }
    }

    /// Removes every entry and has no room from now on. Refused while an entry is borrowed, whose
    /// id is then given.
    pub(super) fn retire(&mut self) -> Result<(), (CheckpointId, Misuse)> {
        for (&id, entry) in &self.by_id {
            match entry.state {
                Access::Writing => return Err((id, Misuse::StillWritten)),
                Access::Complete { readers: 0 } => {}
                Access::Complete { readers } => return Err((id, Misuse::StillRead { readers })),
            }
        }
        self.remove_all();
        let leaving = std::mem::take(&mut self.leaving);
        *self = ArenaTable { leaving, ..ArenaTable::new(0) };
        Ok(())
    }

    /// Removes every entry, whoever borrows it.
    pub(super) fn remove_all(&mut self) {
        let all: Vec<CheckpointId> = self.by_id.keys().copied().collect();
        all.into_iter().for_each(|id| self.remove(id));
    }

    /// The arrays whose entries have gone, which are the caller's to let go of.
    pub(super) fn take_leaving(&mut self) -> Vec<LeavingArray> {
        std::mem::take(&mut self.leaving)
    }

    /// Keeps arrays that could not be let go of yet.
    pub(super) fn keep_leaving(&mut self, late: Vec<LeavingArray>) {
        self.leaving.extend(late);
    }

    fn remove(&mut self, id: CheckpointId) {
        let Some(entry) = self.by_id.remove(&id) else { return };
        self.used -= entry.len;
        if entry.len > 0 {
            let owner = self.by_offset.remove(&entry.offset);
            debug_assert_eq!(owner, Some(id));
        }
        let (offset, end) = (entry.offset, entry.offset + entry.len);
        let fences = entry.written.into_iter().chain(entry.reads);
        let fences: Vec<Fence> = fences.filter(|fence| !fence.is_done()).collect();
        if let Some(given) = entry.given {
            self.leaving.push(given.leaving(fences).stuck(entry.stuck));
            return;
        }
        self.leave_pending(offset, end, fences, entry.stuck);
    }

    /// Every complete entry, by id.
    pub(super) fn list(&self) -> Vec<Stored> {
        let complete = |entry: &ArenaEntry| entry.state != Access::Writing;
        let mut stored: Vec<Stored> = self
            .by_id
            .iter()
            .filter(|(_, entry)| complete(entry))
            .map(|(&id, entry)| Stored { id, bytes: entry.len })
            .collect();
        stored.sort_unstable();
        stored
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
