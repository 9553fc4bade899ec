//! The input of a forecast, and its result.

use alloc::vec::Vec;

use crate::Counts;
use crate::forecast::ForecastError;
use unspool_core::Core;
use unspool_core::Lead;
use unspool_core::{Config, LinkConfig, PolicyKind, TierConfig};
use unspool_core::{Nanos, TierKind};

/// The longest schedule that is run, in actions: about three seconds of work.
pub const MAX_ACTIONS: usize = 1 << 20;

/// How fast bytes are copied.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// The time that every copy takes in addition, the call included.
    pub latency: Nanos,
}

impl Rate {
    /// The time that `bytes` take, in nanoseconds.
    pub(super) fn nanos(&self, bytes: u64) -> f64 {
        self.latency.0 as f64 + bytes as f64 / self.bytes_per_second * 1e9
    }

    /// The time that `bytes` take without the latency.
    pub(super) fn wire(&self, bytes: u64) -> Nanos {
        Nanos((bytes as f64 / self.bytes_per_second * 1e9 + 0.5) as u64)
    }

    fn is_valid(&self) -> bool {
        self.bytes_per_second.is_finite() && self.bytes_per_second > 0.0
    }
}

/// The movement between two neighbouring tiers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkSpeed {
    /// Towards the slower tier: bytes of all workers together in a second in which there is always
    /// work, and the time that a single transfer takes besides.
    pub flush: Rate,
    /// The same towards the faster tier.
    pub prefetch: Rate,
    /// The most bytes in flight in one direction; the spool's setting `in_flight_bytes`.
    pub max_in_flight_bytes: u64,
    /// The most transfers in flight in one direction; the spool's setting `in_flight`.
    pub max_in_flight: u32,
    /// By how much a busy direction of the link slows the application: 0.1 for a tenth, 0 where
    /// they do not share memory and cores, as on a GPU.
    pub contention: f64,
}

impl LinkSpeed {
    fn config(&self) -> LinkConfig {
        LinkConfig {
            flush_rate: self.flush.bytes_per_second,
            prefetch_rate: self.prefetch.bytes_per_second,
            latency: self.flush.latency.max(self.prefetch.latency),
            max_in_flight_bytes: self.max_in_flight_bytes,
            max_in_flight: self.max_in_flight,
        }
    }
}

/// The compression of a spool with a codec.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Compression {
    /// Bytes of a state for every byte that is stored, at least 1.
    pub ratio: f64,
    /// From the application's arrays into the fastest tier: bytes of the arrays in a second.
    pub encode: Rate,
    /// From the fastest tier to the application's arrays, in bytes of the arrays as well.
    pub decode: Rate,
}

impl Compression {
    fn check(&self) -> Result<(), ForecastError> {
        if !(self.ratio.is_finite() && self.ratio >= 1.0) {
            return Err(ForecastError::Job("a ratio of compression is finite and at least 1"));
        }
        if !(self.encode.is_valid() && self.decode.is_valid()) {
            return Err(ForecastError::Job("rates of a codec are finite and above zero"));
        }
        Ok(())
    }
}

/// The computation, the spool and the machine.
#[derive(Clone, PartialEq, Debug)]
pub struct ForecastJob {
    /// The tiers of the spool, fastest first.
    pub tiers: Vec<TierConfig>,
    /// `links[i]` lies between tier `i` and tier `i + 1`.
    pub links: Vec<LinkSpeed>,
    /// Whether what was restored for the last time is discarded by itself.
    pub discard_after_restore: bool,
    /// Bytes of a state.
    pub state_bytes: u64,
    /// Bytes of a copy that is only restored in order to reverse a step; `state_bytes` if that
    /// needs the whole state.
    pub reverse_bytes: u64,
    /// Seconds of a forward step, without any save.
    pub step_seconds: f64,
    /// Seconds of a reverse step.
    pub reverse_seconds: f64,
    /// Copies of the application's arrays into the fastest tier.
    pub save: Rate,
    /// Copies from the fastest tier to the application's arrays.
    pub restore: Rate,
    /// The codec of the spool, if it has one. Saves then take room for a whole state until they are
    /// done, and `save` and `restore` are not used.
    pub compression: Option<Compression>,
    /// Restores that are expected after the one that is being served.
    pub lookahead: usize,
    /// The application's arrays and the fastest tier lie on a GPU.
    pub on_gpu: bool,
    /// By how many seconds a byte the first write to a place in an arena takes longer than later
    /// ones, because the system gives the memory only then: 0 on a GPU.
    pub first_touch: f64,
    /// The number of steps of a schedule that does not know it; not used for others.
    pub steps: Option<u64>,
}

