//! A good schedule where the cheapest takes too long to find: states at equal distances.
//!
//! Each level works off a chain in blocks of so many steps, as Revolve works off single steps with
//! the slots there, and leaves every block to the faster levels. As long as there are slots enough,
//! that keeps the first state of each block once, in the forward pass: the periodic schedules of
//! Aupy and Herrmann, "Periodicity in optimal hierarchical checkpointing schemes for adjoint
//! computations", Optim. Methods Softw. 32(3), 2017, which come as close to the cheapest as one
//! likes for more and more steps. What a block size costs is a closed form, so the best one is
//! found by trying. Blocks of one step are Revolve at one level, and one block leaves a level out,
//! so no single level costs less.

use alloc::vec::Vec;

use super::Level;
use super::plan::{How, Part, Plan, revolve_seconds};
use crate::schedule::revolve::{advances, saves};

pub(super) fn plan(steps: u64, levels: &[Level], step_seconds: f64) -> Plan {
    let (cost_seconds, sizes) = best(steps, levels, step_seconds);
    let parts = levels.iter().zip(sizes);
    let parts = parts.map(|(&level, size)| Part { level, how: How::Blocks(size) }).collect();
    Plan { steps, parts, cost_seconds, exact: false }
}

/// The cost and the block sizes of the levels.
fn best(steps: u64, levels: &[Level], step_seconds: f64) -> (f64, [u64; super::MOST]) {
    let [faster @ .., level] = levels else {
        return (if steps < 2 { 0.0 } else { f64::INFINITY }, [1; super::MOST]);
    };
    let mut found = (f64::INFINITY, [1; super::MOST]);
    if faster.is_empty() {
        return (revolve_seconds(steps, level, step_seconds), found.1);
    }
    for size in candidates(steps) {
        let (inside, mut sizes) = best(size, faster, step_seconds);
        sizes[faster.len()] = size;
        let last = seconds(last_block(steps, size), faster, &sizes, step_seconds);
        let cost = over_blocks(steps, size, level, step_seconds, inside, last);
        if cost < found.0 {
            found = (cost, sizes);
        }
    }
    found
}

fn last_block(steps: u64, size: u64) -> u64 {
    (steps - 1) % size + 1
}

/// What a chain costs with these block sizes.
fn seconds(steps: u64, levels: &[Level], sizes: &[u64], step_seconds: f64) -> f64 {
    let [faster @ .., level] = levels else {
        return if steps < 2 { 0.0 } else { f64::INFINITY };
    };
    let size = sizes[faster.len()];
    let inside = if steps > size { seconds(size, faster, sizes, step_seconds) } else { 0.0 };
    let last = seconds(last_block(steps, size), faster, sizes, step_seconds);
    over_blocks(steps, size, level, step_seconds, inside, last)
}

/// What a chain costs at this level if each block costs `inside`, and the last one `last`.
fn over_blocks(
    steps: u64,
    size: u64,
    level: &Level,
    step_seconds: f64,
    inside: f64,
    last: f64,
) -> f64 {
    let blocks = steps.div_ceil(size);
    if blocks < 2 {
        return last;
    }
    let others = (blocks - 1) as f64;
    advances(blocks, level.slots) as f64 * size as f64 * step_seconds
        + saves(blocks, level.slots) as f64 * level.write_seconds
        + others * level.read_seconds
        + others * inside
        + last
}

/// Sizes to try: small ones, equal parts, and a few percent apart in between.
fn candidates(steps: u64) -> Vec<u64> {
    let small = 1..=steps.min(64);
    let parts = (1..=steps.min(64)).map(|parts| steps.div_ceil(parts));
    let between = core::iter::successors(Some(65u64), |size| size.checked_add(size / 24));
    let mut sizes: Vec<u64> = small.chain(parts).collect();
    sizes.extend(between.take_while(|size| *size < steps));
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}
