//! Histories of realistic size in virtual time, without bytes: the cost of a policy for the
//! application. The cases are those of Score (HPDC'23, section 5.3): one thread saves a history and
//! restores it in reverse, in sequence or irregularly, with sizes that are equal or vary, and
//! announces all of its restores, the next one, or none.

mod figures;
mod sizes;

use unspool_core::{Config, LinkConfig, Nanos, PolicyKind, TierConfig, TierKind, Version};

use crate::plan::Plan;
use crate::plan::codec::Codec;
use crate::plan::faults::Faults;
use crate::plan::script::{Care, Life, Script, Step};
use crate::plan::stack::{LinkSpeed, Machine};
use crate::random::Random;
use crate::report::run_plan;

pub use figures::{Figures, Traffic};
pub use sizes::{rtm, uniform};

/// The order of the restores.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Order {
    /// Last saved, first restored, as in an adjoint.
    Reverse,
    /// In the order of the saves, as in an analysis.
    Sequential,
    /// A fixed random order.
    Irregular,
}

/// The restores that the application announces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hints {
    /// None.
    None,
    /// None, and what earlier iterations restored announces them.
    Learned,
    /// At each restore the next one.
    Next,
    /// All, before the first save; prefetching starts after the last save.
    All,
}

/// A history, its use, and a machine.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Settings of the core; rates in `links` are its initial assumptions.
    pub config: Config,
    /// Actual speeds of the machine.
    pub machine: Machine,
    /// Bytes of each checkpoint; their versions are 0, 1, ...
    pub bytes: Vec<u64>,
    /// The order of the restores.
    pub order: Order,
    /// The announced restores.
    pub hints: Hints,
    /// The time between two saves.
    pub save_interval: Nanos,
    /// The time between two restores.
    pub restore_interval: Nanos,
    /// The compression of the application's saves, if any.
    pub codec: Option<Codec>,
    /// How often the history is saved, restored and discarded.
    pub iterations: usize,
    /// Whether the restores begin only when everything is flushed.
    pub wait_for_flush: bool,
}

const GIB: u64 = 1 << 30;

impl Scenario {
    /// Score's experiment on one GPU: 4 GiB of device memory, 32 GiB of host memory and a disk;
    /// 25 GB/s between device and host, 4 and 7 GB/s to and from the disk, 10 ms of computation
    /// between two calls (sections 5.1 and 5.3).
    #[must_use]
    pub fn score(bytes: Vec<u64>, order: Order, hints: Hints, policy: PolicyKind) -> Scenario {
        let tiers =
            [(TierKind::Device, 4 * GIB), (TierKind::Host, 32 * GIB), (TierKind::Disk, u64::MAX)];
        Scenario::on(&tiers, &[(25e9, 25e9, 10_000), (4e9, 7e9, 100_000)], bytes)
            .with(order, hints, policy)
    }

    /// A history on a machine: kinds and capacities of the tiers, and for each link the bytes per
    /// second towards the slower and the faster tier and the latency in nanoseconds.
    #[must_use]
    pub fn on(tiers: &[(TierKind, u64)], links: &[(f64, f64, u64)], bytes: Vec<u64>) -> Scenario {
        Scenario {
            config: config(tiers, links),
            machine: machine(tiers.len(), links),
            bytes,
            order: Order::Reverse,
            hints: Hints::All,
            save_interval: Nanos(10_000_000),
            restore_interval: Nanos(10_000_000),
            codec: None,
            iterations: 1,
            wait_for_flush: false,
        }
    }

    /// The same scenario with another order, other hints and another policy.
    #[must_use]
    pub fn with(mut self, order: Order, hints: Hints, policy: PolicyKind) -> Scenario {
        (self.order, self.hints, self.config.policy) = (order, hints, policy);
        self
    }

    /// The same scenario with other times between calls.
    #[must_use]
    pub fn every(mut self, save: Nanos, restore: Nanos) -> Scenario {
        (self.save_interval, self.restore_interval) = (save, restore);
        self
    }

