//! Duration of a decision of the core, with few and with many checkpoints.
//!
//! All checkpoints are saved and then restored; the arena holds a tenth of them, or all of them
//! ("resident"), so that every decision is made among as many fragments. The baseline is a plain
//! copy of 1 MiB in the same run: a decision is worth its cost if that is small compared with the
//! smallest copy that it decides about.

use std::hint::black_box;
use std::time::Instant;

use unspool_core::{Config, LinkConfig, Nanos, PolicyKind, TierConfig, TierKind};

use crate::machine::Machine;
use crate::table;
use crate::traces::{Hints, Trace, forward_then, irregular, reverse, uniform};

const MIB: u64 = 1 << 20;
const COUNTS: [usize; 3] = [100, 1_000, 10_000];
const ROUNDS: usize = 3;
const HINTS: Hints = Hints::FirstHeld;

/// Prints the table.
pub fn run() {
    let yardstick = copy_of_one_mib();
    let mut rows = Vec::new();
    for count in COUNTS {
        rows.push(measure("reverse", &reverse(count), count / 10, yardstick));
        rows.push(measure("random", &irregular(count, 7), count / 10, yardstick));
    }
    let resident = COUNTS[2];
    rows.push(measure("random, resident", &irregular(resident, 7), resident, yardstick));
    // Twice as many as fit: every second save frees space among 10,000 fragments.
    rows.push(measure("random, half resident", &irregular(2 * resident, 7), resident, yardstick));
    for compressed in [3_000, 10_000] {
        rows.push(measure_compressed("compressed, reverse", &reverse(compressed), yardstick));
        rows.push(measure_compressed("compressed, random", &irregular(compressed, 7), yardstick));
    }
    let columns = [
        "restore order",
        "checkpoints",
        "in arena",
        "decisions",
        "median us",
        "p99 us",
        "mean us",
        "per second",
        "mean / 1 MiB copy",
    ];
    table::print("Decisions of the core (one call of Core::step)", &columns, &rows);
    println!("a plain copy of 1 MiB: {:.1} us", yardstick / 1e3);
}

/// Checkpoints compressed to about a tenth, one and a half times as many as fit into the arena.
fn measure_compressed(name: &str, versions: &[i64], yardstick: f64) -> Vec<String> {
    let trace = forward_then(uniform(versions.len(), MIB), versions, HINTS);
    measure_trace(name, &trace.compressed(3), versions.len() / 15, yardstick)
}

fn measure(name: &str, versions: &[i64], in_arena: usize, yardstick: f64) -> Vec<String> {
    let trace = forward_then(uniform(versions.len(), MIB), versions, HINTS);
    measure_trace(name, &trace, in_arena, yardstick)
}

fn measure_trace(name: &str, trace: &Trace, in_arena: usize, yardstick: f64) -> Vec<String> {
    let mut steps = match best_of_rounds(trace, in_arena as u64) {
        Ok(steps) => steps,
        Err(reason) => return failed(name, &reason),
    };
    steps.sort_unstable();
    let mean = steps.iter().map(|&nanos| f64::from(nanos)).sum::<f64>() / steps.len() as f64;
    let at = |part: f64| f64::from(steps[(steps.len() as f64 * part) as usize]) / 1e3;
    vec![
        name.to_owned(),
        trace.sizes.len().to_string(),
        in_arena.to_string(),
        steps.len().to_string(),
        format!("{:.2}", at(0.5)),
        format!("{:.2}", at(0.99)),
        format!("{:.2}", mean / 1e3),
        format!("{:.0}", 1e9 / mean),
        format!("{:.3}", mean / yardstick),
    ]
}

fn failed(name: &str, reason: &str) -> Vec<String> {
    let mut row = vec![format!("{name}: {reason}")];
    row.resize(9, "-".to_owned());
    row
}

/// The step times of the round with the smallest sum: those of an undisturbed machine.
fn best_of_rounds(trace: &Trace, in_arena: u64) -> Result<Vec<u32>, String> {
    let mut best: Option<Vec<u32>> = None;
    for _ in 0..ROUNDS {
        let steps = Machine::new(stack(in_arena))?.play(trace, Nanos(10_000))?.steps;
        let sum = |steps: &[u32]| steps.iter().map(|&nanos| u64::from(nanos)).sum::<u64>();
        if best.as_ref().is_none_or(|best| sum(&steps) < sum(best)) {
            best = Some(steps);
        }
    }
    best.ok_or_else(|| "no round was run".to_owned())
}

/// A device arena for `in_arena` checkpoints of 1 MiB, a host arena of three times that, and a disk
/// without a limit.
fn stack(in_arena: u64) -> Config {
    let tier = |kind, capacity| TierConfig { kind, capacity, alignment: 4096 };
    let link = |rate| LinkConfig {
        flush_rate: rate,
        prefetch_rate: rate,
        latency: Nanos(10_000),
        max_in_flight_bytes: 64 * MIB,
        max_in_flight: 16,
    };
    Config {
        tiers: vec![
            tier(TierKind::Device, in_arena * MIB),
            tier(TierKind::Host, 3 * in_arena * MIB),
            tier(TierKind::Disk, u64::MAX),
        ],
        links: vec![link(50e9), link(2e9)],
        discard_after_restore: false,
        durable: false,
        policy: PolicyKind::Score,
        max_retries: 3,
        retry_delay: Nanos(1_000_000),
    }
}

/// Median duration of a plain copy of 1 MiB in nanoseconds.
fn copy_of_one_mib() -> f64 {
    let source = vec![1_u8; MIB as usize];
    let mut target = vec![0_u8; MIB as usize];
    let mut times: Vec<u128> = (0..201)
        .map(|_| {
            let begin = Instant::now();
            target.copy_from_slice(black_box(&source));
            black_box(&mut target);
            begin.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2] as f64
}
