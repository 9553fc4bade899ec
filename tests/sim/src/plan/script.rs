//! What the application does, step by step.

use std::fmt;

use unspool_core::{Nanos, TierId, Version};

/// The application between two crashes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Life {
    /// One script for each thread; they run at the same time.
    pub threads: Vec<Script>,
    /// The machine crashes when the core has taken this many events in this life; `None` lets the
    /// application come to its end.
    pub crash_after: Option<u64>,
}

/// The steps of one thread.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Script {
    /// One after the other.
    pub steps: Vec<Step>,
}

/// How a call is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Care {
    /// The call is withdrawn when it has waited this long.
    pub give_up: Option<Nanos>,
    /// The copy fails half-way: the save or restore is given up after it was granted.
    pub abort: bool,
    /// How many steps follow before the bytes are copied: the ticket stays open meanwhile.
    pub keep: u8,
}

/// One thing that a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Something else for so long.
    Compute(Nanos),
    /// Saves so many bytes.
    Save {
        /// The name of the checkpoint.
        version: Version,
        /// Its payload.
        bytes: u64,
        /// How.
        care: Care,
    },
    /// Reads a checkpoint and looks at every byte.
    Restore {
        /// The name of the checkpoint.
        version: Version,
        /// How.
        care: Care,
    },
    /// Brings everything to the slowest tier, and then to the medium.
    Flush(Care),
    /// Adds a hint.
    Expect(Version),
    /// Adds a hint that says that the version is discarded then.
    ExpectLast(Version),
    /// Says in which tier a checkpoint should rest.
    Prefer(Version, TierId),
    /// Drops all hints.
    ForgetHints,
    /// Allows prefetching.
    StartPrefetch,
    /// Holds prefetching back.
    HoldPrefetch,
    /// Drops a checkpoint.
    Discard(Version),
}

impl Step {
    /// A save without any mishap.
    #[must_use]
    pub fn save(version: i64, bytes: u64) -> Step {
        Step::Save { version: Version(version), bytes, care: Care::default() }
    }

    /// A restore without any mishap.
    #[must_use]
    pub fn restore(version: i64) -> Step {
        Step::Restore { version: Version(version), care: Care::default() }
    }

    /// The mishaps of a call, when the step is one.
    pub fn care_mut(&mut self) -> Option<&mut Care> {
        match self {
            Step::Save { care, .. } | Step::Restore { care, .. } | Step::Flush(care) => Some(care),
            _ => None,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Compute(span) => write!(f, "compute {} ns", span.0),
            Step::Save { version, bytes, care } => {
                write!(f, "save {} of {bytes} bytes{care}", version.0)
            }
            Step::Restore { version, care } => write!(f, "restore {}{care}", version.0),
            Step::Flush(care) => write!(f, "flush{care}"),
            Step::Expect(version) => write!(f, "expect {}", version.0),
            Step::ExpectLast(version) => write!(f, "expect {} for the last time", version.0),
            Step::Prefer(version, tier) => write!(f, "prefer tier {} for {}", tier.0, version.0),
            Step::ForgetHints => f.write_str("forget hints"),
            Step::StartPrefetch => f.write_str("start prefetch"),
            Step::HoldPrefetch => f.write_str("hold prefetch"),
            Step::Discard(version) => write!(f, "discard {}", version.0),
        }
    }
}

impl fmt::Display for Care {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(span) = self.give_up {
            write!(f, ", given up after {} ns", span.0)?;
        }
        if self.abort {
            f.write_str(", aborted")?;
        }
        if self.keep > 0 {
            write!(f, ", kept open for {} steps", self.keep)?;
        }
        Ok(())
    }
}
