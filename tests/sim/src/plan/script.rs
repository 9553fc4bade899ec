//! Scripts of the application.

use std::fmt;

use unspool_core::{Nanos, TierId, Version};

/// The application between two crashes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Life {
    /// One script for each thread; threads run concurrently.
    pub threads: Vec<Script>,
    /// The machine crashes when the core has received this many events in this life; with `None`
    /// the application runs to its end.
    pub crash_after: Option<u64>,
}

/// The steps of one thread.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Script {
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// How a call is made, and how it goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Care {
    /// Withdraws the call after waiting this long.
    pub give_up: Option<Nanos>,
    /// Aborts the save or restore after it was granted, half-way through the copy.
    pub abort: bool,
    /// Number of steps between the grant and the copy; the ticket stays open meanwhile.
    pub keep: u8,
}

/// A step of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Computes for this time.
    Compute(Nanos),
    /// Saves a checkpoint.
    Save {
        /// Version of the checkpoint.
        version: Version,
        /// Size of its payload.
        bytes: u64,
        /// How the call is made.
        care: Care,
    },
    /// Restores a checkpoint and compares every byte.
    Restore {
        /// Version of the checkpoint.
        version: Version,
        /// How the call is made.
        care: Care,
    },
    /// Flushes everything to the slowest tier, then syncs it to the medium.
    Flush(Care),
    /// Adds a hint.
    Expect(Version),
    /// Adds a hint after which the version may be discarded.
    ExpectLast(Version),
    /// Sets the tier in which a checkpoint should rest.
    Prefer(Version, TierId),
    /// Drops all hints.
    ForgetHints,
    /// Allows prefetching.
    StartPrefetch,
    /// Stops prefetching.
    HoldPrefetch,
    /// Discards a checkpoint.
    Discard(Version),
}

impl Step {
    /// A save that goes right.
    #[must_use]
    pub fn save(version: i64, bytes: u64) -> Step {
        Step::Save { version: Version(version), bytes, care: Care::default() }
    }

    /// A restore that goes right.
    #[must_use]
    pub fn restore(version: i64) -> Step {
        Step::Restore { version: Version(version), care: Care::default() }
    }

    /// How the call is made, when the step is a call.
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
