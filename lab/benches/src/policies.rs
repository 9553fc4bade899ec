//! A comparison of eviction policies: the same histories under each of them, in virtual time.
//!
//! The machine is that of Score's experiment (HPDC'23, section 5): 4 GB of device arena, 32 GB of
//! host arena, a local disk, a history of about 48 GB, links at the rates measured on an H100 host.
//! Unless the name of a history says otherwise, the hints are given first, prefetching is stopped
//! until the first restore, and a checkpoint is discarded after its last restore. Belady knows the
//! same future, so the stalls of the others are compared with its own; it looks at one copy at a
//! time and ignores how long a flush takes, so with copies of different sizes it is not a strict
//! bound.
//!
//! Sizes and irregular orders are random. One sample is not meaningful: of two policies that are
//! equally good on average, one may stall a tenth longer. So a row is the mean of many samples.

use unspool_core::{Config, LinkConfig, Nanos, PolicyKind, TierConfig, TierKind};

use crate::machine::{Machine, Outcome};
use crate::table;
use crate::traces::{
    Hints, Trace, forward_then, interleaved, irregular, reverse, sequential, uniform, variable,
};

const MB: u64 = 1_000_000;
const COUNT: usize = 384;
const BYTES: u64 = 128 * MB;
/// Computation between two saves or restores.
const STEP: Nanos = Nanos(10_000_000);
/// Number of samples of each history.
const DRAWS: u64 = 32;
/// Number of samples of histories with ten times as many checkpoints, which take long.
const LONG_DRAWS: u64 = 2;

const POLICIES: [(&str, PolicyKind); 4] = [
    ("Belady", PolicyKind::Belady),
    ("Score", PolicyKind::Score),
    ("Lru", PolicyKind::Lru),
    ("Fifo", PolicyKind::Fifo),
];

/// A history, its samples, and whether a checkpoint is discarded after its last restore.
struct History {
    name: &'static str,
    /// The history for a seed, which determines sizes and order.
    draw: fn(u64) -> Trace,
    draws: u64,
    discard_after_restore: bool,
}

/// Prints the table.
pub fn run() {
    let rows: Vec<Vec<String>> = HISTORIES.iter().flat_map(compare).collect();
    let columns = [
        "history",
        "policy",
        "stall s",
        "in saves",
        "in restores",
        "stall / run",
        "stall / Belady",
        "flushed GB",
        "prefetched GB",
        "moved / saved",
        "served by device, host, disk %",
    ];
    table::print("Policies on the same histories (virtual time)", &columns, &rows);
}

/// The histories: name, function, number of samples, whether checkpoints are discarded.
const HISTORIES: [History; 15] = [
    discarded("uniform, reverse", |_| even(&reverse(COUNT)), 1),
    discarded("uniform, sequential", |_| even(&sequential(COUNT)), 1),
    discarded("uniform, irregular", |seed| even(&irregular(COUNT, seed)), DRAWS),
    discarded("uniform, interleaved", |_| interleaved(uniform(COUNT, BYTES), COUNT / 4), 1),
    discarded("variable, reverse", |seed| uneven(seed, &reverse(COUNT), HELD), DRAWS),
    discarded("variable, sequential", |seed| uneven(seed, &sequential(COUNT), HELD), DRAWS),
    discarded("variable, irregular", |seed| uneven(seed, &irregular(COUNT, seed), HELD), DRAWS),
    discarded("variable, interleaved", |seed| interleaved(sizes(seed), COUNT / 4), DRAWS),
    discarded(
        "variable, reverse, hints not held",
        |seed| uneven(seed, &reverse(COUNT), Hints::First),
        DRAWS,
    ),
    discarded(
        "variable, reverse, hints after saves",
        |seed| uneven(seed, &reverse(COUNT), Hints::AfterSaves),
        DRAWS,
    ),
    kept("uniform, reverse, all kept", |_| even(&reverse(COUNT)), 1),
    kept("uniform, irregular, all kept", |seed| even(&irregular(COUNT, seed)), DRAWS),
    kept("variable, reverse, all kept", |seed| uneven(seed, &reverse(COUNT), HELD), DRAWS),
    discarded("compressed, reverse", |seed| compressed(seed, &reverse(MANY)), LONG_DRAWS),
    discarded("compressed, irregular", |seed| compressed(seed, &irregular(MANY, seed)), LONG_DRAWS),
];

/// Hints first, no prefetches before the first restore.
const HELD: Hints = Hints::FirstHeld;
/// Number of checkpoints of the compressed histories.
const MANY: usize = 10 * COUNT;

const fn discarded(name: &'static str, draw: fn(u64) -> Trace, draws: u64) -> History {
    History { discard_after_restore: true, ..kept(name, draw, draws) }
}

