//! A ring of device memory in which values wait until they are encoded: pieces are taken one after
//! the other and come back in any order, each with the work that has to be done before its bytes
//! are written again. A stream that takes a piece waits for that; the host never waits.

use std::collections::VecDeque;
use std::sync::Arc;

use unspool_cuda::{DeviceError, DeviceMemory, DeviceSpan, Fence, Stream};
use unspool_transfer::sync::{Mutex, lock};

use crate::gpu::Gpu;

/// Pieces begin at multiples of this: more than any encoder asks of an array.
const UNIT: u64 = 256;

/// See the module. Clones name the same one.
#[derive(Clone, Debug)]
pub(crate) struct Ring(Arc<RingInner>);

#[derive(Debug)]
struct RingInner {
    memory: DeviceMemory,
    table: Mutex<RingTable<Fence>>,
}

/// A piece of a ring. Dropped, it comes back after the work that it was last given a fence of.
#[derive(Debug)]
pub(crate) struct RingLease {
    ring: Ring,
    number: u64,
    span: DeviceSpan,
    /// The fences that the next owner comes after; `None` while they are not known.
    after: Option<Vec<Fence>>,
}

impl Ring {
    /// # Errors
    /// When the memory is not there.
    pub(crate) fn new(gpu: &Gpu, bytes: u64) -> Result<Ring, DeviceError> {
        let memory = DeviceMemory::new(gpu.context(), bytes)?;
        let table = Mutex::new(RingTable::new(bytes));
        Ok(Ring(Arc::new(RingInner { memory, table })))
    }

    /// What a piece of `bytes` bytes takes of it.
    pub(crate) fn size_of(bytes: u64) -> u64 {
        bytes.max(1).next_multiple_of(UNIT)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.memory.span().len()
    }

    /// Whether no piece is in use, and a piece that is never used again is in the way.
    pub(crate) fn is_stuck(&self) -> bool {
        lock(&self.0.table).is_stuck()
    }

    /// A piece of `bytes` bytes for work on `stream` from now on; `None` while those in its place
    /// are in use.
    ///
    /// # Errors
    /// When CUDA refuses.
    pub(crate) fn take(
        &self,
        bytes: u64,
        stream: &Stream,
    ) -> Result<Option<RingLease>, DeviceError> {
        // The guard ends with the statement: no call of the driver is made under the lock.
        let taken = lock(&self.0.table).take(bytes);
        let Some(Taken { number, begin, after }) = taken else { return Ok(None) };
        let span = self.0.memory.span().slice(begin, bytes)?;
        let after: Vec<Fence> = after.into_iter().filter(|fence| !fence.is_done()).collect();
        let lease = RingLease { ring: self.clone(), number, span, after: Some(after) };
        let mut waits = lease.after.iter().flatten();
        waits.try_for_each(|fence| stream.wait_for(fence))?;
        Ok(Some(lease))
    }
}

impl RingLease {
    pub(crate) fn span(&self) -> DeviceSpan {
        self.span.clone()
    }

    /// Work on it is about to be enqueued: until [`done`](Self::done) gives its end, nobody
    /// else gets the bytes.
    pub(crate) fn begin(&mut self) {
        self.after = None;
    }

    /// All work on it so far is done with `fence`.
    pub(crate) fn done(&mut self, fence: Fence) {
        self.after = Some(vec![fence]);
    }
}

impl Drop for RingLease {
    fn drop(&mut self) {
        lock(&self.ring.0.table).give_back(self.number, self.after.take());
    }
}

/// Which bytes of a ring are whose. `M` fences the end of some work.
#[derive(Debug)]
struct RingTable<M> {
    len: u64,
    /// Where the next piece begins.
    head: u64,
    next: u64,
    /// From the oldest on, one after the other around the ring up to `head`.
    pieces: VecDeque<RingPiece<M>>,
}

#[derive(Debug)]
struct RingPiece<M> {
    number: u64,
    begin: u64,
    end: u64,
    state: PieceState<M>,
}

#[derive(Debug)]
enum PieceState<M> {
    /// Given back -> `Free`, or `Stuck`.
    Lent,
    /// Free after this work. Taken by others -> gone.
    Free(Vec<M>),
    /// When work on it is done is not known: never used again.
    Stuck,
}

/// What was taken.
#[derive(Debug)]
struct Taken<M> {
    number: u64,
    begin: u64,
    after: Vec<M>,
}

impl<M: Clone> RingTable<M> {
    fn new(len: u64) -> RingTable<M> {
        RingTable { len, head: 0, next: 0, pieces: VecDeque::new() }
    }

