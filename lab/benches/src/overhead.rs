//! The cost of the spool itself: nanoseconds of a save and a restore of 64 bytes, and the rates of
//! larger ones against plain copies in the same run.
//!
//! `cargo run --release -p unspool --example overhead`
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use unspool::{Dtype, Error, RegionSpec, Settings, Spool, Wait};

const MIB: usize = 1 << 20;

fn main() -> Result<(), Error> {
    small()?;
    println!(
        "{:>8} {:>10} {:>10} {:>10} {:>8} {:>8}",
        "MiB", "memcpy", "save", "restore", "s/m", "r/m"
    );
    for mib in [1, 8, 32, 128] {
        large(mib * MIB)?;
    }
    Ok(())
}

fn spec(bytes: usize) -> Vec<RegionSpec> {
    vec![RegionSpec { name: "u".into(), dtype: Dtype::UInt8, shape: vec![bytes as u64] }]
}

fn save(spool: &Spool, version: i64, from: &[u8]) -> Result<(), Error> {
    let mut ticket = spool.save(version, spec(from.len()), &Wait::default())?;
    ticket.host_region(0).expect("main memory").copy_from_slice(from);
    ticket.commit()
}

fn restore(spool: &Spool, version: i64, to: &mut [u8]) -> Result<(), Error> {
    let ticket = spool.restore(version, &Wait::default())?;
    to.copy_from_slice(ticket.host_region(0).expect("main memory"));
    ticket.finish()
}

/// Saves and restores of 64 bytes in the fastest tier, with different numbers of checkpoints there.
fn small() -> Result<(), Error> {
    for count in [1, 100, 1000, 10_000] {
        let spool = Spool::open(Settings { device: Some(64 << 20), ..Settings::default() })?;
        let (from, mut to) = ([7; 64], [0; 64]);
        let (mut saving, mut restoring, mut hinted) =
            (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let rounds = 20_000 / count;
        for _ in 0..rounds {
            saving += timed(|| (0..count).try_for_each(|v| save(&spool, v, &from)))?;
            restoring += timed(|| (0..count).try_for_each(|v| restore(&spool, v, &mut to)))?;
            spool.expect((0..count).rev())?;
            hinted += timed(|| (0..count).rev().try_for_each(|v| restore(&spool, v, &mut to)))?;
            (0..count).try_for_each(|v| spool.discard(v))?;
        }
        let each = |time: Duration| time.as_nanos() as f64 / (count * rounds) as f64;
        println!(
            "64 bytes, {count} checkpoints: save {:.0} ns, restore {:.0} ns, expected {:.0} ns",
            each(saving),
            each(restoring),
            each(hinted)
        );
    }
    Ok(())
}

/// Rates of one size in GB/s: the best of several rounds, with all memory touched before.
fn large(bytes: usize) -> Result<(), Error> {
    const VERSIONS: i64 = 4;
    let rounds = (1 << 30) / (bytes * VERSIONS as usize);
    let device = Some((bytes as u64) * VERSIONS as u64);
    let spool = Spool::open(Settings { device, ..Settings::default() })?;
    let (from, mut to) = (vec![7; bytes], vec![0; bytes]);
    let mut plain = vec![vec![1; bytes]; VERSIONS as usize];
    let (mut copy, mut saving, mut restoring) = (Duration::MAX, Duration::MAX, Duration::MAX);
    for _ in 0..rounds.max(5) {
        let mut copy_all = || plain.iter_mut().for_each(|p| black_box(p).copy_from_slice(&from));
        copy = copy.min(timed(|| {
            copy_all();
            Ok(())
        })?);
        let save_all = || (0..VERSIONS).try_for_each(|v| save(&spool, v, &from));
        saving = saving.min(timed(save_all)?);
        let restore_all = || (0..VERSIONS).try_for_each(|v| restore(&spool, v, &mut to));
        restoring = restoring.min(timed(restore_all)?);
        (0..VERSIONS).try_for_each(|v| spool.discard(v))?;
    }
    let rate = |time: Duration| bytes as f64 * VERSIONS as f64 / time.as_secs_f64() / 1e9;
    println!(
        "{:>8} {:>10.2} {:>10.2} {:>10.2} {:>8.3} {:>8.3}",
        bytes / MIB,
        rate(copy),
        rate(saving),
        rate(restoring),
        copy.as_secs_f64() / saving.as_secs_f64(),
        copy.as_secs_f64() / restoring.as_secs_f64(),
    );
    Ok(())
}

fn timed(work: impl FnOnce() -> Result<(), Error>) -> Result<Duration, Error> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}
