//! Byte-for-byte checks of copies.

use std::time::Duration;

use unspool_cuda::kernels::pattern::{self, Pattern};
use unspool_cuda::{
    Context, DeviceArena, DeviceArenaOptions, DeviceSpan, Event, Pace, PinnedArena, PinnedOptions,
    Poll, StagingRing, Stream, Unregistered, current_context,
};

use crate::util::{GIB, LONG, MIB, Random, finish, wait_for_releases};

const SEED: u64 = 20_261_121;

pub fn run(context: &Context) {
    let mut bench = Bench::new(context);
    bench.kernels_and_host_agree();
    bench.across_borders();
    bench.while_preparing(Way::Pageable, Pace::default());
    bench.while_preparing(Way::Staged, Pace::Unpaced);
    bench.within_the_device();
    streams_and_events(context);
    assert_eq!(current_context().unwrap(), 0, "a context was left current");
    wait_for_releases();
    println!("checks of copies: all passed (seed {SEED})");
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Pageable,
    Staged,
}

struct Bench {
    context: Context,
    stream: Stream,
    pattern: Pattern,
    device: DeviceArena,
    ring: StagingRing,
    random: Random,
}

const DEVICE: u64 = 256 * MIB;
const HALF: u64 = DEVICE / 2;

impl Bench {
    fn new(context: &Context) -> Bench {
        let options = DeviceArenaOptions { chunk: 32 * MIB, ..DeviceArenaOptions::default() };
        let device = DeviceArena::new(context, DEVICE, &options).unwrap();
        device.wait_mapped(DEVICE, LONG).unwrap();
        Bench {
            context: context.clone(),
            stream: Stream::new(context).unwrap(),
            pattern: Pattern::new(context).unwrap(),
            device,
            ring: StagingRing::new(context, 4 * MIB, 4, LONG).unwrap(),
            random: Random::new(SEED),
        }
    }

    fn kernels_and_host_agree(&mut self) {
        let host = PinnedArena::new(&self.context, MIB, &PinnedOptions::default()).unwrap();
        let span = self.device.span(5, 70_001).unwrap();
        self.pattern.fill(&self.stream, &span, 9, 123).unwrap();
        host.copy_in(&self.stream, 3, &span, Unregistered::Pageable).unwrap();
        finish(&self.stream);
        // SAFETY: the only copy is done.
        let bytes = unsafe { host.bytes(3, 70_001) }.unwrap();
        assert_eq!(pattern::first_wrong(bytes, 9, 123), None);
        let wrong = self.pattern.count_wrong(&self.stream, &span, (9, 124), LONG).unwrap();
        assert!(wrong > 60_000, "the kernel that looks for wrong bytes finds none: {wrong}");
    }

    /// A random range of at most `most` bytes: small, large, or ending at the edge.
    fn range(&mut self, capacity: u64, most: u64) -> (u64, u64) {
        let largest = match self.random.below(4) {
            0 => 300,
            1 => 70_000,
            _ => most,
        };
        let len = 1 + self.random.below(largest.min(capacity));
        let offset = match self.random.below(5) {
            0 => capacity - len,
            // Near a border of the smallest chunks.
            1 => (self.random.below(capacity / (2 * MIB)) * 2 * MIB).saturating_sub(len / 2),
            _ => self.random.below(capacity - len + 1),
        };
        (offset.min(capacity - len), len)
    }

    /// Fills device memory with the pattern of `seed` and copies it into the arena.
    fn send(&mut self, arena: &PinnedArena, (offset, len): (u64, u64), seed: u64, way: Way) {
        let span = self.lower(len);
        self.pattern.fill(&self.stream, &span, seed, offset).unwrap();
        let way = match way {
            Way::Pageable => Unregistered::Pageable,
            Way::Staged => Unregistered::Staged(&mut self.ring),
        };
        arena.copy_in(&self.stream, offset, &span, way).unwrap();
    }

    /// Copies bytes of the arena to the device and counts the wrong ones.
    fn receive(&mut self, arena: &PinnedArena, (offset, len): (u64, u64), seed: u64, way: Way) {
        let at = HALF + self.random.below(HALF - len + 1);
        let span = self.device.span(at, len).unwrap();
        let way = match way {
            Way::Pageable => Unregistered::Pageable,
            Way::Staged => Unregistered::Staged(&mut self.ring),
        };
        arena.copy_out(&self.stream, &span, offset, way).unwrap();
        let wrong = self.pattern.count_wrong(&self.stream, &span, (seed, offset), LONG).unwrap();
        assert_eq!(wrong, 0, "{wrong} of {len} bytes at {offset} differ ({arena:?})");
    }

    fn lower(&mut self, len: u64) -> DeviceSpan {
        let at = self.random.below(HALF - len + 1);
        self.device.span(at, len).unwrap()
    }