    fn take(&mut self, bytes: u64) -> Option<Taken<M>> {
        let bytes = bytes.max(1).checked_next_multiple_of(UNIT).filter(|&b| b <= self.len)?;
        let wraps = self.head + bytes > self.len;
        let (begin, skipped) = if wraps { (0, self.head) } else { (self.head, self.len) };
        let end = begin + bytes;
        // The oldest pieces are in the way: those to the end of the ring that is passed over, then
        // those in the place itself.
        let is_passed = |piece: &&RingPiece<M>| wraps && piece.begin >= skipped;
        let passed = self.pieces.iter().take_while(is_passed).count();
        let in_place = |piece: &&RingPiece<M>| piece.begin >= begin && piece.begin < end;
        let reached = self.pieces.iter().skip(passed).take_while(in_place).count();
        let all = passed + reached;
        if !self.pieces.iter().take(all).all(|piece| matches!(piece.state, PieceState::Free(_))) {
            return None;
        }
        let rest = self.fences_of(passed);
        let last_end = self.pieces.get(reached.wrapping_sub(1)).map_or(0, |piece| piece.end);
        let mut after = self.fences_of(reached);
        if wraps && skipped < end {
            after.extend(rest.iter().cloned());
        }
        if wraps && skipped.max(end) < self.len {
            self.push(skipped.max(end), self.len, PieceState::Free(rest));
        }
        if last_end > end {
            // What is left of the last one still comes after the same work.
            self.next += 1;
            let (number, state) = (self.next, PieceState::Free(after.clone()));
            self.pieces.push_front(RingPiece { number, begin: end, end: last_end, state });
        }
        self.head = end;
        Some(Taken { number: self.push(begin, end, PieceState::Lent), begin, after })
    }

    fn is_stuck(&self) -> bool {
        let is_lent = |piece: &RingPiece<M>| matches!(piece.state, PieceState::Lent);
        let is_stuck = |piece: &RingPiece<M>| matches!(piece.state, PieceState::Stuck);
        self.pieces.iter().any(is_stuck) && !self.pieces.iter().any(is_lent)
    }

    /// Takes away the oldest `count` pieces, which are free: the fences that they come after.
    fn fences_of(&mut self, count: usize) -> Vec<M> {
        let free = self.pieces.drain(..count).filter_map(|piece| match piece.state {
            PieceState::Free(fences) => Some(fences),
            PieceState::Lent | PieceState::Stuck => None,
        });
        free.flatten().collect()
    }

    fn push(&mut self, begin: u64, end: u64, state: PieceState<M>) -> u64 {
        self.next += 1;
        self.pieces.push_back(RingPiece { number: self.next, begin, end, state });
        self.next
    }

    fn give_back(&mut self, number: u64, after: Option<Vec<M>>) {
        if let Some(piece) = self.pieces.iter_mut().find(|piece| piece.number == number) {
            piece.state = after.map_or(PieceState::Stuck, PieceState::Free);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn taken(table: &mut RingTable<u64>, bytes: u64) -> (u64, u64, Vec<u64>) {
        let Taken { number, begin, after } = table.take(bytes).unwrap();
        (number, begin, after)
    }

    #[test]
    fn a_piece_comes_behind_the_work_of_those_that_had_its_bytes() {
        let mut table = RingTable::new(4 * UNIT);
        let (first, ..) = taken(&mut table, UNIT);
        let (second, begin, after) = taken(&mut table, 3 * UNIT);
        assert_eq!((begin, after), (UNIT, vec![]));
        assert!(table.take(1).is_none());
        table.give_back(first, Some(vec![7]));
        assert!(table.take(2 * UNIT).is_none(), "the second one is in use");
        let (_, begin, after) = taken(&mut table, 1);
        assert_eq!((begin, after), (0, vec![7]));
        table.give_back(second, Some(vec![8]));
        assert_eq!(taken(&mut table, UNIT).2, [8]);
        assert_eq!(taken(&mut table, 2 * UNIT).2, [8], "the rest of a piece keeps its work");
    }

    #[test]
    fn what_is_larger_than_the_ring_or_stuck_is_never_lent() {
        let mut table = RingTable::<u64>::new(2 * UNIT);
        assert!(table.take(2 * UNIT + 1).is_none() && table.take(u64::MAX).is_none());
        let (first, ..) = taken(&mut table, UNIT);
        let (second, ..) = taken(&mut table, UNIT);
        table.give_back(first, None);
        assert!(table.take(1).is_none() && !table.is_stuck(), "the second one is in use");
        table.give_back(second, Some(Vec::new()));
        assert!(table.take(1).is_none() && table.is_stuck());
    }

    proptest! {
        /// Every byte remembers the work of its last owner, in a map of units.
        #[test]
        fn no_byte_has_two_owners_and_none_forgets_its_work(
            steps in prop::collection::vec((1u64..6, any::<bool>(), 0usize..8), 1..200)
        ) {
            let mut table = RingTable::new(16 * UNIT);
            let mut lent: Vec<(u64, u64, u64)> = Vec::new();
            let mut work: BTreeMap<u64, u64> = BTreeMap::new();
            for (step, (units, take, which)) in (0u64..).zip(steps) {
                if take && let Some(Taken { number, begin, after }) = table.take(units * UNIT) {
                    let mine = begin / UNIT..begin / UNIT + units;
                    prop_assert!(mine.end <= 16);
                    for (_, first, end) in &lent {
                        prop_assert!(mine.end <= *first || *end <= mine.start);
                    }
                    for unit in mine.clone() {
                        prop_assert!(work.get(&unit).is_none_or(|fence| after.contains(fence)));
                    }
                    lent.push((number, mine.start, mine.end));
                } else if !take && !lent.is_empty() {
                    let (number, first, end) = lent.remove(which % lent.len());
                    table.give_back(number, Some(vec![step]));
                    work.extend((first..end).map(|unit| (unit, step)));
                }
            }
            while let Some((number, ..)) = lent.pop() {
                table.give_back(number, Some(Vec::new()));
            }
            prop_assert!(table.take(16 * UNIT).is_some(), "all of it can be had in the end");
        }
    }
}