const fn kept(name: &'static str, draw: fn(u64) -> Trace, draws: u64) -> History {
    History { name, draw, draws, discard_after_restore: false }
}

fn even(order: &[i64]) -> Trace {
    forward_then(uniform(COUNT, BYTES), order, HELD)
}

fn uneven(seed: u64, order: &[i64], hints: Hints) -> Trace {
    forward_then(sizes(seed), order, hints)
}

fn sizes(seed: u64) -> Vec<u64> {
    variable(COUNT, BYTES, seed)
}

/// Ten times as many checkpoints, compressed, on the same machine.
fn compressed(seed: u64, order: &[i64]) -> Trace {
    forward_then(uniform(MANY, BYTES), order, HELD).compressed(seed)
}

/// Totals of all samples of a history under one policy.
#[derive(Default)]
struct Sum {
    outcome: Outcome,
    saved: u64,
    draws: u64,
}

impl Sum {
    fn stall(&self) -> Nanos {
        self.outcome.save_stall.plus(self.outcome.restore_stall)
    }

    fn add(&mut self, other: &Outcome, saved: u64) {
        let sum = &mut self.outcome;
        sum.total = sum.total.plus(other.total);
        sum.save_stall = sum.save_stall.plus(other.save_stall);
        sum.restore_stall = sum.restore_stall.plus(other.restore_stall);
        sum.flushed += other.flushed;
        sum.prefetched += other.prefetched;
        for (sum, served) in sum.served.iter_mut().zip(other.served) {
            *sum += served;
        }
        self.saved += saved;
        self.draws += 1;
    }
}

/// Results of the same history under every policy.
fn compare(history: &History) -> Vec<Vec<String>> {
    let mut bound = None;
    let mut rows = Vec::new();
    for (name, policy) in POLICIES {
        match play(history, policy) {
            Ok(sum) => {
                let bound = *bound.get_or_insert(sum.stall().0 as f64);
                rows.push(row(history, name, &sum, bound));
            }
            Err(reason) => rows.push(failed(history, name, &reason)),
        }
    }
    rows
}

fn play(history: &History, policy: PolicyKind) -> Result<Sum, String> {
    let mut sum = Sum::default();
    for seed in 0..history.draws {
        let trace = (history.draw)(seed);
        let machine = Machine::new(stack(policy, history.discard_after_restore))?;
        sum.add(&machine.play(&trace, STEP)?, trace.saved_bytes());
    }
    Ok(sum)
}

/// Means over the samples.
fn row(history: &History, policy: &str, sum: &Sum, bound: f64) -> Vec<String> {
    let Sum { outcome, saved, draws } = sum;
    let mean = |of_all: u64| of_all as f64 / *draws as f64 / 1e9;
    let seconds = |nanos: Nanos| format!("{:.2}", mean(nanos.0));
    let gigabytes = |bytes: u64| format!("{:.1}", mean(bytes));
    let stall = sum.stall();
    let restores = outcome.served.iter().sum::<u64>().max(1);
    let share = |tier: usize| 100 * outcome.served[tier] / restores;
    vec![
        history.name.to_owned(),
        policy.to_owned(),
        seconds(stall),
        seconds(outcome.save_stall),
        seconds(outcome.restore_stall),
        format!("{:.3}", stall.0 as f64 / outcome.total.0 as f64),
        if bound > 0.0 { format!("{:.2}", stall.0 as f64 / bound) } else { "-".to_owned() },
        gigabytes(outcome.flushed),
        gigabytes(outcome.prefetched),
        format!("{:.2}", (outcome.flushed + outcome.prefetched) as f64 / *saved as f64),
        format!("{} {} {}", share(0), share(1), share(2)),
    ]
}

fn failed(history: &History, policy: &str, reason: &str) -> Vec<String> {
    let mut row = vec![history.name.to_owned(), policy.to_owned(), reason.to_owned()];
    row.resize(11, "-".to_owned());
    row
}

fn stack(policy: PolicyKind, discard_after_restore: bool) -> Config {
    let tier = |kind, capacity| TierConfig { kind, capacity, alignment: 4096 };
    let link = |flush_rate, prefetch_rate, latency, transfers| LinkConfig {
        flush_rate,
        prefetch_rate,
        latency: Nanos(latency),
        max_in_flight_bytes: 1024 * MB,
        max_in_flight: transfers,
    };
    Config {
        tiers: vec![
            tier(TierKind::Device, 4_000 * MB),
            tier(TierKind::Host, 32_000 * MB),
            tier(TierKind::Disk, u64::MAX),
        ],
        links: vec![link(48e9, 48e9, 10_000, 4), link(1.5e9, 2.9e9, 100_000, 4)],
        discard_after_restore,
        durable: false,
        policy,
        max_retries: 3,
        retry_delay: Nanos(1_000_000),
    }
}
