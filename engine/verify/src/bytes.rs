//! The last accesses to all bytes: a map of disjoint ranges, each with its last write and the reads
//! since.
//!
//! Only accesses that a later one may still be unordered with are kept. A write that is ordered
//! takes the place of everything before it, a read takes the place of reads that it is ordered
//! after, and accesses that every agent knows are dropped.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Space;
use super::clock::{Clock, Clocks, Stamp};

/// An access in the past.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Past {
    /// The number of the operation. The first field, since it distinguishes most accesses.
    pub op: u64,
    pub stamp: Stamp,
    pub what: Arc<str>,
}

/// A range of bytes in one space; not empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub space: Space,
    pub first: u64,
    pub end: u64,
}

/// An earlier access that the new one is not ordered after.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Conflict {
    pub earlier: Past,
    pub write: bool,
    /// The bytes that both touch.
    pub first: u64,
    pub end: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Pasts {
    write: Option<Past>,
    reads: Vec<Past>,
}

impl Pasts {
    /// The access that a new one with this `clock` is not ordered after, and whether it was a
    /// write.
    fn unordered(&self, write: bool, clock: &Clock) -> Option<(&Past, bool)> {
        let writes = self.write.iter().map(|past| (past, true));
        let reads = self.reads.iter().filter(|_| write).map(|past| (past, false));
        writes.chain(reads).find(|(past, _)| !clock.knows(past.stamp))
    }

    fn add_read(&mut self, read: Past, clock: &Clock) {
        self.reads.retain(|past| !clock.knows(past.stamp));
        self.reads.push(read);
    }

    fn drop_known(&mut self, clock: &Clock) {
        self.write.take_if(|past| clock.knows(past.stamp));
        self.reads.retain(|past| !clock.knows(past.stamp));
    }

    fn is_empty(&self) -> bool {
        self.write.is_none() && self.reads.is_empty()
    }
}

#[derive(Clone, Debug)]
struct AccessRange {
    first: u64,
    end: u64,
    pasts: Pasts,
}

/// The last accesses to all bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct LastAccesses {
    pieces: BTreeMap<(Space, u64), (u64, Pasts)>,
}

impl LastAccesses {
    /// How many ranges are kept.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Enters an access by an agent whose clock is `clock`; gives the access that it should be
    /// ordered after and is not.
    pub fn access(
        &mut self,
        range: Range,
        write: bool,
        past: Past,
        clock: &Clock,
    ) -> Option<Conflict> {
        if let Some(known) = self.exactly(range) {
            let conflict = known.unordered(write, clock).map(|(earlier, write)| Conflict {
                earlier: earlier.clone(),
                write,
                first: range.first,
                end: range.end,
            });
            enter(known, write, past, clock);
            return conflict;
        }
        let pieces = self.cut_out(range);
        let conflict = find_conflict(&pieces, write, clock);
        if write {
            let pasts = Pasts { write: Some(past), reads: Vec::new() };
            self.put(range.space, AccessRange { first: range.first, end: range.end, pasts });
        } else {
            self.put_read(range, pieces, past, clock);
        }
        conflict
    }

    /// The accesses to a range that is one piece, as most are, since accesses repeat ranges.
    fn exactly(&mut self, range: Range) -> Option<&mut Pasts> {
        let (end, pasts) = self.pieces.get_mut(&(range.space, range.first))?;
        (*end == range.end).then_some(pasts)
    }

    fn put(&mut self, space: Space, piece: AccessRange) {
        debug_assert!(piece.first < piece.end, "a piece has bytes");
        self.pieces.insert((space, piece.first), (piece.end, piece.pasts));
    }

    /// Takes the pieces of `range` out, in ascending order; their parts outside stay.
    fn cut_out(&mut self, range: Range) -> Vec<AccessRange> {
        let Range { space, first, end } = range;
        let before = self.pieces.range((space, 0)..(space, first)).next_back();
        let reaching = before.filter(|(_, (reach, _))| *reach > first).map(|(key, _)| *key);
        let inside = self.pieces.range((space, first)..(space, end)).map(|(key, _)| *key);
        let keys: Vec<_> = reaching.into_iter().chain(inside).collect();
        keys.into_iter().filter_map(|key| self.trim(key, first, end)).collect()
    }

