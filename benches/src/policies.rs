//! What the eviction policies are worth: the same histories under each of them, in virtual time.
//!
//! The machine is that of Score's experiment (HPDC'23, section 5): 4 GB of device arena, 32 GB of
//! host arena, a local disk, a history of about 48 GB, links at the rates measured on an H100 host.
//! Unless the name of a history says otherwise, the hints are given first, prefetching is held back
//! until the first restore, and a checkpoint is discarded after its last restore. Belady knows the
//! same future, so its stall is what the others are compared with; it looks at one copy at a time
//! and ignores how long a flush takes, so with copies of different sizes it is not a strict bound.

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

const POLICIES: [(&str, PolicyKind); 4] = [
    ("Belady", PolicyKind::Belady),
    ("Score", PolicyKind::Score),
    ("Lru", PolicyKind::Lru),
    ("Fifo", PolicyKind::Fifo),
];

/// A history, and whether a checkpoint is discarded after its last restore.
struct History {
    trace: Trace,
    discard_after_restore: bool,
}

/// Prints the table.
pub fn run() {
    let rows: Vec<Vec<String>> = histories().iter().flat_map(compare).collect();
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

fn histories() -> Vec<History> {
    let even = || uniform(COUNT, BYTES);
    let uneven = || variable(COUNT, BYTES, 11);
    let (reverse, sequential) = (reverse(COUNT), sequential(COUNT));
    let irregular = irregular(COUNT, 5);
    let held = Hints::FirstHeld;
    let not_held = ("variable, reverse, hints not held", Hints::First);
    let after = ("variable, reverse, hints after saves", Hints::AfterSaves);
    let kept = forward_then("variable, reverse, all kept", uneven(), &reverse, held);
    let discarding = [
        forward_then("uniform, reverse", even(), &reverse, held),
        forward_then("uniform, sequential", even(), &sequential, held),
        forward_then("uniform, irregular", even(), &irregular, held),
        interleaved("uniform, interleaved", even(), COUNT / 4),
        forward_then("variable, reverse", uneven(), &reverse, held),
        forward_then("variable, sequential", uneven(), &sequential, held),
        forward_then("variable, irregular", uneven(), &irregular, held),
        interleaved("variable, interleaved", uneven(), COUNT / 4),
        forward_then(not_held.0, uneven(), &reverse, not_held.1),
        forward_then(after.0, uneven(), &reverse, after.1),
    ];
    let discarding = discarding.map(|trace| History { trace, discard_after_restore: true });
    // What ten times as many checkpoints are after compression, on the same machine.
    let many = |name, order: &[i64]| {
        let sizes = uniform(10 * COUNT, BYTES);
        forward_then(name, sizes, order, held).compressed(9)
    };
    let reversed = crate::traces::reverse(10 * COUNT);
    let compressed = [
        many("compressed, reverse", &reversed),
        many("compressed, irregular", &crate::traces::irregular(10 * COUNT, 5)),
    ];
    let compressed = compressed.map(|trace| History { trace, discard_after_restore: true });
    let kept = History { trace: kept, discard_after_restore: false };
    discarding.into_iter().chain([kept]).chain(compressed).collect()
}

/// The same history under every policy.
fn compare(history: &History) -> Vec<Vec<String>> {
    let History { trace, discard_after_restore } = history;
    let mut bound = None;
    let mut rows = Vec::new();
    for (name, policy) in POLICIES {
        let machine = Machine::new(stack(policy, *discard_after_restore));
        match machine.and_then(|machine| machine.play(trace, STEP)) {
            Ok(outcome) => {
                let stall = outcome.save_stall.plus(outcome.restore_stall).0 as f64;
                let bound = *bound.get_or_insert(stall);
                rows.push(row(trace, name, &outcome, stall, bound));
            }
            Err(reason) => rows.push(failed(trace, name, &reason)),
        }
    }
    rows
}

fn row(trace: &Trace, policy: &str, outcome: &Outcome, stall: f64, bound: f64) -> Vec<String> {
    let seconds = |nanos: f64| format!("{:.2}", nanos / 1e9);
    let gigabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e9);
    let saved: u64 = trace.saved_bytes();
    let restores = outcome.served.iter().sum::<u64>().max(1);
    let share = |tier: usize| 100 * outcome.served[tier] / restores;
    vec![
        trace.name.to_owned(),
        policy.to_owned(),
        seconds(stall),
        seconds(outcome.save_stall.0 as f64),
        seconds(outcome.restore_stall.0 as f64),
        format!("{:.3}", stall / outcome.total.0 as f64),
        if bound > 0.0 { format!("{:.2}", stall / bound) } else { "-".to_owned() },
        gigabytes(outcome.flushed),
        gigabytes(outcome.prefetched),
        format!("{:.2}", (outcome.flushed + outcome.prefetched) as f64 / saved as f64),
        format!("{} {} {}", share(0), share(1), share(2)),
    ]
}

fn failed(trace: &Trace, policy: &str, reason: &str) -> Vec<String> {
    let mut row = vec![trace.name.to_owned(), policy.to_owned(), reason.to_owned()];
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
        policy,
        max_retries: 3,
        retry_delay: Nanos(1_000_000),
    }
}
