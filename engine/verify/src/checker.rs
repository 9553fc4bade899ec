//! The checker: takes the operations of a run one after the other.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::ToString;
use alloc::sync::Arc;

use super::bytes::{Conflict, LastAccesses, Past, Range};
use super::clock::{Clock, ClockSlot, Clocks};
use super::numbers::NumberSet;
use super::{Agent, Fault, Op, Race, Space, Touch, Violation};

/// The least number of operations between two compactions. There are more when much is kept, so
/// that each operation costs a constant share of a compaction.
const LEAST_BETWEEN: u64 = 1 << 12;

/// Takes the operations of a run and reports those that are not ordered with what they depend on.
///
/// Order comes from communication alone: a stream does its operations one after the other, an
/// operation begins after what the host knew when it enqueued it, and a wait adds what was known
/// when the event was recorded. An access that was over in time by luck alone is not ordered.
///
/// A read must be ordered after the last write of every byte it touches, a write also after all
/// reads since. Bytes without an access since the beginning of the check are ordered with
/// everything; a wait for an event of before the beginning is a violation.
///
/// An operation takes O(log n + r) with n ranges kept and r ranges touched. Only what the host does
/// not know yet is kept, so memory is bounded by the unfinished work.
#[derive(Clone, Debug)]
pub struct Checker {
    clocks: Clocks,
    bytes: LastAccesses,
    /// The clock that a wait for an event adds.
    events: BTreeMap<u64, Clock>,
    /// Recordings of which the host knows everything, so that a wait for them adds nothing.
    known_to_host: NumberSet,
    arenas: BTreeMap<(Space, u64), u64>,
    names: BTreeSet<Arc<str>>,
    counted: Counted,
    next_compaction: u64,
    least_between: u64,
}

/// The counters of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// Operations of every kind.
    pub ops: u64,
    /// Recordings of events.
    pub records: u64,
    /// Waits for events.
    pub waits: u64,
    /// Accesses that were checked.
    pub accesses: u64,
    /// Bytes of the accesses that were checked, counted at each access.
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
    /// A checker that has seen no operation.
    #[must_use]
    pub fn new() -> Checker {
        Checker {
            clocks: Clocks::new(),
            bytes: LastAccesses::default(),
            events: BTreeMap::new(),
            known_to_host: NumberSet::default(),
            arenas: BTreeMap::new(),
            names: BTreeSet::new(),
            counted: Counted::default(),
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

    /// The counters so far.
    #[must_use]
    pub fn counted(&self) -> Counted {
        self.counted
    }

    /// The number of ranges of bytes, events and agents that are kept, for tests of their bound.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.bytes.len() + self.events.len() + self.known_to_host.len() + self.clocks.len()
    }

    /// Takes the next operation.
    ///
    /// # Errors
    /// When the operation is not ordered with one that it depends on, or makes no sense. It counts
    /// as done all the same, so that the check can go on.
    pub fn see(&mut self, op: &Op) -> Result<(), Violation> {
        self.see_named(op)
    }

    /// Takes the next operation, whose name may be borrowed or owned.
    ///
    /// # Errors
    /// As [`Checker::see`].
    pub fn see_named<What: AsRef<str>>(&mut self, op: &Op<What>) -> Result<(), Violation> {
        let number = self.counted.ops;
        self.counted.ops += 1;
        let seen = match op {
            Op::Record { event, on } => self.record(*event, *on),
            Op::Wait { by, event } => self.wait(*by, *event),
            Op::WaitAll => {
                self.counted.waits += 1;
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
        if self.counted.ops >= self.next_compaction {
            self.compact();
        }
        seen.map_err(|fault| Violation { op: number, fault })
    }

    fn record(&mut self, event: u64, on: Agent) -> Result<(), Fault> {
        self.counted.records += 1;
        let slot = self.clocks.begin(on);
        let clock = self.clocks.snapshot(slot);
        let known_to_host = self.known_to_host.remove(event);
        let before = self.events.insert(event, clock);
        if known_to_host || before.is_some() {
            return Err(Fault::RecordedTwice { on, event });
        }
        Ok(())
    }

    fn wait(&mut self, by: Agent, event: u64) -> Result<(), Fault> {
        self.counted.waits += 1;
        let slot = self.clocks.begin(by);
        match self.events.get(&event) {
            Some(clock) => self.clocks.wait(slot, clock),
            None if self.known_to_host.contains(event) => {}
            None => return Err(Fault::UnknownEvent { by, event }),
        }
        Ok(())
    }

    fn forget(&mut self, event: u64) {
        self.events.remove(&event);
        self.known_to_host.remove(event);
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
            self.counted.foreign += u64::from(first < end);
            return Ok(());
        }
        self.counted.accesses += 1;
        self.counted.bytes = self.counted.bytes.saturating_add(end - first);
        let slot = self.clocks.begin(by);
        let op = self.counted.ops - 1;
        let past = Past { op, stamp: self.clocks.stamp(slot), what: self.name(what) };
        let clock = self.clocks.clock(slot);
        let Some(conflict) = self.bytes.access(range, write, past, clock) else { return Ok(()) };
        let later = Touch { op, by, write, what: what.to_string() };
        Err(self.unordered(slot, conflict, later, space))
    }

    fn unordered(&self, slot: ClockSlot, conflict: Conflict, later: Touch, space: Space) -> Fault {
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

    /// Drops what cannot matter any more: every later operation knows what the host knows now.
    fn compact(&mut self) {
        let clocks = &self.clocks;
        let known_to_host = &mut self.known_to_host;
        self.events.retain(|event, clock| {
            let known = clocks.host_covers(clock);
            if known {
                known_to_host.insert(*event);
            }
            !known
        });
        self.bytes.compact(clocks);
        self.clocks.compact();
        self.names.retain(|name| Arc::strong_count(name) > 1);
        let kept = (self.kept() + self.names.len()) as u64;
        self.next_compaction = self.counted.ops + self.least_between.max(2 * kept);
    }
}
