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

/// A disk with every frame in a file of its own.
fn disk(io: DiskIo, durable: bool, capacity: u64) -> Fixture {
    let scratch = Scratch::new();
    let mut options = DiskOptions::new(scratch.path());
    options.durable = durable;
    options.io = io;
    options.packed_up_to = 0;
    disk_with(scratch, options, capacity)
}

/// A disk that packs small frames together.
fn packing_disk(scratch: Scratch, durable: bool, capacity: u64) -> Fixture {
    let mut options = DiskOptions::new(scratch.path());
    options.durable = durable;
    disk_with(scratch, options, capacity)
}

fn disk_with(scratch: Scratch, mut options: DiskOptions, capacity: u64) -> Fixture {
    options.capacity = Some(capacity);
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
conformance!(disk_packing, |capacity| packing_disk(Scratch::new(), false, capacity));
conformance!(disk_packing_durable, |capacity| packing_disk(Scratch::new(), true, capacity));
conformance!(disk_packing_in_memory, |capacity| packing_disk(in_memory(), false, capacity));
conformance!(wrapped, |capacity| {
    arena(TierKind::Host, capacity)
        .wrapped(Faulty::new)
        .wrapped(Gated::new)
        .wrapped(Counting::new)
        .wrapped(|tier| Throttled::new(tier, 1e12, Duration::ZERO))
});
