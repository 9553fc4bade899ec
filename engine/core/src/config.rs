//! What a core is made from: plain settings, no components.

use alloc::vec::Vec;

use crate::types::{Nanos, TierKind};

/// The most tiers that a stack may have.
pub const MAX_TIERS: usize = 4;

/// One tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierConfig {
    /// What it is made of.
    pub kind: TierKind,
    /// Bytes that it may hold; `u64::MAX` when only the medium itself sets a limit.
    pub capacity: u64,
    /// Every checkpoint starts at a multiple of this many bytes and takes a multiple of it.
    /// A power of two, at least 1.
    pub alignment: u64,
}

/// What is assumed about the movement between two neighbouring tiers until it was measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkConfig {
    /// Bytes per second towards the slower tier.
    pub flush_rate: f64,
    /// Bytes per second towards the faster tier.
    pub prefetch_rate: f64,
    /// Time that a transfer takes before its first byte.
    pub latency: Nanos,
    /// The most bytes in flight in one direction; one transfer may always be in flight.
    pub max_in_flight_bytes: u64,
    /// The most transfers in flight in one direction, at least 1.
    pub max_in_flight: u32,
}

/// How room is made in an arena.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum PolicyKind {
    /// The gap-aware sliding window of Score (HPDC'23, Algorithm 1).
    #[default]
    Score,
    /// The window whose copies were used longest ago.
    Lru,
    /// The window whose copies came first.
    Fifo,
    /// Farthest next use, with the whole future known: a bound for the others.
    Belady,
}

/// The settings of a core.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// The stack, fastest first, at least one tier, at most [`MAX_TIERS`]; arenas before stores.
    pub tiers: Vec<TierConfig>,
    /// `links[i]` lies between tier `i` and tier `i + 1`.
    pub links: Vec<LinkConfig>,
    /// A checkpoint whose last hinted restore is done is discarded at once.
    pub discard_after_restore: bool,
    /// Flushes into stores make checkpoints outlive the process: none is held back for long.
    pub durable: bool,
    /// How room is made in arenas.
    pub policy: PolicyKind,
    /// How often a failed transfer is tried again before its link counts as failing.
    pub max_retries: u32,
    /// The wait before the first retry; doubled for each further one.
    pub retry_delay: Nanos,
}
