//! Making a core from its settings, and refusing settings that make no sense.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::fmt;

use super::Core;
use super::prefetches::Prefetching;
use super::rewriting::Rewriting;
use super::room::TierState;
use super::transfers::LinkLane;
use crate::config::{Config, LinkConfig, MAX_TIERS, TierConfig};
use crate::hints::Hints;
use crate::lifecycle::table::CheckpointTable;
use crate::policy::policy;
use crate::stats::{CoreStats, LinkStats, TierStats};
use crate::time_model::LinkModel;
use crate::types::{CheckpointId, Nanos};

/// Why a [`Config`] cannot make a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// The stack has no tier, or more than [`MAX_TIERS`].
    TierCount(usize),
    /// The number of links is not one less than that of tiers.
    LinkCount {
        /// Links needed.
        needed: usize,
        /// Links given.
        given: usize,
    },
    /// An arena stands below a store, or the tiers are not in the order device, host, disk, remote.
    Order,
    /// The alignment of this tier is not a power of two.
    Alignment(usize),
    /// The arena at this place has no room for one unit of its alignment.
    Capacity(usize),
    /// This link allows no transfer, or its rate is not a positive number.
    Link(usize),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::TierCount(n) => write!(f, "a stack has 1 to {MAX_TIERS} tiers, not {n}"),
            ConfigError::LinkCount { needed, given } => {
                write!(f, "the stack needs {needed} links between its tiers, {given} were given")
            }
            ConfigError::Order => {
                f.write_str("tiers must be in the order device, host, disk, remote, each once")
            }
            ConfigError::Alignment(tier) => {
                write!(f, "the alignment of tier {tier} must be a power of two")
            }
            ConfigError::Capacity(tier) => {
                write!(f, "the capacity of tier {tier} is below its alignment")
            }
            ConfigError::Link(link) => {
                write!(f, "link {link} needs positive rates and at least one transfer in flight")
            }
        }
    }
}

impl core::error::Error for ConfigError {}

impl Core {
    /// A core with empty tiers.
    ///
    /// # Errors
    /// When the settings contradict themselves.
    pub fn new(config: Config) -> Result<Core, ConfigError> {
        validate(&config)?;
        let lanes = |pick: fn(&LinkConfig) -> LinkModel| -> Vec<LinkLane> {
            config.links.iter().map(|link| LinkLane::new(pick(link))).collect()
        };
        Ok(Core {
            policy: policy(config.policy),
            now: Nanos(0),
            table: CheckpointTable::default(),
            hints: Hints::default(),
            tiers: config.tiers.iter().map(TierState::new).collect(),
            flush_lanes: lanes(|link| LinkModel::pair(link).0),
            prefetch_lanes: lanes(|link| LinkModel::pair(link).1),
            transfers: BTreeMap::new(),
            next_transfer: 0,
            open: BTreeMap::new(),
            saves_in_flight: 0,
            waiting_saves: VecDeque::new(),
            waiting_restores: VecDeque::new(),
            waiting_flushes: Vec::new(),
            flush_before: CheckpointId(0),
            unflushed: BTreeMap::new(),
            retries: Vec::new(),
            prefetching: Prefetching::On,
            reclaimed: false,
            writing: false,
            rewriting: Rewriting::default(),
            ready_until: 0,
            touches: 0,
            arrivals: 0,
            stats: empty_stats(&config),
            removed: Vec::new(),
            config,
        })
    }
}

fn validate(config: &Config) -> Result<(), ConfigError> {
    let count = config.tiers.len();
    if count == 0 || count > MAX_TIERS {
        return Err(ConfigError::TierCount(count));
    }
    if config.links.len() != count - 1 {
        return Err(ConfigError::LinkCount { needed: count - 1, given: config.links.len() });
    }
    if config.tiers.windows(2).any(|pair| pair[0].kind >= pair[1].kind) {
        return Err(ConfigError::Order);
    }
    for (i, tier) in config.tiers.iter().enumerate() {
        if !tier.alignment.is_power_of_two() {
            return Err(ConfigError::Alignment(i));
        }
        if tier.capacity < tier.alignment {
            return Err(ConfigError::Capacity(i));
        }
    }
    let bad = |l: &LinkConfig| {
        l.max_in_flight == 0 || !is_rate(l.flush_rate) || !is_rate(l.prefetch_rate)
    };
    match config.links.iter().position(bad) {
        Some(i) => Err(ConfigError::Link(i)),
        None => Ok(()),
    }
}

fn is_rate(rate: f64) -> bool {
    rate.is_finite() && rate > 0.0
}

fn empty_stats(config: &Config) -> CoreStats {
    let tier = |t: &TierConfig| TierStats {
        kind: t.kind,
        capacity: t.capacity,
        used: 0,
        peak: 0,
        copies: 0,
        evictions: 0,
        hits: 0,
    };
    CoreStats {
        tiers: config.tiers.iter().map(tier).collect(),
        links: config.links.iter().map(|_| LinkStats::default()).collect(),
        ..CoreStats::default()
    }
}