    /// Takes a piece out, leaves what is outside of `first..end`, and gives what is inside.
    fn trim(&mut self, key: (Space, u64), first: u64, end: u64) -> Option<AccessRange> {
        let (space, start) = key;
        let (reach, pasts) = self.pieces.remove(&key)?;
        if start < first {
            self.put(space, AccessRange { first: start, end: first, pasts: pasts.clone() });
        }
        if reach > end {
            self.put(space, AccessRange { first: end, end: reach, pasts: pasts.clone() });
        }
        Some(AccessRange { first: start.max(first), end: reach.min(end), pasts })
    }

    /// Puts pieces back after a read of `range`, with the gaps between them; neighbours that have
    /// become alike are joined.
    fn put_read(&mut self, range: Range, pieces: Vec<AccessRange>, read: Past, clock: &Clock) {
        let mut open: Option<AccessRange> = None;
        let mut at = range.first;
        let last = AccessRange { first: range.end, end: range.end, pasts: Pasts::default() };
        for piece in pieces.into_iter().chain([last]) {
            let gap = AccessRange { first: at, end: piece.first, pasts: Pasts::default() };
            at = piece.end;
            for mut part in [gap, piece].into_iter().filter(|part| part.first < part.end) {
                part.pasts.add_read(read.clone(), clock);
                open = self.extend(range.space, open, part);
            }
        }
        open.into_iter().for_each(|piece| self.put(range.space, piece));
    }

    /// `open` lengthened by `next`, or `next` once `open` is put away.
    fn extend(
        &mut self,
        space: Space,
        open: Option<AccessRange>,
        next: AccessRange,
    ) -> Option<AccessRange> {
        match open {
            Some(open) if open.pasts == next.pasts => Some(AccessRange { end: next.end, ..open }),
            open => {
                open.into_iter().for_each(|piece| self.put(space, piece));
                Some(next)
            }
        }
    }

    /// Panics when a piece is empty, overlaps another, or has no access.
    #[cfg(test)]
    pub fn assert_invariants(&self) {
        let pieces: Vec<_> = self.pieces.iter().collect();
        for ((_, first), (end, pasts)) in &pieces {
            assert!(first < end && !pasts.is_empty());
        }
        for pair in pieces.windows(2) {
            let [((one, _), (end, _)), ((other, first), _)] = pair else { unreachable!() };
            assert!(one != other || end <= first, "two pieces share a byte");
        }
    }

    /// Drops every access that the host knows, since every later operation knows it as well.
    pub fn compact(&mut self, clocks: &Clocks) {
        let host = clocks.clock(super::clock::HOST);
        self.pieces.retain(|_, (_, pasts)| {
            pasts.drop_known(host);
            !pasts.is_empty()
        });
    }
}

fn enter(pasts: &mut Pasts, write: bool, past: Past, clock: &Clock) {
    if write {
        pasts.write = Some(past);
        pasts.reads.clear();
    } else {
        pasts.add_read(past, clock);
    }
}

/// The first access that the new one is not ordered after, with all the bytes that both touch.
fn find_conflict(pieces: &[AccessRange], write: bool, clock: &Clock) -> Option<Conflict> {
    let mut found: Option<Conflict> = None;
    for piece in pieces {
        let Some((earlier, wrote)) = piece.pasts.unordered(write, clock) else { continue };
        let (first, end) = (piece.first, piece.end);
        match &mut found {
            None => {
                let earlier = earlier.clone();
                found = Some(Conflict { earlier, write: wrote, first, end });
            }
            Some(conflict) if conflict.earlier == *earlier => conflict.end = end,
            Some(_) => {}
        }
    }
    found
}
