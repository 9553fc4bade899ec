//! The violations that a check finds, with texts that say what to do about them.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use super::{Agent, Space};

/// An operation that breaks the order of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The number of the operation among all that were seen, from 0.
    pub op: u64,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What can be wrong with an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Two accesses to the same bytes, one of them a write, without an order between them.
    Unordered(Box<Race>),
    /// A wait for a recording that does not exist: the device would not wait at all.
    UnknownEvent {
        /// The agent that waits.
        by: Agent,
        /// The number of the recording.
        event: u64,
    },
    /// A second recording under the number of an earlier one.
    RecordedTwice {
        /// The agent of the second recording.
        on: Agent,
        /// The number of both.
        event: u64,
    },
    /// A range of bytes that ends before it begins.
    Backwards {
        /// The first byte.
        first: u64,
        /// One past the last byte.
        end: u64,
    },
}

/// Two accesses that are not ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Race {
    /// The access that the later one depends on.
    pub earlier: Touch,
    /// The access that does not wait for the earlier one.
    pub later: Touch,
    /// The memory that they share.
    pub space: Space,
    /// The first byte that they share.
    pub first: u64,
    /// One past the last byte that they share.
    pub end: u64,
    /// Whether the later agent has waited for something that the earlier one did before.
    pub too_early: bool,
}

/// One of two accesses that are not ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touch {
    /// The number of the access among all operations, from 0.
    pub op: u64,
    /// The agent that did it.
    pub by: Agent,
    /// Whether it wrote; else it read.
    pub write: bool,
    /// What it was for.
    pub what: String,
}

impl fmt::Display for Touch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.write { "writes" } else { "reads" };
        write!(f, "{:?} (operation {}, {} {verb})", self.what, self.op, self.by)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            Fault::Unordered(race) => race.fmt(f),
            Fault::UnknownEvent { by, event } => write!(
                f,
                "operation {}: {by} waits for event {event}, which was never recorded (or is \
                 forgotten): it would not wait at all; record the event first, and keep it until \
                 every wait for it is enqueued",
                self.op
            ),
            Fault::RecordedTwice { on, event } => write!(
                f,
                "operation {}: event {event} is recorded on {on} and was recorded before; number \
                 every recording anew",
                self.op
            ),
            Fault::Backwards { first, end } => write!(
                f,
                "operation {}: bytes {first:#x}..{end:#x} end before they begin; report the first \
                 byte and the one past the last",
                self.op
            ),
        }
    }
}

impl core::error::Error for Violation {}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Race { earlier, later, space, first, end, too_early } = self;
        let bytes = end - first;
        write!(f, "{later} is not ordered after {earlier}: both touch {bytes} bytes of {space}, ")?;
        write!(f, "{first:#x}..{end:#x}; ")?;
        if *too_early {
            let from = earlier.by;
            write!(f, "{} has waited for {from}, but for an event of before that; ", later.by)?;
        }
        write!(f, "record an event on {} after operation {} ", earlier.by, earlier.op)?;
        write!(f, "and let {} wait for it before operation {}", later.by, later.op)
    }
}
