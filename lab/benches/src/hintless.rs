//! Spools without hints, beside synchronous copies: Score's cells (HPDC'23, section 5.3) in
//! virtual time, on a disk whose reads and writes take turns.
//!
//! Everything is saved, with some computing a step, and restored in one of three orders. A program
//! with synchronous copies keeps what fits into host memory there, in the order of its saves, and
//! reads and writes a file for the rest. A spool with a durable disk flushes as soon as it may. One
//! with an ephemeral disk may wait, and flushes to make room for saves. Both have a device tier.
//!
//! Sizes and irregular orders are random: a row has the mean of several samples, and the sample
//! in which the spool does worst.

use unspool_core::{Config, LinkConfig, Nanos, PolicyKind, TierConfig, TierKind};

use crate::machine::{Machine, Outcome};
use crate::table;
use crate::traces::{
    Hints, Trace, forward_then, irregular, reverse, sequential, uniform, variable,
};

const GIB: u64 = 1 << 30;
const BYTES: u64 = 128 << 20;
const COUNT: usize = 96;
const DEVICE: u64 = GIB;
const HOST: u64 = 8 * GIB;
/// Bytes a second of the link of the device, of writes into the disk, and of reads from it.
const LINK: f64 = 55e9;
const WRITES: f64 = 2.4e9;
const READS: f64 = 2.0e9;
/// Milliseconds of computing between two calls.
const STEPS: [u64; 3] = [0, 10, 100];
const DRAWS: u64 = 8;

/// What is measured of one sample, in seconds and bytes.
struct Sample {
    copies: f64,
    durable: f64,
    spool: f64,
    flushed: [u64; 2],
}

/// Prints the table.
pub fn run() {
    let mut rows = Vec::new();
    for step in STEPS {
        for (sizes, varies) in [("uniform", false), ("variable", true)] {
            for order in ["sequential", "reverse", "irregular"] {
                let samples = (0..DRAWS).map(|seed| measure(varies, order, seed, step)).collect();
                rows.push(row([sizes, order, &step.to_string()], samples));
            }
        }
    }
    let columns = [
        "sizes",
        "order",
        "step ms",
        "copies s",
        "durable s",
        "not durable s",
        "worst",
        "flushed GB",
        "of durable GB",
    ];
    table::print("Without hints, beside synchronous copies (virtual time)", &columns, &rows);
}

fn row(names: [&str; 3], samples: Result<Vec<Sample>, String>) -> Vec<String> {
    let mut cells: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let samples = match samples {
        Ok(samples) => samples,
        Err(reason) => return cells.into_iter().chain([reason]).collect(),
    };
    let mean = |of: fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / samples.len() as f64;
    let worst = samples.iter().map(|sample| sample.spool / sample.copies).fold(0.0, f64::max);
    let times = [mean(|s| s.copies), mean(|s| s.durable), mean(|s| s.spool), worst];
    cells.extend(times.map(|figure| format!("{figure:.2}")));
    let flushed = [mean(|s| s.flushed[1] as f64), mean(|s| s.flushed[0] as f64)];
    cells.extend(flushed.map(|bytes| format!("{:.1}", bytes / 1e9)));
    cells
}

fn measure(varies: bool, order: &str, seed: u64, step: u64) -> Result<Sample, String> {
    let sizes = if varies { variable(COUNT, BYTES, seed) } else { uniform(COUNT, BYTES) };
    let order = match order {
        "sequential" => sequential(COUNT),
        "reverse" => reverse(COUNT),
        _ => irregular(COUNT, seed),
    };
    let step = Nanos(step * 1_000_000);
    let copies = synchronous(&sizes, step);
    let trace = forward_then(sizes, &order, Hints::None);
    let [durable, spool] = [play(&trace, step, true)?, play(&trace, step, false)?];
    Ok(Sample {
        copies,
        durable: seconds(durable.total),
        spool: seconds(spool.total),
        flushed: [durable.flushed, spool.flushed],
    })
}

fn play(trace: &Trace, step: Nanos, durable: bool) -> Result<Outcome, String> {
    Machine::new(stack(durable))?.with_one_disk().play(trace, step)
}

fn seconds(time: Nanos) -> f64 {
    time.0 as f64 * 1e-9
}

/// Both passes of a program with synchronous copies.
fn synchronous(sizes: &[u64], step: Nanos) -> f64 {
    let mut held = 0;
    let mut time = 2.0 * seconds(step) * sizes.len() as f64;
    for &bytes in sizes {
        held += bytes;
        time += 2.0 * bytes as f64 / LINK;
        if held > HOST {
            time += bytes as f64 / WRITES + bytes as f64 / READS;
        }
    }
    time
}

fn stack(durable: bool) -> Config {
    let tier = |kind, capacity| TierConfig { kind, capacity, alignment: 4096 };
    let link = |flush_rate, prefetch_rate, latency| LinkConfig {
        flush_rate,
        prefetch_rate,
        latency: Nanos(latency),
        max_in_flight_bytes: 256 << 20,
        max_in_flight: 8,
    };
    Config {
        tiers: vec![
            tier(TierKind::Device, DEVICE),
            tier(TierKind::Host, HOST),
            tier(TierKind::Disk, u64::MAX),
        ],
        links: vec![link(LINK, LINK, 10_000), link(WRITES, READS, 100_000)],
        discard_after_restore: false,
        durable,
        policy: PolicyKind::Score,
        max_retries: 3,
        retry_delay: Nanos(1_000_000),
    }
}