impl ForecastJob {
    pub(super) fn check(&self) -> Result<(), ForecastError> {
        let times = [self.step_seconds, self.reverse_seconds, self.first_touch];
        let slower = self.links.iter().map(|link| link.contention);
        if times.into_iter().chain(slower).any(|time| !(time.is_finite() && time >= 0.0)) {
            return Err(ForecastError::Job("times and contention are finite and not negative"));
        }
        if !(self.save.is_valid() && self.restore.is_valid()) {
            return Err(ForecastError::Job("rates of copies are finite and above zero"));
        }
        self.compression.iter().try_for_each(Compression::check)?;
        if self.reverse_bytes > self.state_bytes {
            return Err(ForecastError::Job("what a reverse step reads is a part of the state"));
        }
        Core::new(self.config()).map(drop).map_err(ForecastError::Config)
    }

    /// The settings of the core, as a spool has them.
    pub(super) fn config(&self) -> Config {
        Config {
            tiers: self.tiers.clone(),
            links: self.links.iter().map(LinkSpeed::config).collect(),
            discard_after_restore: self.discard_after_restore,
            durable: false,
            policy: PolicyKind::default(),
            max_retries: 0,
            retry_delay: Nanos(0),
        }
    }

    /// The bytes that are stored for `bytes` bytes of a state.
    pub(super) fn stored(&self, bytes: u64) -> u64 {
        self.compression.map_or(bytes, |c| (bytes as f64 / c.ratio) as u64).min(bytes)
    }

    /// The application's own copies into and out of the fastest tier.
    pub(super) fn copies(&self) -> [Rate; 2] {
        self.compression.map_or([self.save, self.restore], |c| [c.encode, c.decode])
    }

    pub(super) fn bytes(&self, for_reverse: bool) -> u64 {
        if for_reverse { self.reverse_bytes } else { self.state_bytes }
    }
}

/// The result of a forecast: where the time goes. `seconds` is the sum of the four times after it.
#[derive(Clone, PartialEq, Debug)]
pub struct Forecast {
    /// From the first action to the last.
    pub seconds: f64,
    /// Forward and reverse steps, slowed as far as links in main memory slow them.
    pub compute_seconds: f64,
    /// Copies between the application's arrays and the spool.
    pub copy_seconds: f64,
    /// Waits for room, and direct writes to a store.
    pub save_stall_seconds: f64,
    /// Waits for bytes, and direct reads from a store.
    pub restore_stall_seconds: f64,
    /// What the schedule does.
    pub counts: Counts,
    /// One entry a tier, fastest first.
    pub tiers: Vec<TierPeak>,
    /// `links[i]` lies between tier `i` and tier `i + 1`.
    pub links: Vec<LinkBytes>,
    /// How many of the restores to come had their bytes in the fastest tier, at each restore.
    pub lead: Lead,
}

/// What a tier held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierPeak {
    /// What it is made of.
    pub kind: TierKind,
    /// The most bytes that it held, alignment included.
    pub peak: u64,
    /// Restores that were served from it.
    pub restores: u64,
}

/// What a link moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkBytes {
    /// Towards the slower tier.
    pub flush: u64,
    /// Towards the faster tier.
    pub prefetch: u64,
}
