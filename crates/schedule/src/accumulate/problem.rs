//! What is asked: the checkpoints, the codec and the machine, and what is decided for each.

use alloc::vec::Vec;
use core::fmt;

use super::Curve;
use super::timeline::nanos;
use crate::forecast::Rate;
use unspool_core::Nanos;

/// The most bytes and nanoseconds of a whole run: what sums of them stay below.
const MOST: u64 = 1 << 60;

/// What is known of one checkpoint: the first oracle, recorded from an earlier run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// Computing between the end of what was done for the checkpoint before, or the beginning, and
    /// this one.
    pub interval: Nanos,
    /// Its bytes.
    pub raw: u64,
    /// Its bytes when it is compressed alone. Compressed together, checkpoints take the sum.
    pub packed: u64,
}

/// The room that a codec needs for its output while it runs: the worst case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Worst {
    /// Thousandths of the input: 1000 for as much as the input.
    pub per_mille: u64,
    /// Bytes besides.
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
    /// When the application has handed over its last checkpoint.
    Application,
}

/// Everything that a plan is made from.
#[derive(Clone, PartialEq, Debug)]
pub struct Problem {
    /// The checkpoints, in their order.
    pub checkpoints: Vec<Checkpoint>,
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
    /// The most checkpoints that are compressed together; 1 for schedules of U and C alone.
    pub most_together: u32,
}

impl Problem {
    /// Whether it makes sense.
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

    /// No less than any decision can take for this one.
    fn longest(&self, one: &Checkpoint) -> u64 {
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
pub enum Decision {
    /// U: it is sent as it is.
    Raw,
    /// C: it is compressed alone, and sent.
    Alone,
    /// A: it is held, to be compressed with later ones.
    Hold,
    /// X: it is compressed together with all that are held, and they are sent.
    Together,
}

impl Decision {
    /// Its letter in the paper: U, C, A or X.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Decision::Raw => 'U',
            Decision::Alone => 'C',
            Decision::Hold => 'A',
            Decision::Together => 'X',
        }
    }

    /// The decision of a letter.
    #[must_use]
    pub fn of(letter: char) -> Option<Decision> {
        let all = [Decision::Raw, Decision::Alone, Decision::Hold, Decision::Together];
        all.into_iter().find(|one| one.letter() == letter)
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
    /// A decision that cannot be taken there: nothing is held for an X, something for a U or C, or
    /// the cache has no room for it even when the link is idle.
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
                "decision {at} cannot be taken: X needs something held, U and C nothing, and each \
                 of them room in the cache"
            ),
            Mistake::Unfinished => f.write_str("checkpoints are held at the end: close with an X"),
        }
    }
}

impl core::error::Error for Mistake {}