    /// The versions in the order of their restores.
    #[must_use]
    pub fn restore_order(&self) -> Vec<i64> {
        let mut order: Vec<i64> = (0..self.bytes.len() as i64).collect();
        match self.order {
            Order::Reverse => order.reverse(),
            Order::Sequential => {}
            Order::Irregular => Random::new(5).shuffle(&mut order),
        }
        order
    }

    fn script(&self) -> Script {
        let mut steps = Vec::new();
        for turn in 0..self.iterations {
            if turn > 0 {
                let versions = (0..self.bytes.len() as i64).map(Version);
                steps.extend(versions.map(Step::Discard));
            }
            self.iterate(&mut steps);
        }
        Script { steps }
    }

    fn iterate(&self, steps: &mut Vec<Step>) {
        let order = self.restore_order();
        if self.hints == Hints::All {
            steps.push(Step::HoldPrefetch);
            steps.extend(order.iter().map(|version| Step::Expect(Version(*version))));
        }
        for (version, bytes) in self.bytes.iter().enumerate() {
            steps.push(Step::Compute(self.save_interval));
            steps.push(Step::save(version as i64, *bytes));
        }
        steps.extend(self.wait_for_flush.then_some(Step::Flush(Care::default())));
        steps.push(Step::StartPrefetch);
        for (at, version) in order.iter().enumerate() {
            if self.hints == Hints::Next
                && let Some(next) = order.get(at + 1)
            {
                steps.push(Step::Expect(Version(*next)));
            }
            steps.push(Step::restore(*version));
            steps.push(Step::Compute(self.restore_interval));
        }
    }

    fn plan(&self) -> Plan {
        let life = Life { threads: vec![self.script()], crash_after: None };
        Plan {
            seed: 0,
            config: self.config.clone(),
            machine: self.machine.clone(),
            learns: self.hints == Hints::Learned,
            faults: Faults::none(),
            codec: self.codec,
            lives: vec![life],
            content: false,
            canary: None,
        }
    }
}

/// Runs a scenario.
///
/// # Panics
/// When the core breaks a rule, with the history of the run.
#[must_use]
pub fn run(scenario: &Scenario) -> Figures {
    match run_plan(scenario.plan()) {
        Ok(run) => Figures::of(scenario, &run),
        Err(failure) => panic!("{failure}"),
    }
}

fn config(tiers: &[(TierKind, u64)], links: &[(f64, f64, u64)]) -> Config {
    let tier = |&(kind, capacity): &(TierKind, u64)| TierConfig { kind, capacity, alignment: 4096 };
    let link = |&(flush_rate, prefetch_rate, latency): &(f64, f64, u64)| LinkConfig {
        flush_rate,
        prefetch_rate,
        latency: Nanos(latency),
        max_in_flight_bytes: GIB,
        max_in_flight: 8,
    };
    Config {
        tiers: tiers.iter().map(tier).collect(),
        links: links.iter().map(link).collect(),
        discard_after_restore: false,
        durable: false,
        policy: PolicyKind::Score,
        max_retries: 3,
        retry_delay: Nanos(1_000_000),
    }
}

fn machine(tiers: usize, links: &[(f64, f64, u64)]) -> Machine {
    let speed = |&(flush_rate, prefetch_rate, latency): &(f64, f64, u64)| LinkSpeed {
        flush_rate,
        prefetch_rate,
        latency: Nanos(latency),
        jitter: 0.0,
    };
    let rates = [1e12, 20e9, 5e9, 1e9];
    Machine {
        links: links.iter().map(speed).collect(),
        copy_rate: rates[..tiers].to_vec(),
        streams: 4,
        report_delay: Nanos(0),
        answer_delay: Nanos(0),
        tick_delay: Nanos(0),
        stream_ordered: false,
        sync_each_put: false,
        user_streams: 1,
    }
}
