//! A spool on a fake GPU: what the tiers, the streams and the workers do together, byte for byte.
#![cfg(not(feature = "shuttle"))]

mod sequences;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sequences::{Bank, Done, Outcome, Plan, play, play_through_faults};
use unspool::gpu::Context;
use unspool_device::Driver;
use unspool_fakecuda::Fake;

const KIB: u64 = 1 << 10;

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;

fn context() -> Outcome<Context> {
    Ok(Context::new(&Driver::load()?, 0)?)
}

/// Plays the sequences `0..count` on four threads, each with spools of its own.
fn play_all(count: u64, plan: impl Fn(u64) -> Plan + Sync) -> Outcome<Done> {
    let bank = Bank::new(&context()?, 512 * KIB)?;
    // Beyond the end once one has failed.
    let next = AtomicU64::new(0);
    let worker = || -> Outcome<Done> {
        let mut done = Done::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= count {
                return Ok(done);
            }
            let played = play(&plan(seed), &bank);
            done = done.and(played.inspect_err(|_| next.store(count, Ordering::Relaxed))?);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().try_fold(Done::default(), |sum, thread| {
            let done = thread.join().map_err(|_| "a thread has panicked")?;
            Ok(sum.and(done?))
        })
    })
}

fn plan(seed: u64, directory: &Path) -> Plan {
    Plan {
        seed,
        operations: 30,
        device: 200 * KIB,
        host: if seed.is_multiple_of(5) { 0 } else { 600 * KIB },
        disk: Some(directory.to_owned()),
        largest: 64 * KIB,
        check_order: seed.is_multiple_of(2),
    }
}

#[test]
fn a_thousand_random_sequences_give_back_every_byte() {
    let fake = Fake::start();
    fake.pace(Duration::from_micros(20), 0);
    let directory = tempfile::tempdir().unwrap();
    let done = play_all(1000, |seed| plan(seed, directory.path())).unwrap();
    assert!(done.saves > 10_000 && done.restores > 10_000, "{done:?}");
}

/// Whether the sequences notice that every call of `name` does nothing.
fn is_noticed(name: &str) -> Result<(), String> {
    let fake = Fake::start();
    fake.pace(Duration::from_micros(100), 0);
    fake.fail(name, 0, 0);
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    match play_all(200, |seed| plan(seed, directory.path())) {
        Err(error) if error.to_string().contains("differ") => Ok(()),
        other => Err(format!("{name}: {other:?}")),
    }
}

#[test]
fn streams_that_did_not_wait_for_each_other_would_be_noticed() {
    assert_eq!(is_noticed("cuStreamWaitEvent"), Ok(()));
}

#[test]
fn a_host_that_did_not_wait_for_the_device_would_be_noticed() {
    assert_eq!(is_noticed("cuEventQuery"), Ok(()));
}

/// Plays sequences during each of which the `nth` call of `name` fails with `code`, and gives what
/// was refused.
fn play_with_fault(name: &str, nth: u64, code: u32) -> Result<Vec<String>, String> {
    let fake = Fake::start();
    let text = |error: Box<dyn std::error::Error + Send + Sync>| error.to_string();
    let bank = context().and_then(|context| Bank::new(&context, 512 * KIB)).map_err(text)?;
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut heard = Vec::new();
    for seed in 0..3 {
        // A copy to the host that failed may still be under way when its bytes get a new owner, since
        // what it reads is thrown away: the check of order would see it.
        let plan = Plan { check_order: false, ..plan(seed, directory.path()) };
        fake.fail(name, nth * (seed + 1), code);
        play_through_faults(&plan, &bank, &|| fake.reset(), &mut |text| heard.push(text))
            .map_err(|error| format!("{name}, call {nth} * {}: {error}", seed + 1))?;
    }
    Ok(heard)
}

/// The calls of the driver that a spool makes while it works.
const CALLS: &[&str] = &[
    "cuMemcpyDtoDAsync",
    "cuMemcpyDtoHAsync",
    "cuMemcpyHtoDAsync",
    "cuMemcpy2DAsync",
    "cuMemsetD8Async",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuStreamQuery",
    "cuStreamWaitEvent",
    "cuStreamCreateWithPriority",
    "cuStreamIsCapturing",
    "cuMemAlloc",
    "cuMemHostAlloc",
    "cuMemHostRegister",
    "cuMemAddressReserve",
    "cuMemCreate",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemGetInfo",
    "cuCtxPushCurrent",
];

#[test]
fn a_call_of_the_driver_that_fails_loses_nothing_and_is_named() {
    for name in CALLS {
        for nth in [1, 4, 14, 40] {
            let heard = play_with_fault(name, nth, OUT_OF_MEMORY).unwrap();
            let other = heard.iter().find(|text| !text.contains(name));
            assert_eq!(other, None, "an error for another reason than call {nth} of {name}");
        }
    }
}
