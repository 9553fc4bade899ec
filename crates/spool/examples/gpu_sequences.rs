//! Random sequences of calls on a spool on this machine's GPU, compared byte for byte with what was
//! saved: the sequences that the tests play on a fake GPU.
//!
//! `cargo run --release --example gpu_sequences -- [SEQUENCES] [FIRST_SEED]`, by default 1,000 from
//! 0 on. Small and large arrays take turns, arenas are too small for either. Four sequences are
//! played at once, each with a spool of its own; every other one with the check of stream order.

#![allow(clippy::print_stdout)]

#[path = "../tests/sequences/mod.rs"]
mod sequences;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use sequences::{Bank, Done, Outcome, Plan, play};
use unspool::gpu::Context;
use unspool_device::Driver;

const KIB: u64 = 1 << 10;
const THREADS: usize = 4;

fn plan(seed: u64, directory: &Path) -> Plan {
    // The third kind is large enough for copies that last longer than the calls.
    let unit = [64 * KIB, 512 * KIB, 8192 * KIB][(seed % 3) as usize];
    Plan {
        seed,
        operations: 30,
        device: 3 * unit,
        host: if seed.is_multiple_of(5) { 0 } else { 9 * unit },
        disk: Some(directory.to_owned()),
        largest: unit,
        check_order: seed.is_multiple_of(2),
    }
}

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let count = arguments.next().transpose()?.unwrap_or(1000);
    let first = arguments.next().transpose()?.unwrap_or(0);
    let context = Context::new(&Driver::load()?, 0)?;
    let bank = Bank::new(&context, 32 << 20)?;
    let directory = tempfile::tempdir()?;
    let (next, began) = (AtomicU64::new(first), Instant::now());
    let worker = || play_some(&next, first + count, &bank, directory.path());
    let done = std::thread::scope(|scope| -> Outcome<Done> {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().try_fold(Done::default(), |sum, thread| {
            Ok(sum.and(thread.join().map_err(|_| "a thread has panicked")??))
        })
    })?;
    println!("{count} sequences from seed {first} on, on {}:", context.device().name);
    println!("{} saves, {} restores, {} given up", done.saves, done.restores, done.given_up);
    let mib = done.compared_bytes >> 20;
    println!("{mib} MiB compared, no byte differs; {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

fn play_some(next: &AtomicU64, end: u64, bank: &Bank, directory: &Path) -> Outcome<Done> {
    let mut done = Done::default();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return Ok(done);
        }
        let played = play(&plan(seed, directory), bank);
        done = done.and(played.inspect_err(|_| next.store(end, Ordering::Relaxed))?);
    }
}
