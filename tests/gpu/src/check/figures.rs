//! Time until an arena can be used, and until all of it is ready, beside the raw operations.

use std::time::{Duration, Instant};

use unspool_cuda::probe::{ProbeOptions, links, register_at_once};
use unspool_cuda::{
    Context, DeviceArena, DeviceArenaOptions, DeviceMemory, PinnedArena, PinnedMemory,
    PinnedOptions, StagingRing, Stream, Unregistered,
};

use crate::util::{GIB, LONG, MIB, finish, ms, rate, timed, wait_for_releases};

pub fn run(context: &Context) {
    let (found, time) = timed(|| links(context, &ProbeOptions::default()).unwrap());
    println!("probe in {:.0} ms: {found:?}", ms(time));
    host_arena(context, 33, "(first touch of this memory by the machine)");
    for gib in [4, 16, 32, 4, 16, 32] {
        host_arena(context, gib, "");
    }
    at_once(context);
    unregistered(context);
    device_arena(context);
}

fn host_arena(context: &Context, gib: u64, note: &str) {
    let stream = Stream::new(context).unwrap();
    let device = DeviceMemory::new(context, 16 * MIB).unwrap();
    let begin = Instant::now();
    let options = PinnedOptions { keep: false, ..PinnedOptions::default() };
    let arena = PinnedArena::new(context, gib * GIB, &options).unwrap();
    let made = begin.elapsed();
    arena.copy_in(&stream, 0, &device.span(), Unregistered::Pageable).unwrap();
    finish(&stream);
    let copied = begin.elapsed();
    let soon = (arena.touched() / MIB, arena.registered() / MIB);
    arena.wait_registered(16 * MIB, LONG).unwrap();
    let first = begin.elapsed();
    arena.wait_touched(gib * GIB, LONG).unwrap();
    let touched = begin.elapsed();
    arena.wait_registered(gib * GIB, LONG).unwrap();
    let all = begin.elapsed();
    let stats = arena.stats();
    let (_, dropped) = timed(|| drop(arena));
    let (_, released) = timed(wait_for_releases);
    println!(
        "PinnedArena {gib:2} GiB: new {:.2} ms, first 16 MiB copied {:.1} ms (MiB \
         touched and registered by then: {soon:?}), first chunk \
         registered {:.1} ms, touched {:.0} ms ({:.1} GB/s), all registered {:.0} ms ({:.1} GB/s), \
         inside {} calls {:.0} ms, longest {:.1} ms, drop {:.2} ms, released after {:.0} ms {note}",
        ms(made),
        ms(copied),
        ms(first),
        ms(touched),
        rate(gib * GIB, touched),
        ms(all),
        rate(gib * GIB, all),
        stats.calls,
        ms(stats.inside),
        ms(stats.longest),
        ms(dropped),
        ms(released)
    );
}

/// The paper's other strategies: one call for everything.
fn at_once(context: &Context) {
    let bytes = 4 * GIB;
    let (memory, time) = timed(|| PinnedMemory::new(context, bytes).unwrap());
    println!("cuMemHostAlloc 4 GiB: {:.0} ms ({:.1} GB/s)", ms(time), rate(bytes, time));
    let (_, freed) = timed(|| {
        drop(memory);
        wait_for_releases();
    });
    println!("  freed after {:.0} ms", ms(freed));
    for (huge, touch) in [(false, false), (true, false), (true, true)] {
        let parts = register_at_once(context, bytes, huge, touch).unwrap();
        println!(
            "register 4 GiB at once (huge pages {huge}, touched by one thread {touch}): touch \
             {:.0} ms, register {:.0} ms ({:.1} GB/s), unregister {:.0} ms",
            ms(parts.touching),
            ms(parts.registering),
            rate(bytes, parts.registering),
            ms(parts.unregistering)
        );
    }
}

/// Copies into memory that is not registered: untouched, then touched, each by both methods.
fn unregistered(context: &Context) {
    let (stream, bytes) = (Stream::new(context).unwrap(), GIB);
    let device = DeviceMemory::new(context, bytes).unwrap();
    let (ring, time) = timed(|| StagingRing::new(context, 4 * MIB, 4, LONG).unwrap());
    let mut ring = ring;
    println!("staging ring of 4 x 4 MiB: {:.1} ms", ms(time));
    for way in ["pageable", "staged"] {
        let options = PinnedOptions { prepare: false, ..PinnedOptions::default() };
        let arena = PinnedArena::new(context, bytes, &options).unwrap();
        for state in ["untouched", "touched"] {
            let (_, time) = timed(|| {
                let way = match way {
                    "staged" => Unregistered::Staged(&mut ring),
                    _ => Unregistered::Pageable,
                };
                arena.copy_in(&stream, 0, &device.span(), way).unwrap();
                finish(&stream);
            });
            println!("d2h 1 GiB unregistered, {way}, {state}: {:.1} GB/s", rate(bytes, time));
        }
        let (_, time) = timed(|| {
            let way = match way {
                "staged" => Unregistered::Staged(&mut ring),
                _ => Unregistered::Pageable,
            };
            arena.copy_out(&stream, &device.span(), 0, way).unwrap();
            finish(&stream);
        });
        println!("h2d 1 GiB unregistered, {way}, touched: {:.1} GB/s", rate(bytes, time));
    }
    wait_for_releases();
}

fn device_arena(context: &Context) {
    for gib in [1, 4, 16, 64] {
        let begin = Instant::now();
        let arena = DeviceArena::new(context, gib * GIB, &DeviceArenaOptions::default()).unwrap();
        let made = begin.elapsed();
        arena.wait_mapped(GIB, LONG).unwrap();
        let first = begin.elapsed();
        arena.wait_mapped(gib * GIB, LONG).unwrap();
        let all = begin.elapsed();
        drop(arena);
        let (_, released) = timed(wait_for_releases);
        println!(
            "DeviceArena {gib:2} GiB: new {:.2} ms, first chunk {:.2} ms, all {:.2} ms \
             ({:.0} GB/s), released after {:.1} ms",
            ms(made),
            ms(first),
            ms(all),
            rate(gib * GIB, all.max(Duration::from_nanos(1))),
            ms(released)
        );
    }
    let (memory, time) = timed(|| DeviceMemory::new(context, 16 * GIB).unwrap());
    println!("cuMemAlloc 16 GiB: {:.2} ms", ms(time));
    drop(memory);
    wait_for_releases();
}
