//! The cost of the first calls of a process while a large host arena is prepared, and the delay
//! with which a wait notices the end of a copy.

use std::time::{Duration, Instant};

use unspool_cuda::{
    Context, DeviceArena, DeviceArenaOptions, Event, FencePool, PinnedArena, PinnedMemory,
    PinnedOptions, Stream, copy,
};

use crate::util::{GIB, LONG, MIB, ms, timed, wait_for_releases};

pub fn run(context: &Context) {
    for gib in [4, 32, 32, 32] {
        first_saves(context, gib);
    }
    late_waits(context);
}

/// The operations of a save into the device tier, repeated from the creation of the arena: a wait
/// of the stream, a copy within the device, a fence.
fn first_saves(context: &Context, gib: u64) {
    let (stream, fences) = (Stream::new(context).unwrap(), FencePool::new(context));
    let begin = Instant::now();
    let device = DeviceArena::new(context, 4 * GIB, &DeviceArenaOptions::default()).unwrap();
    let options = PinnedOptions { keep: false, ..PinnedOptions::default() };
    let host = PinnedArena::new(context, gib * GIB, &options).unwrap();
    let made = begin.elapsed();
    let (_, mapped) = timed(|| device.wait_mapped(GIB, LONG).unwrap());
    let span = |index: u64| device.span(index % 4 * 128 * MIB, 128 * MIB).unwrap();
    let (mut before, mut times) = (fences.record(&stream).unwrap(), Vec::new());
    let mut at = 0;
    while host.registered() < gib * GIB && begin.elapsed() < LONG {
        let (fence, time) = timed(|| {
            stream.wait_for(&before).unwrap();
            copy::device_to_device(&stream, &span(at), &span(at + 1)).unwrap();
            fences.record(&stream).unwrap()
        });
        times.push(time);
        fence.wait(LONG).unwrap();
        (before, at) = (fence, at + 1);
    }
    let all = begin.elapsed();
    let first = times[0];
    let early = times.iter().take(20).max().copied().unwrap_or_default();
    times.sort();
    let share = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)];
    println!(
        "arenas of {gib:2} GiB host, 4 GiB device: made {:.2} ms, device mapped +{:.2} ms; saves \
         meanwhile: first {:.2} ms, longest of the first 20 {:.2}, median {:.3}, 99 % {:.2}, \
         longest {:.2} ms of {}; all registered after {:.0} ms",
        ms(made),
        ms(mapped),
        ms(first),
        ms(early),
        ms(share(50)),
        ms(share(99)),
        ms(share(100)),
        times.len(),
        ms(all)
    );
    drop((device, host));
    wait_for_releases();
}

/// The host's time until a wait returns, minus the device's time of the copy.
fn late_waits(context: &Context) {
    let stream = Stream::new(context).unwrap();
    let arena = DeviceArena::new(context, GIB, &DeviceArenaOptions::default()).unwrap();
    arena.wait_mapped(GIB, LONG).unwrap();
    let host = PinnedMemory::new(context, 512 * MIB).unwrap();
    for mib in [1, 4, 16, 128, 512] {
        let span = arena.span(0, mib * MIB).unwrap();
        let mut late: Vec<(Duration, Duration)> = (0..31)
            .map(|_| {
                let (start, end) = (Event::timed(context).unwrap(), Event::timed(context).unwrap());
                start.record(&stream).unwrap();
                copy::device_to_pinned(&stream, &host, 0, &span).unwrap();
                end.record(&stream).unwrap();
                let (_, waited) = timed(|| end.wait(LONG).unwrap());
                let took = end.since(&start).unwrap();
                (waited.saturating_sub(took), took)
            })
            .collect();
        late.sort();
        let (middle, worst) = (late[15], late[30]);
        println!(
            "waiting for a copy of {mib} MiB ({:.2} ms): noticed {:.1} us late, at most {:.1} us",
            ms(middle.1),
            ms(middle.0) * 1e3,
            ms(worst.0) * 1e3
        );
    }
}
