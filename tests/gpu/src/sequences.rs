//! Random sequences of calls of a spool on this machine's GPU, compared byte for byte with what was
//! saved: the same sequences as in the tests on a fake GPU.
//!
//! `cargo run --release --bin gpu_sequences -- [SEQUENCES] [FIRST_SEED]`, by default 1,000 from 0
//! on. Array sizes alternate between small, larger and large ones, whose copies last longer than
//! the calls. Four sequences run at once, each with its own spool.

#![allow(clippy::print_stdout)]

#[path = "../../../engine/spool/tests/sequences/mod.rs"]
mod sequences;

use std::time::Instant;

use sequences::{Bank, Outcome, Plan, play_many};
use unspool::gpu::Context;
use unspool_cuda::Driver;

const KIB: u64 = 1 << 10;

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let count = arguments.next().transpose()?.unwrap_or(1000);
    let first = arguments.next().transpose()?.unwrap_or(0);
    println!("{}", unspool_gpu_tests::ship_kernels());
    let context = Context::new(&Driver::load()?, 0)?;
    let bank = Bank::new(&context, 32 << 20)?;
    let (directory, began) = (tempfile::tempdir()?, Instant::now());
    let plan = |seed: u64| {
        let largest = [64 * KIB, 512 * KIB, 8192 * KIB][(seed % 3) as usize];
        Plan::small(seed, largest, directory.path())
    };
    let done = play_many(first..first + count, &bank, plan)?;
    println!("{count} sequences from seed {first} on, on {}:", context.device().name);
    println!("{} saves, {} restores, {} given up", done.saves, done.restores, done.given_up);
    let mib = done.compared_bytes >> 20;
    println!("{mib} MiB compared, no byte differs; {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}
