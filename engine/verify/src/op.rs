//! The operations that a run reports: records, waits, and accesses to bytes.

use core::fmt;

/// The host or a stream, which does operations one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Agent {
    /// The process itself: all its threads together.
    Host,
    /// A stream, by a number that no other stream has at the same time.
    Stream(u64),
}

/// Which memory an address belongs to. Addresses are those of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// Memory of the device with this ordinal.
    Device(u32),
    /// Memory of the host, pinned or not.
    Host,
}

/// One operation of a run, reported when the host enqueued it (or did it).
///
/// `What` is the text that names an access; it borrows when an operation was read from a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op<What = &'static str> {
    /// An event was recorded: it is done when all that `on` has been given so far is done.
    Record {
        /// A number that is new for each recording.
        event: u64,
        /// The agent whose past the event stands for.
        on: Agent,
    },
    /// `by` goes on only when the event is done. A query that answers "done" is such a wait.
    Wait {
        /// The agent that waits.
        by: Agent,
        /// The number of a recording.
        event: u64,
    },
    /// The host waits for all work that was enqueued on any stream.
    WaitAll,
    /// There will be no further wait for this recording (its event may be recorded anew). Optional:
    /// it only keeps the memory of a check small.
    Forget {
        /// The number of a recording.
        event: u64,
    },
    /// The bytes belong to an arena. When a run names arenas, only accesses to them are checked:
    /// other memory belongs to the user, who orders accesses in ways that are not reported.
    Arena {
        /// The memory that it is in.
        space: Space,
        /// Its first byte.
        first: u64,
        /// One past its last byte.
        end: u64,
    },
    /// Bytes are read or written.
    Access {
        /// The agent that does it.
        by: Agent,
        /// The memory that the bytes are in.
        space: Space,
        /// The first byte.
        first: u64,
        /// One past the last byte.
        end: u64,
        /// Whether the bytes are written; else they are read.
        write: bool,
        /// What the access is for, in words of the code that does it.
        what: What,
    },
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("the host"),
            Self::Stream(number) => write!(f, "stream {number:#x}"),
        }
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(ordinal) => write!(f, "device {ordinal}"),
            Self::Host => f.write_str("host memory"),
        }
    }
}
