//! The effect of registrations on concurrent copies, by chunk size and pace: the measurements
//! behind engine/decisions/0020.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use unspool_cuda::{
    Context, DeviceMemory, Pace, PinnedArena, PinnedMemory, PinnedOptions, Stream, copy,
};

use crate::util::{GIB, LONG, MIB, finish, ms, rate, wait_for_releases};

const ARENA: u64 = 8 * GIB;
const COPY: u64 = 16 * MIB;

/// Results of one thread that copies without a pause.
#[derive(Default)]
struct Seen {
    copies: u64,
    time: Duration,
    longest: Duration,
    /// Time beyond that of undisturbed copies.
    lost: Duration,
}

struct Copier {
    stream: Stream,
    device: DeviceMemory,
    host: PinnedMemory,
}

impl Copier {
    fn once(&self) -> Duration {
        let begin = Instant::now();
        copy::device_to_pinned(&self.stream, &self.host, 0, &self.device.span()).unwrap();
        finish(&self.stream);
        begin.elapsed()
    }

    /// Copies until `stop`, waiting for each copy.
    fn copy_until(&self, stop: &AtomicBool, usual: Duration) -> Seen {
        let mut seen = Seen::default();
        while !stop.load(Ordering::Relaxed) {
            let took = self.once();
            seen.copies += 1;
            seen.time += took;
            seen.longest = seen.longest.max(took);
            seen.lost += took.saturating_sub(usual);
        }
        seen
    }
}

pub fn run(context: &Context) {
    let copier = Copier {
        stream: Stream::new(context).unwrap(),
        device: DeviceMemory::new(context, COPY).unwrap(),
        host: PinnedMemory::new(context, COPY).unwrap(),
    };
    let mut usual: Vec<Duration> = (0..100).map(|_| copier.once()).collect();
    usual.sort();
    let usual = usual[50];
    println!(
        "one copy of 16 MiB, undisturbed: {:.3} ms ({:.1} GB/s)",
        ms(usual),
        rate(COPY, usual)
    );
    println!("pace       chunk   all ms  GB/s  calls longest  copies GB/s  longest    lost");
    for mib in [32, 64, 128, 256, 512, 1024] {
        for pace in [Pace::Unpaced, Pace::Gaps(1.0), Pace::Gaps(2.0)] {
            measure(context, &copier, usual, mib, pace);
        }
    }
    beside_host_alloc(context, &copier, usual);
}

fn measure(context: &Context, copier: &Copier, usual: Duration, mib: u64, pace: Pace) {
    let stop = AtomicBool::new(false);
    let largest_chunk = mib * MIB;
    let options = PinnedOptions { largest_chunk, pace, keep: false, ..PinnedOptions::default() };
    let (all, stats, seen) = std::thread::scope(|scope| {
        let copying = scope.spawn(|| copier.copy_until(&stop, usual));
        let begin = Instant::now();
        let arena = PinnedArena::new(context, ARENA, &options).unwrap();
        let busy = arena.busy();
        let waited = arena.wait_registered(ARENA, LONG);
        stop.store(true, Ordering::Relaxed);
        waited.unwrap();
        drop(busy);
        (begin.elapsed(), arena.stats(), copying.join().unwrap())
    });
    wait_for_releases();
    println!(
        "{:10} {mib:5}  {:7.0} {:5.1} {:6} {:6.1} {:12.1} {:8.1} {:7.1}",
        format!("{pace:?}"),
        ms(all),
        rate(ARENA, all),
        stats.calls,
        ms(stats.longest),
        rate(COPY * seen.copies, seen.time),
        ms(seen.longest),
        ms(seen.lost)
    );
}

/// The same copies while the driver allocates and pins memory in one call.
fn beside_host_alloc(context: &Context, copier: &Copier, usual: Duration) {
    let stop = AtomicBool::new(false);
    let (all, seen) = std::thread::scope(|scope| {
        let copying = scope.spawn(|| copier.copy_until(&stop, usual));
        let begin = Instant::now();
        let memory = PinnedMemory::new(context, 4 * GIB).unwrap();
        let all = begin.elapsed();
        stop.store(true, Ordering::Relaxed);
        drop(memory);
        (all, copying.join().unwrap())
    });
    wait_for_releases();
    println!(
        "cuMemHostAlloc of 4 GiB meanwhile: {:.0} ms; copies {:.1} GB/s, longest {:.1} ms, lost \
         {:.1} ms",
        ms(all),
        rate(COPY * seen.copies, seen.time),
        ms(seen.longest),
        ms(seen.lost)
    );
}
