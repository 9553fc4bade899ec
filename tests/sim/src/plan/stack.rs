//! Tiers, settings and the actual speeds of the machine.

use unspool_core::{Config, LinkConfig, Nanos, PolicyKind, TierConfig, TierKind};

use crate::random::Random;

/// Actual speeds of the machine, whatever the settings assume.
#[derive(Clone, PartialEq, Debug)]
pub struct Machine {
    /// `links[i]` lies between tier `i` and tier `i + 1`.
    pub links: Vec<LinkSpeed>,
    /// Bytes per second that the application copies to and from each tier.
    pub copy_rate: Vec<f64>,
    /// Streams or workers for each pair of tiers and direction.
    pub streams: usize,
    /// Maximum time between the end of an operation and its report.
    pub report_delay: Nanos,
    /// Maximum time between an answer and its arrival at the thread.
    pub answer_delay: Nanos,
    /// Maximum delay of the report of a deadline.
    pub tick_delay: Nanos,
    /// Copies between the application and arenas are enqueued on the stream of the thread and
    /// reported at once, as for device arrays; later accesses to the place wait for a fence.
    pub stream_ordered: bool,
    /// A frame is synced before its write is reported.
    pub sync_each_put: bool,
    /// Number of streams on which each thread of the application enqueues its copies, in turn.
    pub user_streams: usize,
}

/// The speed of one link.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkSpeed {
    /// Bytes per second towards the slower tier.
    pub flush_rate: f64,
    /// Bytes per second towards the faster tier.
    pub prefetch_rate: f64,
    /// Latency: the time before the first byte.
    pub latency: Nanos,
    /// Random variation: transfers take longer by up to this share.
    pub jitter: f64,
}

/// Typical size of a checkpoint, for which stacks are made.
pub const TYPICAL_BYTES: u64 = 1000;

/// Random settings that are valid.
pub fn config(random: &mut Random) -> Config {
    let kinds = kinds(random);
    let unit = random.pick(&[1, 8, 64, 64, 256, 512, 4096]);
    let tiers: Vec<TierConfig> = kinds.iter().map(|kind| tier(random, *kind, unit)).collect();
    let links = (1..tiers.len()).map(|_| link(random)).collect();
    use PolicyKind::{Belady, Fifo, Lru, Score};
    Config {
        tiers,
        links,
        discard_after_restore: random.chance(0.4),
        durable: false,
        policy: random.pick(&[Score, Score, Score, Lru, Fifo, Belady]),
        max_retries: random.below(4) as u32,
        retry_delay: Nanos(random.range(0, 200_000)),
    }
}

fn kinds(random: &mut Random) -> Vec<TierKind> {
    use TierKind::{Device, Disk, Host, Remote};
    let mut kinds = vec![Device, Host, Disk, Remote];
    while kinds.len() > 1 && random.chance(0.3) {
        kinds.remove(random.below(kinds.len() as u64) as usize);
    }
    kinds
}

fn tier(random: &mut Random, kind: TierKind, unit: u64) -> TierConfig {
    let alignment = if random.chance(0.8) { unit } else { random.pick(&[1, 64, 4096]) };
    let rooms = match kind {
        TierKind::Device => random.magnitude(1.0, 12.0),
        TierKind::Host => random.magnitude(1.0, 30.0),
        TierKind::Disk => random.magnitude(2.0, 80.0),
        TierKind::Remote => random.magnitude(4.0, 200.0),
    };
    let unlimited = !kind.is_arena() && random.chance(0.5);
    let bytes = (rooms * TYPICAL_BYTES.max(alignment) as f64) as u64;
    let capacity = if unlimited { u64::MAX } else { bytes.max(alignment) };
    TierConfig { kind, capacity, alignment }
}

fn link(random: &mut Random) -> LinkConfig {
    LinkConfig {
        flush_rate: random.magnitude(1e6, 1e11),
        prefetch_rate: random.magnitude(1e6, 1e11),
        latency: Nanos(random.below(50_000)),
        max_in_flight_bytes: random.pick(&[0, 1000, 5000, 100_000, u64::MAX]),
        max_in_flight: random.pick(&[1, 1, 2, 4, 16]),
    }
}

/// A random machine for these settings.
pub fn machine(random: &mut Random, config: &Config) -> Machine {
    let slowest = random.pick(&[1e6, 1e7, 1e8, 1e9]);
    Machine {
        links: config.links.iter().map(|_| speed(random, slowest)).collect(),
        copy_rate: config.tiers.iter().map(|_| random.magnitude(slowest, 1e12)).collect(),
        streams: random.range(1, 4) as usize,
        report_delay: Nanos(random.pick(&[0, 100, 10_000, 1_000_000])),
        answer_delay: Nanos(random.pick(&[0, 0, 100, 10_000])),
        tick_delay: Nanos(random.pick(&[0, 1000, 100_000])),
        stream_ordered: random.chance(0.4),
        sync_each_put: random.chance(0.3),
        user_streams: random.pick(&[1, 1, 2, 3]),
    }
}

fn speed(random: &mut Random, slowest: f64) -> LinkSpeed {
    LinkSpeed {
        flush_rate: random.magnitude(slowest, slowest * 100.0),
        prefetch_rate: random.magnitude(slowest, slowest * 100.0),
        latency: Nanos(random.below(20_000)),
        jitter: random.pick(&[0.0, 0.2, 2.0]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspool_core::Core;

    #[test]
    fn every_random_stack_is_valid_and_all_depths_occur() {
        let mut depths = [0; 5];
        for seed in 0..500 {
            let config = config(&mut Random::new(seed));
            depths[config.tiers.len()] += 1;
            assert!(Core::new(config).is_ok(), "seed {seed}");
        }
        assert!(depths[1..].iter().all(|count| *count > 5), "{depths:?}");
    }
}
