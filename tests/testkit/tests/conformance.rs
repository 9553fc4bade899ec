//! The conformance suite for every tier and every mode of a tier. A new tier is one line.

// A test may report what it could not try.
#![allow(clippy::print_stderr)]

use std::path::Path;
use std::time::Duration;

use unspool_core::TierKind;
use unspool_testkit::conformance::Fixture;
use unspool_testkit::{Counting, Faulty, Gated, Scratch, Throttled, conformance};
use unspool_tiers::{Arena, Disk, DiskIo, DiskOptions};

fn arena(kind: TierKind, capacity: u64) -> Fixture {
    Fixture::new(Arena::new(kind, capacity).expect("a small arena"))
}

fn disk(io: DiskIo, durable: bool, capacity: u64) -> Fixture {
    disk_in(Scratch::new(), io, durable, capacity)
}

fn disk_in(scratch: Scratch, io: DiskIo, durable: bool, capacity: u64) -> Fixture {
    let mut options = DiskOptions::new(scratch.path());
    options.capacity = Some(capacity);
    options.durable = durable;
    options.io = io;
    let asked = Disk::open(options.clone());
    let disk = asked.or_else(|error| {
        // Containers often deny io_uring, and not every file system supports O_DIRECT. The fallback
        // of the tier is then checked instead.
        eprintln!("{error}");
        options.io = DiskIo::Auto;
        Disk::open(options)
    });
    Fixture::with(disk.unwrap_or_else(|error| panic!("{error}")), scratch)
}

/// A scratch directory on a file system in memory.
fn in_memory() -> Scratch {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { Scratch::in_directory(shm) } else { Scratch::new() }
}

conformance!(arena_device, |capacity| arena(TierKind::Device, capacity));
conformance!(arena_host, |capacity| arena(TierKind::Host, capacity));
conformance!(disk_auto, |capacity| disk(DiskIo::Auto, false, capacity));
conformance!(disk_direct, |capacity| disk(DiskIo::Direct, false, capacity));
conformance!(disk_buffered, |capacity| disk(DiskIo::Buffered, false, capacity));
conformance!(disk_uring, |capacity| disk(DiskIo::Uring, false, capacity));
conformance!(disk_durable, |capacity| disk(DiskIo::Auto, true, capacity));
conformance!(disk_durable_buffered, |capacity| disk(DiskIo::Buffered, true, capacity));
conformance!(disk_in_memory, |capacity| disk_in(in_memory(), DiskIo::Auto, false, capacity));
conformance!(wrapped, |capacity| {
    arena(TierKind::Host, capacity)
        .wrapped(Faulty::new)
        .wrapped(Gated::new)
        .wrapped(Counting::new)
        .wrapped(|tier| Throttled::new(tier, 1e12, Duration::ZERO))
});
