//! The check itself: one operation after the other.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::ToString;
use alloc::sync::Arc;

use super::bytes::{Bytes, Conflict, Past, Range};
use super::clock::{Clock, Clocks, Slot};
use super::numbers::Numbers;
use super::{Agent, Fault, Op, Race, Space, Touch, Violation};

/// Operations between two compactions, at least; more when much is kept, so that each operation
/// pays for a constant share of one.
const LEAST_BETWEEN: u64 = 1 << 12;

/// Sees the operations of a run and says which are not ordered with what they depend on.
///
/// Order comes from communication alone: a stream does its operations one after the other, what it
/// is given begins after what the host knew when it gave it, and a wait adds what was known when
/// the event was recorded. That an access was over in time by luck excuses nothing.
///
/// A read must be ordered after the last write of every byte it touches, a write also after all
/// reads since. The check begins where memory does: bytes that nobody has touched since the
/// beginning are ordered with everything, and a wait for an event of before the beginning is a
/// violation.
///
/// An operation takes O(log n + r) with n ranges kept and r ranges touched. Kept is only what the
/// host does not know yet, so memory is bounded by what is unfinished.
#[derive(Clone, Debug)]
pub struct Checker {
    clocks: Clocks,
    bytes: Bytes,
    /// What is known to whoever waits for an event.
    events: BTreeMap<u64, Clock>,
    /// Recordings of which the host knows everything: to wait for them adds nothing.
    settled: Numbers,
    arenas: BTreeMap<(Space, u64), u64>,
    names: BTreeSet<Arc<str>>,
    figures: Figures,
    next_compaction: u64,
    least_between: u64,
}

/// What a check has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Operations of every kind.
    pub ops: u64,
    /// Recordings of events.
    pub records: u64,
    /// Waits for events.
    pub waits: u64,
    /// Accesses that were checked.
    pub accesses: u64,
    /// Bytes of these accesses, the same bytes counted each time.
    pub bytes: u64,
    /// Accesses to memory outside all arenas, which were not checked.
    pub foreign: u64,
}

impl Default for Checker {
    fn default() -> Checker {
        Checker::new()
    }
}

impl Checker {
    /// Nothing has happened.
    #[must_use]
    pub fn new() -> Checker {
        Checker {
            clocks: Clocks::new(),
            bytes: Bytes::default(),
            events: BTreeMap::new(),
            settled: Numbers::default(),
            arenas: BTreeMap::new(),
            names: BTreeSet::new(),
            figures: Figures::default(),
            next_compaction: LEAST_BETWEEN,
            least_between: LEAST_BETWEEN,
        }
    }

    /// Compacts all the time, to test that compaction changes no answer.
    #[cfg(test)]
    pub(super) fn compacting(least_between: u64) -> Checker {
        Checker { next_compaction: 1, least_between, ..Checker::new() }
    }

    #[cfg(test)]
    pub(super) fn assert_invariants(&self) {
        self.bytes.assert_invariants();
        self.clocks.assert_invariants();
    }

