//! The conformance suite for the arenas of a GPU: on a fake driver, or with UNSPOOL_TEST_GPU=1 on
//! the machine's own GPU.

use std::sync::{Arc, Once};
use std::time::Duration;

use unspool_cuda::{DeviceArenaOptions, PinnedOptions};
use unspool_fakecuda::Fake;
use unspool_testkit::conformance;
use unspool_testkit::conformance::Fixture;
use unspool_tiers::{Arena, Gpu};

static DRIVER: Once = Once::new();

fn gpu() -> Arc<Gpu> {
    DRIVER.call_once(|| {
        if std::env::var_os("UNSPOOL_TEST_GPU").is_none() {
            // Checks run concurrently and nothing is injected: one fake stays for all of them.
            std::mem::forget(Fake::start_with(&[("FAKECUDA_MEMORY", "68719476736")]));
        }
    });
    Gpu::open(0, Duration::from_secs(60)).unwrap_or_else(|error| panic!("{error}"))
}

fn on_device(capacity: u64) -> Fixture {
    let arena = Arena::on_device(&gpu(), capacity, &DeviceArenaOptions::default());
    Fixture::new(arena.unwrap_or_else(|error| panic!("{error}")))
}

/// Small chunks, so that most frames cross their borders.
fn pinned(capacity: u64, prepare: bool) -> Fixture {
    let options = PinnedOptions {
        first_chunk: 2 << 20,
        largest_chunk: 2 << 20,
        prepare,
        ..Default::default()
    };
    let arena = Arena::pinned(&gpu(), capacity, &options);
    Fixture::new(arena.unwrap_or_else(|error| panic!("{error}")))
}

conformance!(device, on_device);
conformance!(host, |capacity| pinned(capacity, true));
conformance!(host_that_is_never_registered, |capacity| pinned(capacity, false));