    /// Copies with everything registered and small chunks, so that many borders are crossed. A
    /// shadow in plain memory holds the expected content of the whole arena.
    fn across_borders(&mut self) {
        let capacity = 200 * MIB + 12_345;
        let options = PinnedOptions {
            first_chunk: 2 * MIB,
            largest_chunk: 16 * MIB,
            keep: false,
            ..PinnedOptions::default()
        };
        let arena = PinnedArena::new(&self.context, capacity, &options).unwrap();
        arena.wait_registered(capacity, LONG).unwrap();
        let mut shadow = vec![0u8; capacity as usize];
        for round in 0..150 {
            let range = self.range(capacity, 24 * MIB);
            self.send(&arena, range, round, Way::Pageable);
            let (begin, end) = (range.0 as usize, (range.0 + range.1) as usize);
            pattern::fill(&mut shadow[begin..end], round, range.0);
            self.receive(&arena, range, round, Way::Pageable);
        }
        finish(&self.stream);
        // SAFETY: all copies are done.
        let bytes = unsafe { arena.bytes(0, capacity) }.unwrap();
        assert!(bytes == shadow, "the arena differs from its shadow");
        println!("150 random copies in and out across chunk borders: byte for byte right");
    }

    /// Copies into and out of an arena that is being touched and registered meanwhile.
    fn while_preparing(&mut self, way: Way, pace: Pace) {
        let capacity = 6 * GIB;
        let options = PinnedOptions { pace, keep: false, ..PinnedOptions::default() };
        let arena = PinnedArena::new(&self.context, capacity, &options).unwrap();
        let _busy = arena.busy();
        let (mut early, mut copies, mut last) = (0, 0u64, Vec::new());
        while copies < 40 || (arena.registered() < capacity && copies < 4000) {
            let slot = copies % 40;
            let range = (slot * (capacity / 40) + self.random.below(MIB), 100 * MIB);
            let range = (range.0, 1 + self.random.below(range.1.min(HALF)));
            early += u64::from(arena.registered() < range.0 + range.1);
            let seed = 1000 + copies;
            self.send(&arena, range, seed, way);
            self.receive(&arena, range, seed, way);
            last.retain(|&(other, _, _)| other != slot);
            last.push((slot, range, seed));
            copies += 1;
        }
        arena.wait_registered(capacity, LONG).unwrap();
        for (_, range, seed) in last {
            self.receive(&arena, range, seed, way);
        }
        assert!(early > 0, "no copy came before its bytes were registered");
        println!(
            "{copies} copies while preparing ({way:?}, {pace:?}), {early} of them early: right"
        );
    }

    fn within_the_device(&mut self) {
        for round in 0..60 {
            let (_, len) = self.range(HALF, 30 * MIB);
            let (from, at) = (self.lower(len), HALF + self.random.below(HALF - len + 1));
            let to = self.device.span(at, len).unwrap();
            self.pattern.fill(&self.stream, &from, round, 7).unwrap();
            unspool_cuda::copy::device_to_device(&self.stream, &to, &from).unwrap();
            let wrong = self.pattern.count_wrong(&self.stream, &to, (round, 7), LONG).unwrap();
            assert_eq!(wrong, 0);
        }
        println!("60 random copies within the device, across its chunks: right");
    }
}

fn streams_and_events(context: &Context) {
    let ours = Stream::new(context).unwrap();
    // SAFETY: the stream outlives the borrow.
    let borrowed = unsafe { Stream::borrow(context, ours.handle()) }.unwrap();
    // SAFETY: the number of the per-thread default stream.
    let per_thread = unsafe { Stream::borrow(context, 2) }.unwrap();
    let defaults = [Stream::legacy_default(context), per_thread];
    for stream in defaults.iter().chain([&ours, &borrowed]) {
        let event = stream.record().unwrap();
        borrowed.wait_for(&event).unwrap();
        event.wait(LONG).unwrap();
        assert!(matches!(event.poll(), Poll::Done));
    }
    let (start, end) = (Event::timed(context).unwrap(), Event::timed(context).unwrap());
    let memory = unspool_cuda::DeviceMemory::new(context, GIB).unwrap();
    start.record(&ours).unwrap();
    for byte in 0..40 {
        unspool_cuda::copy::fill(&ours, &memory.span(), byte).unwrap();
    }
    end.record(&ours).unwrap();
    assert!(matches!(end.poll(), Poll::NotYet), "40 GiB are not written in no time");
    assert!(end.wait(Duration::from_micros(1)).is_err(), "the limit of a wait is kept");
    end.wait(LONG).unwrap();
    assert!(end.since(&start).unwrap() > Duration::from_micros(100));
    println!("streams (own, borrowed, both defaults) and events: right");
}
