//! The random sequences on a fake GPU find waits that are missing. In a process of its own: what is
//! not waited for here may still be under way when the next test of the process begins.

mod sequences;

use std::time::Duration;

use sequences::{Bank, Plan, play_many};
use unspool::gpu::Context;
use unspool_cuda::Driver;
use unspool_fakecuda::Fake;

const KIB: u64 = 1 << 10;

/// What the sequences say when every call of `name` does nothing.
fn played_without(name: &str) -> Result<(), String> {
    let fake = Fake::start();
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let driver = Driver::load().map_err(|error| text(&error))?;
    let context = Context::new(&driver, 0).map_err(|error| text(&error))?;
    let bank = Bank::new(&context, 512 * KIB).map_err(|error| text(&error))?;
    let directory = tempfile::tempdir().map_err(|error| text(&error))?;
    fake.pace(Duration::from_micros(100), 0);
    fake.fail(name, 0, 0);
    let plan = |seed| Plan { check_order: false, ..Plan::small(seed, 64 * KIB, directory.path()) };
    play_many(0..200, &bank, plan).map(drop).map_err(|error| text(&error))
}

/// Wrong bytes come to light in an array, in a stream that is decoded, or in the result of an
/// encoder that is read before it is there, which may also contradict the room that it had: which
/// of them is first is up to the threads.
fn assert_noticed(found: &str) {
    let ways = ["bytes differ", "stream is damaged", "was never saved", "has room for"];
    assert!(ways.iter().any(|way| found.contains(way)), "{found}");
}

#[test]
fn streams_that_do_not_wait_for_each_other_are_noticed() {
    assert_noticed(&played_without("cuStreamWaitEvent").unwrap_err());
}

#[test]
fn a_host_that_does_not_wait_for_the_device_is_noticed() {
    assert_noticed(&played_without("cuEventQuery").unwrap_err());
}
