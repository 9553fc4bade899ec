//! A spool on a fake GPU: what the tiers, the streams and the workers do together, byte for byte.

mod sequences;

use std::time::Duration;

use sequences::{
    Bank, Outcome, Plan, play_many, play_through_faults, play_together, play_until_it_breaks,
};
use unspool::gpu::Context;
use unspool_cuda::Driver;
use unspool_fakecuda::Fake;

const KIB: u64 = 1 << 10;

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;

fn context() -> Outcome<Context> {
    Ok(Context::new(&Driver::load()?, 0)?)
}

/// How many sequences: `UNSPOOL_SEQUENCES`, or few enough to take some seconds.
fn sequences() -> u64 {
    let set = std::env::var("UNSPOOL_SEQUENCES").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(300)
}

/// Latencies in microseconds and bytes a second of a copy: a device that is ahead of the host, one
/// that is beside it, and one that is far behind.
const PACES: [(u64, u64); 3] = [(0, 0), (20, 0), (150, 1 << 30)];

#[test]
fn random_sequences_give_back_every_byte() {
    let fake = Fake::start();
    let bank = Bank::new(&context().unwrap(), 512 * KIB).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let plan = |seed| Plan::small(seed, 64 * KIB, directory.path());
    let count = sequences() / 3;
    for (round, (latency, bandwidth)) in (0..).zip(PACES) {
        fake.pace(Duration::from_micros(latency), bandwidth);
        let done = play_many(round * count..(round + 1) * count, &bank, plan).unwrap();
        assert!(done.saves > 8 * count && done.restores > 8 * count, "{done:?}");
    }
}

#[test]
fn threads_of_an_application_share_a_spool() {
    let fake = Fake::start();
    fake.pace(Duration::from_micros(20), 0);
    let bank = Bank::new(&context().unwrap(), 512 * KIB).unwrap();
    let directory = tempfile::tempdir().unwrap();
    for seed in 0..30 {
        let plan = Plan::small(seed, 64 * KIB, directory.path());
        let plan = Plan { device: 2 * plan.device, ..plan };
        let done = play_together(&plan, &bank, 4).unwrap();
        assert!(done.saves > 20 && done.restores > 20, "{done:?}");
    }
}

#[test]
fn a_device_that_is_lost_in_the_middle_gives_no_wrong_bytes_and_the_spool_ends() {
    let fake = Fake::start();
    let directory = tempfile::tempdir().unwrap();
    let mut refused = 0;
    for seed in 0..60 {
        let bank = Bank::new(&context().unwrap(), 512 * KIB).unwrap();
        let plan = Plan::small(seed, 64 * KIB, directory.path());
        let plan = Plan { check_order: false, ..plan };
        fake.fail("execute", 20 + 5 * seed, 700);
        refused += play_until_it_breaks(&plan, &bank).unwrap().refused;
        fake.reset();
    }
    assert!(refused > 60, "{refused} calls were refused");
}

/// Plays sequences during each of which the `nth` call of the first of `names` fails with `code`,
/// and every call of the others; gives what was refused.
fn play_with_fault(names: &[&str], nth: u64, code: u32) -> Result<Vec<String>, String> {
    let fake = Fake::start();
    let text = |error: Box<dyn std::error::Error + Send + Sync>| error.to_string();
    let bank = context().and_then(|context| Bank::new(&context, 512 * KIB)).map_err(text)?;
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut heard = Vec::new();
    for seed in 0..3 {
        // A copy to the host that failed may still be under way when its bytes get a new owner,
        // since what it reads is thrown away: the check of order would see it.
        let plan = Plan::small(seed, 64 * KIB, directory.path());
        let plan = Plan { check_order: false, ..plan };
        fake.fail(names[0], nth * (seed + 1), code);
        names[1..].iter().for_each(|name| fake.fail(name, 0, code));
        play_through_faults(&plan, &bank, &|| fake.reset(), &mut |text| heard.push(text))
            .map_err(|error| format!("{names:?}, call {nth} * {}: {error}", seed + 1))?;
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
            let heard = play_with_fault(&[name], nth, OUT_OF_MEMORY).unwrap();
            let other = heard.iter().find(|text| !text.contains(name));
            assert_eq!(other, None, "an error for another reason than call {nth} of {name}");
        }
    }
}

#[test]
fn bytes_whose_last_use_can_neither_be_marked_nor_waited_for_are_kept_from_others() {
    let names = ["cuEventRecord", "cuStreamQuery", "cuCtxSynchronize"];
    let heard = |nth| play_with_fault(&names, nth, OUT_OF_MEMORY).unwrap().len();
    assert!([2, 5, 9, 17, 30].map(heard).iter().sum::<usize>() > 0, "nothing has failed");
}
