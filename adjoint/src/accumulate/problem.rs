//! The input of a plan: the checkpoints, the codec and the machine; and the decisions.

use alloc::vec::Vec;
use core::fmt;

use super::Curve;
use super::timeline::nanos;
use crate::forecast::Rate;
use unspool_core::Nanos;

/// The most bytes and nanoseconds of a whole run: what sums of them stay below.
const MOST: u64 = 1 << 60;

/// What an earlier run has recorded of one checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckpointProfile {
    /// Computing between the end of what was done for the checkpoint before, or the beginning, and
    /// this one.
    pub interval: Nanos,
    /// Bytes of the checkpoint.
    pub raw: u64,
    /// Bytes of the checkpoint when it is compressed alone. Compressed together, checkpoints take
    /// the sum.
    pub packed: u64,
}

/// The room that a codec needs for its output while it runs: the worst case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Worst {
    /// Thousandths of the input: 1000 for as much as the input.
    pub per_mille: u64,
    /// Bytes in addition.
    pub fixed: u64,
}

impl Worst {
    /// The bytes for so many of input.
    #[must_use]
    pub fn of(&self, bytes: u64) -> u64 {
        let scaled = u128::from(bytes) * u128::from(self.per_mille) / 1000;
        u64::try_from(scaled).unwrap_or(u64::MAX).saturating_add(self.fixed)
    }
}

/// A codec.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packer {
    /// Its time by the bytes of its input.
    pub time: Curve,
    /// Room for its output while it runs.
    pub worst: Worst,
    /// It reads the newest checkpoint where the application has it; else that is copied into the
    /// cache first. Checkpoints that are held are in the cache in any case.
    pub in_place: bool,
    /// Its output is copied into room of its own size before it is sent.
    pub compacts: bool,
}

/// Where a run ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum End {
    /// With the end of the last transfer: the application waits for it.
    #[default]
    Flushed,
    /// When the application has finished with its last checkpoint.
    Application,
}

/// Everything that a plan depends on.
#[derive(Clone, PartialEq, Debug)]
pub struct Problem {
    /// The checkpoints, in their order.
    pub checkpoints: Vec<CheckpointProfile>,
    /// The codec.
    pub packer: Packer,
    /// Bytes of the cache on the device.
    pub cache: u64,
    /// Copies within the device, into the cache.
    pub copy: Rate,
    /// Transfers to the host.
    pub link: Rate,
    /// Where the run ends.
    pub end: End,
    /// The most checkpoints that are compressed together; 1 for schedules without
    /// [`CheckpointDecision::Hold`].
    pub most_together: u32,
}

impl Problem {
    /// Checks that the problem makes sense.
    ///
    /// # Errors
    /// The [`Mistake`] in it.
    pub fn check(&self) -> Result<(), Mistake> {
        for rate in [&self.copy, &self.link] {
            if !(rate.bytes_per_second >= 1.0 && rate.latency.0 < MOST) {
                return Err(Mistake::Rate);
            }
        }
        if self.packer.worst.per_mille > 1_000_000 {
            return Err(Mistake::Worst);
        }
        let (mut bytes, mut time) = (0_u64, 0_u64);
        for (at, one) in self.checkpoints.iter().enumerate() {
            if one.raw > self.cache {
                return Err(Mistake::TooLarge { at, raw: one.raw, cache: self.cache });
            }
            bytes = bytes.saturating_add(one.raw.max(one.packed));
            time = time.saturating_add(one.interval.0).saturating_add(self.longest(one));
        }
        if bytes >= MOST || time >= MOST { Err(Mistake::TooLong) } else { Ok(()) }
    }

    /// A time that no decision for this checkpoint exceeds.
    fn longest(&self, one: &CheckpointProfile) -> u64 {
        let bytes = one.raw.saturating_add(one.packed);
        let moves = nanos(&self.copy, bytes).saturating_add(nanos(&self.link, bytes));
        moves.saturating_mul(2).saturating_add(self.packer.time.time(one.raw).0)
    }

    /// The time of computing, whatever is decided.
    #[must_use]
    pub fn computing(&self) -> Nanos {
        Nanos(self.checkpoints.iter().map(|one| one.interval.0).sum())
    }
}

/// What is done with one checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckpointDecision {
    /// It is sent as it is: U in the paper.
    Raw,
    /// It is compressed alone and sent: C in the paper.
    Alone,
    /// It is held, to be compressed with later ones: A in the paper.
    Hold,
    /// It is compressed together with all that are held, and they are sent: X in the paper.
    Together,
}

impl CheckpointDecision {
    /// All decisions, in the order of [`RunTimes::counts`](super::RunTimes::counts).
    pub const ALL: [CheckpointDecision; 4] = [
        CheckpointDecision::Raw,
        CheckpointDecision::Alone,
        CheckpointDecision::Hold,
        CheckpointDecision::Together,
    ];

    /// The name under which a program asks for the decision: `raw`, `alone`, `hold` or `together`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CheckpointDecision::Raw => "raw",
            CheckpointDecision::Alone => "alone",
            CheckpointDecision::Hold => "hold",
            CheckpointDecision::Together => "together",
        }
    }

    /// The decision with this name; `None` where there is none.
    #[must_use]
    pub fn of(name: &str) -> Option<CheckpointDecision> {
        CheckpointDecision::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// Why there is no plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Mistake {
    /// The points of a codec's time make no sense.
    Curve,
    /// A rate is below one byte a second or not a number.
    Rate,
    /// The codec's worst case is more than a thousand times its input.
    Worst,
    /// A checkpoint is larger than the cache.
    TooLarge {
        /// Which one, from 0.
        at: usize,
        /// Its bytes.
        raw: u64,
        /// Those of the cache.
        cache: u64,
    },
    /// Bytes or times add up to more than 2^60.
    TooLong,
    /// There is not one decision for each checkpoint.
    Length {
        /// Decisions.
        decisions: usize,
        /// Checkpoints.
        checkpoints: usize,
    },
    /// A decision that cannot be taken there: nothing is held for a `Together`, something is held
    /// at a `Raw` or `Alone`, or the cache has no room even when the link is idle.
    Impossible {
        /// Which checkpoint, from 0.
        at: usize,
    },
    /// Checkpoints are held at the end.
    Unfinished,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mistake::Curve => f.write_str(
                "the codec's times make no sense: give points by ascending bytes, or a fixed time \
                 and a rate of at least one byte a second",
            ),
            Mistake::Rate => f.write_str("rates are at least one byte a second"),
            Mistake::Worst => f.write_str("a codec's output is at most a thousand times its input"),
            Mistake::TooLarge { at, raw, cache } => write!(
                f,
                "checkpoint {at} has {raw} bytes, and the cache {cache}: give it a larger cache"
            ),
            Mistake::TooLong => f.write_str("bytes or times of the run add up to more than 2^60"),
            Mistake::Length { decisions, checkpoints } => {
                write!(f, "there are {decisions} decisions for {checkpoints} checkpoints")
            }
            Mistake::Impossible { at } => write!(
                f,
                "decision {at} cannot be taken: \"together\" is for checkpoints that are held, \
                 \"raw\" and \"alone\" for times when none is, and each of them needs room in the \
                 cache"
            ),
            Mistake::Unfinished => {
                f.write_str("checkpoints are held at the end: close with \"together\"")
            }
        }
    }
}

impl core::error::Error for Mistake {}