    /// What was seen so far.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.figures
    }

    /// How many things are kept: ranges of bytes, events and agents. For tests of the bound.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.bytes.len() + self.events.len() + self.settled.len() + self.clocks.len()
    }

    /// Sees the next operation.
    ///
    /// # Errors
    /// When the operation is not ordered with one that it depends on, or makes no sense. It counts
    /// as done all the same, so that the check can go on.
    pub fn see(&mut self, op: &Op) -> Result<(), Violation> {
        self.see_named(op)
    }

    /// Sees the next operation, whoever owns the name of an access.
    ///
    /// # Errors
    /// As [`Checker::see`].
    pub fn see_named<What: AsRef<str>>(&mut self, op: &Op<What>) -> Result<(), Violation> {
        let number = self.figures.ops;
        self.figures.ops += 1;
        let seen = match op {
            Op::Record { event, on } => self.record(*event, *on),
            Op::Wait { by, event } => self.wait(*by, *event),
            Op::WaitAll => {
                self.figures.waits += 1;
                self.clocks.wait_all();
                Ok(())
            }
            Op::Forget { event } => {
                self.forget(*event);
                Ok(())
            }
            Op::Arena { space, first, end } => self.arena(*space, *first, *end),
            Op::Access { by, space, first, end, write, what } => {
                let range = Range { space: *space, first: *first, end: *end };
                self.access(*by, range, *write, what.as_ref())
            }
        };
        if self.figures.ops >= self.next_compaction {
            self.compact();
        }
        seen.map_err(|fault| Violation { op: number, fault })
    }

    fn record(&mut self, event: u64, on: Agent) -> Result<(), Fault> {
        self.figures.records += 1;
        let slot = self.clocks.begin(on);
        let clock = self.clocks.snapshot(slot);
        let settled = self.settled.remove(event);
        let before = self.events.insert(event, clock);
        if settled || before.is_some() {
            return Err(Fault::RecordedTwice { on, event });
        }
        Ok(())
    }

    fn wait(&mut self, by: Agent, event: u64) -> Result<(), Fault> {
        self.figures.waits += 1;
        let slot = self.clocks.begin(by);
        match self.events.get(&event) {
            Some(clock) => self.clocks.wait(slot, clock),
            None if self.settled.contains(event) => {}
            None => return Err(Fault::UnknownEvent { by, event }),
        }
        Ok(())
    }

    fn forget(&mut self, event: u64) {
        self.events.remove(&event);
        self.settled.remove(event);
    }

    fn arena(&mut self, space: Space, first: u64, end: u64) -> Result<(), Fault> {
        if first > end {
            return Err(Fault::Backwards { first, end });
        }
        let known = self.arenas.entry((space, first)).or_insert(end);
        *known = end.max(*known);
        Ok(())
    }

    /// Whether an access to `range` is checked: it meets an arena, or no arena was named.
    fn is_guarded(&self, range: Range) -> bool {
        let mut before = self.arenas.range((range.space, 0)..(range.space, range.end));
        self.arenas.is_empty() || before.any(|(_, end)| *end > range.first)
    }

    fn access(&mut self, by: Agent, range: Range, write: bool, what: &str) -> Result<(), Fault> {
        let Range { space, first, end } = range;
        if first > end {
            return Err(Fault::Backwards { first, end });
        }
        if first == end || !self.is_guarded(range) {
            self.figures.foreign += u64::from(first < end);
            return Ok(());
        }
        self.figures.accesses += 1;
        self.figures.bytes = self.figures.bytes.saturating_add(end - first);
        let slot = self.clocks.begin(by);
        let op = self.figures.ops - 1;
        let past = Past { op, stamp: self.clocks.stamp(slot), what: self.name(what) };
        let clock = self.clocks.clock(slot);
        let Some(conflict) = self.bytes.access(range, write, past, clock) else { return Ok(()) };
        let later = Touch { op, by, write, what: what.to_string() };
        Err(self.unordered(slot, conflict, later, space))
    }

    fn unordered(&self, slot: Slot, conflict: Conflict, later: Touch, space: Space) -> Fault {
        let Conflict { earlier: Past { op, stamp, what }, write, first, end } = conflict;
        let by = self.clocks.agent(stamp.slot);
        let earlier = Touch { op, by, write, what: what.to_string() };
        let too_early = self.clocks.has_heard_of(slot, stamp.slot);
        Fault::Unordered(Box::new(Race { earlier, later, space, first, end, too_early }))
    }

    /// One copy of each name, shared by all accesses that have it.
    fn name(&mut self, what: &str) -> Arc<str> {
        if let Some(name) = self.names.get(what) {
            return Arc::clone(name);
        }
        let name: Arc<str> = Arc::from(what);
        self.names.insert(Arc::clone(&name));
        name
    }

    /// Drops what cannot matter any more: what the host knows, everybody knows before whatever he
    /// does next.
    fn compact(&mut self) {
        let clocks = &self.clocks;
        let settled = &mut self.settled;
        self.events.retain(|event, clock| {
            let known = clocks.host_covers(clock);
            if known {
                settled.insert(*event);
            }
            !known
        });
        self.bytes.compact(clocks);
        self.clocks.compact();
        self.names.retain(|name| Arc::strong_count(name) > 1);
        let kept = (self.kept() + self.names.len()) as u64;
        self.next_compaction = self.figures.ops + self.least_between.max(2 * kept);
    }
}
