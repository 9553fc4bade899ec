//! Sweeps over tiles that do not all fit: the same tiles in the same order, lap after lap.
//!
//! A tile that is only read is one checkpoint that stays. A tile that is rewritten becomes a new
//! checkpoint in each lap, and the one before is discarded (see `unspool.tiled`). The restores of
//! one lap are announced in advance.
//!
//! The bound of a lap is the longer of two times: the computing, and moving the tiles that do not
//! fit into memory once over the link (Belady's rule, 1966).

use unspool_core::{Config, LinkConfig, Nanos, PolicyKind, TierConfig, TierKind};

use crate::machine::{Machine, Outcome};
use crate::table;
use crate::traces::{Action, Trace, uniform, variable};

const MB: u64 = 1_000_000;
const TILES: usize = 64;
const BYTES: u64 = 64 * MB;
/// Bytes a second of the link below the memory, in each direction.
const RATE: f64 = 6.4e9;
/// Laps that are played before those that count.
const BEFORE: usize = 3;
/// Laps that count.
const LAPS: usize = 4;

/// How the tiles of a sweep are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// Read in their order.
    Read,
    /// Read, and rewritten in their order, into room that was asked for before.
    Rewritten,
    /// Read, and rewritten in their order, into room that is asked for when they are encoded.
    Encoded,
    /// Read and rewritten, forwards and backwards in turn.
    ToAndFro,
}

/// Prints the table.
pub fn run() {
    let mut rows = Vec::new();
    for (name, uses, varies) in [
        ("read", Use::Read, false),
        ("rewritten", Use::Rewritten, false),
        ("read, encoded", Use::Read, true),
        ("rewritten, encoded", Use::Encoded, true),
        ("rewritten, save after", Use::Encoded, false),
        ("rewritten, to and fro", Use::ToAndFro, false),
    ] {
        for share in [75, 50, 25] {
            for step in [0, 5, 10, 15] {
                rows.push(row(name, (uses, varies), share, step));
            }
        }
    }
    let columns =
        ["tiles", "in memory %", "step ms", "lap s", "bound s", "of bound %", "up", "down"];
    table::print("Sweeps over 64 tiles, 10 ms of the link each (virtual time)", &columns, &rows);
}

fn row(name: &str, (uses, varies): (Use, bool), share: u64, step: u64) -> Vec<String> {
    let sizes = if varies { variable(TILES, BYTES, 7) } else { uniform(TILES, BYTES) };
    let all: u64 = sizes.iter().sum();
    let room = all * share / 100;
    let lasts = |laps| play(&sizes, uses, room, Nanos(step * 1_000_000), laps);
    let (begin, end) = match (lasts(BEFORE), lasts(BEFORE + LAPS)) {
        (Ok(begin), Ok(end)) => (begin, end),
        (Err(reason), _) | (_, Err(reason)) => return vec![name.to_owned(), reason],
    };
    let lap = |of: fn(&Outcome) -> u64| (of(&end) - of(&begin)) as f64 / LAPS as f64;
    let moves = (all - room) as f64 / RATE;
    let bound = moves.max(TILES as f64 * step as f64 * 1e-3);
    let seconds = lap(|outcome| outcome.total.0) * 1e-9;
    let tiles = |bytes: f64| format!("{:.1}", bytes / all as f64 * TILES as f64);
    vec![
        name.to_owned(),
        share.to_string(),
        step.to_string(),
        format!("{seconds:.3}"),
        format!("{bound:.3}"),
        format!("{:.0}", 100.0 * bound / seconds),
        tiles(lap(|outcome| outcome.prefetched)),
        tiles(lap(|outcome| outcome.flushed)),
    ]
}

fn play(sizes: &[u64], uses: Use, room: u64, step: Nanos, laps: usize) -> Result<Outcome, String> {
    Machine::new(stack(room))?.play(&sweeps(sizes, uses, laps), step)
}

/// Saves all tiles, then sweeps over them.
fn sweeps(sizes: &[u64], uses: Use, laps: usize) -> Trace {
    let count = sizes.len();
    let place = |turn: usize| match (uses, turn / count % 2, turn % count) {
        (Use::ToAndFro, 1, within) => count - 1 - within,
        (_, _, within) => within,
    };
    let version = |turn: usize| {
        let written = if uses == Use::Read { 0 } else { turn / count };
        (place(turn) + written * count) as i64
    };
    let expect = |turn: usize| match uses {
        Use::Read => Action::Expect(version(turn)),
        _ => Action::ExpectLast(version(turn)),
    };
    let mut actions: Vec<Action> = (0..count).map(|tile| Action::Save(tile as i64)).collect();
    actions.extend((0..count).map(expect));
    for turn in 0..laps * count {
        let read = version(turn);
        let written = read + count as i64;
        match uses {
            Use::Read => actions.extend([Action::Restore(read), Action::Compute(1)]),
            Use::Encoded => {
                let saved = [Action::Compute(1), Action::Save(written), Action::Discard(read)];
                actions.push(Action::Restore(read));
                actions.extend(saved);
            }
            Use::Rewritten | Use::ToAndFro => {
                actions.extend([Action::Rewrite(read, written), Action::Discard(read)]);
            }
        }
        actions.push(expect(turn + count));
    }
    let sizes = sizes.iter().copied().cycle().take(count * (laps + 2)).collect();
    Trace { sizes, stored: Vec::new(), actions }
}

fn stack(room: u64) -> Config {
    let tier = |kind, capacity| TierConfig { kind, capacity, alignment: 4096 };
    let link = LinkConfig {
        flush_rate: RATE,
        prefetch_rate: RATE,
        latency: Nanos(10_000),
        max_in_flight_bytes: 4 * BYTES,
        max_in_flight: 2,
    };
    Config {
        tiers: vec![tier(TierKind::Host, room), tier(TierKind::Disk, u64::MAX)],
        links: vec![link],
        discard_after_restore: false,
        durable: false,
        policy: PolicyKind::Score,
        max_retries: 3,
        retry_delay: Nanos(1_000_000),
    }
}
