//! The cost of the first calls of a process while a large host arena is prepared, what holds them
//! up, and the delay with which a wait notices the end of a copy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use unspool_cuda::{
    Context, DeviceArena, DeviceArenaOptions, Event, FencePool, Pace, PinnedArena, PinnedMemory,
    PinnedOptions, Stream, copy,
};

use crate::util::{GIB, LONG, MIB, ms, timed, wait_for_releases};

pub fn run(context: &Context) {
    for largest_chunk in [64 * MIB, 32 * MIB, 64 * MIB, 32 * MIB, 64 * MIB, 32 * MIB] {
        first_saves(context, 16, largest_chunk);
    }
    longest_calls(context);
    late_waits(context);
}

/// The longest of the calls that a save makes, by the size of chunks and by the gaps between their
/// registrations. Beside them the longest of what threads do that call no driver: a mapping of
/// memory, which needs the lock of the address space, and a short sleep, which shows how late the
/// machine wakes threads up.
fn longest_calls(context: &Context) {
    println!(
        "8 GiB registered beside saves of 1 MiB: longest calls in ms, of three runs each\n\
         chunk  gaps   GB/s   register      wait      copy     fence      mmap     sleep"
    );
    for mib in [8, 16, 32, 64] {
        for gaps in [1.0, 2.0, 4.0] {
            for _ in 0..3 {
                beside_registrations(context, mib * MIB, Pace::Gaps(gaps));
            }
        }
    }
}

fn beside_registrations(context: &Context, largest_chunk: u64, pace: Pace) {
    const ALL: u64 = 8 * GIB;
    let (stream, fences) = (Stream::new(context).unwrap(), FencePool::new(context));
    let device = DeviceArena::new(context, 2 * MIB, &DeviceArenaOptions::default()).unwrap();
    device.wait_mapped(2 * MIB, LONG).unwrap();
    let span = |at: u64| device.span(at * MIB, MIB).unwrap();
    let options = PinnedOptions { largest_chunk, pace, keep: false, ..PinnedOptions::default() };
    let stop = AtomicBool::new(false);
    let longest_of = |act: fn()| {
        let mut longest = Duration::ZERO;
        while !stop.load(Ordering::Relaxed) {
            longest = longest.max(timed(act).1);
        }
        longest
    };
    let begin = Instant::now();
    let host = PinnedArena::new(context, ALL, &options).unwrap();
    host.prepare(ALL);
    let mut before = fences.record(&stream).unwrap();
    let (calls, mapped, slept, all) = std::thread::scope(|scope| {
        let mapping = scope.spawn(|| longest_of(map_and_unmap));
        let sleeping = scope.spawn(|| longest_of(|| std::thread::sleep(Duration::from_micros(50))));
        let mut longest = [Duration::ZERO; 3];
        while host.registered() < ALL && begin.elapsed() < LONG {
            let (_, wait) = timed(|| stream.wait_for(&before).unwrap());
            let (_, copy) = timed(|| copy::device_to_device(&stream, &span(0), &span(1)).unwrap());
            let (fence, record) = timed(|| fences.record(&stream).unwrap());
            for (most, time) in longest.iter_mut().zip([wait, copy, record]) {
                *most = time.max(*most);
            }
            fence.wait(LONG).unwrap();
            before = fence;
            std::thread::sleep(Duration::from_micros(300));
        }
        let all = begin.elapsed();
        stop.store(true, Ordering::Relaxed);
        (longest, mapping.join().unwrap(), sleeping.join().unwrap(), all)
    });
    let [wait, copy, record] = calls.map(ms);
    println!(
        "{:5} {pace:?} {:5.1} {:10.2} {wait:9.2} {copy:9.2} {record:9.2} {:9.2} {:9.2}",
        largest_chunk / MIB,
        ALL as f64 / all.as_secs_f64() / 1e9,
        ms(host.stats().longest),
        ms(mapped),
        ms(slept)
    );
    drop((device, host));
    wait_for_releases();
}

/// Changes the table of the address space: a thread that reads it for long holds this up.
fn map_and_unmap() {
    drop(std::hint::black_box(vec![0u8; 64 * MIB as usize]));
}

/// The operations of a save into the device tier, repeated from the creation of the arena: a wait
/// of the stream, a copy within the device, a fence.
fn first_saves(context: &Context, gib: u64, largest_chunk: u64) {
    let (stream, fences) = (Stream::new(context).unwrap(), FencePool::new(context));
    let begin = Instant::now();
    let device = DeviceArena::new(context, 4 * GIB, &DeviceArenaOptions::default()).unwrap();
    let options = PinnedOptions { largest_chunk, keep: false, ..PinnedOptions::default() };
    let host = PinnedArena::new(context, gib * GIB, &options).unwrap();
    let made = begin.elapsed();
    host.prepare(gib * GIB);
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
        "{gib} GiB host in chunks of {} MiB, 4 GiB device: made {:.2} ms, device mapped \
         +{:.2} ms; saves meanwhile: first {:.2} ms, longest of the first 20 {:.2}, median {:.3}, \
         99 % {:.2}, longest {:.2} ms of {}; all registered after {:.0} ms",
        largest_chunk / MIB,
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
