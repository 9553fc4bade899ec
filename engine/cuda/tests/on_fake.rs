//! The arenas over a fake driver, on machines without a GPU: operations are late, overlap, and come
//! in many orders, and any error of a GPU can be provoked here.

use std::time::{Duration, Instant};

use unspool_cuda::{
    Context, DeviceArena, DeviceArenaOptions, DeviceError, DeviceErrorKind, DeviceMemory,
    DeviceSpan, Driver, Pace, PinnedArena, PinnedOptions, StagingRing, Stream, StridedCopies,
    StridedLayout, Unregistered, copy, leaked, releasing, settle, trim,
};
use unspool_fakecuda::Fake;

const LIMIT: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;
const OUT_OF_MEMORY: u32 = 2;

type Outcome<T = ()> = Result<T, DeviceError>;

fn context() -> Outcome<Context> {
    Context::new(&Driver::load()?, 0)
}

/// Waits until the condition is true; returns false when it is not within the limit.
fn comes_true(mut is: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while !is() {
        if begin.elapsed() > LIMIT {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// A random number generator (SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

fn arena(context: &Context, capacity: u64, shrink_ok: bool) -> Outcome<DeviceArena> {
    let options = DeviceArenaOptions { chunk: 2 * MIB, shrink_ok, leave_free: 16 * MIB };
    DeviceArena::new(context, capacity, &options)
}

/// Chunks of 2 MiB, so that a small arena has several.
fn pinned_options() -> PinnedOptions {
    let (first_chunk, largest_chunk) = (2 * MIB, 2 * MIB);
    let options = PinnedOptions { first_chunk, largest_chunk, ..PinnedOptions::default() };
    PinnedOptions { take_turns: false, pace: Pace::Unpaced, ..options }
}

/// An arena of its own memory, which goes with it.
fn pinned(context: &Context, capacity: u64, prepare: bool) -> Outcome<PinnedArena> {
    let options = PinnedOptions { prepare, keep: false, ..pinned_options() };
    PinnedArena::new(context, capacity, &options)
}

fn upload(stream: &Stream, to: &DeviceSpan, bytes: &[u8]) -> Outcome {
    copy::host_to_device(stream, to, bytes, LIMIT)
}

fn download(stream: &Stream, from: &DeviceSpan) -> Outcome<Vec<u8>> {
    let mut bytes = vec![0; from.len() as usize];
    copy::device_to_host(stream, &mut bytes, from, LIMIT)?;
    Ok(bytes)
}

#[test]
fn a_device_arena_is_one_memory_across_its_chunks() {
    let _fake = Fake::start();
    let context = context().unwrap();
    let (stream, arena) =
        (Stream::new(&context).unwrap(), arena(&context, 7 * MIB, false).unwrap());
    arena.wait_mapped(7 * MIB, LIMIT).unwrap();
    let sent = Dice(1).bytes(3 * MIB);
    let span = arena.span(MIB, 3 * MIB).unwrap();
    upload(&stream, &span, &sent).unwrap();
    assert!(download(&stream, &span).unwrap() == sent);
    assert_eq!(arena.span(6 * MIB, MIB + 1).unwrap_err().kind(), DeviceErrorKind::OutOfRange);
}

#[test]
fn memory_in_use_is_unmapped_when_the_work_is_done() {
    let fake = Fake::start();
    let context = context().unwrap();
    let stream = Stream::new(&context).unwrap();
    let leaked_before = leaked();
    // What an earlier test has left goes by itself.
    assert!(comes_true(|| fake.count("mappings") == 0));
    let arena = arena(&context, 2 * MIB, false).unwrap();
    arena.wait_mapped(2 * MIB, LIMIT).unwrap();
    let mapped = fake.count("mappings");
    fake.hold();
    copy::fill(&stream, &arena.span(0, 2 * MIB).unwrap(), 7).unwrap();
    drop(arena);
    assert_eq!(fake.count("mappings"), mapped, "the memory went before its last use");
    fake.release();
    assert!(comes_true(|| fake.count("mappings") < mapped));
    stream.sync(LIMIT).unwrap();
    assert_eq!(leaked(), leaked_before);
}

#[test]
fn an_arena_ends_where_memory_ends_and_says_why() {
    let fake = Fake::start();
    let context = context().unwrap();
    fake.fail("cuMemCreate", 3, OUT_OF_MEMORY);
    let smaller = arena(&context, 8 * MIB, true).unwrap();
    assert!(comes_true(|| smaller.capacity() < 8 * MIB));
    assert_eq!((smaller.capacity(), smaller.mapped()), (4 * MIB, 4 * MIB));
    assert_eq!(smaller.shrunk().map(|shrunk| shrunk.got), Some(4 * MIB));
    fake.fail("cuMemSetAccess", 3, OUT_OF_MEMORY);
    let short = arena(&context, 8 * MIB, false).unwrap();
    let error = short.wait_mapped(8 * MIB, LIMIT).unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::OutOfMemory);
    assert!(error.to_string().contains("cuMemSetAccess failed"), "{error}");
    assert!(short.span(0, 4 * MIB).is_ok(), "what was mapped before stays");
    assert!(short.span(4 * MIB, 1).is_err());
    assert_eq!(short.capacity(), 4 * MIB);
    fake.fail("cuMemSetAccess", 3, 999);
    let broken = arena(&context, 8 * MIB, false).unwrap();
    let error = broken.wait_mapped(8 * MIB, LIMIT).unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::Driver);
    assert_eq!(broken.capacity(), 8 * MIB, "memory is not what is missing");
}

#[test]
fn memory_that_another_process_holds_is_refused_at_once_or_left_out() {
    let fake = Fake::start();
    let context = context().unwrap();
    fake.take(0, 192 * MIB);
    let error = arena(&context, 100 * MIB, false).unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::OutOfMemory);
    assert!(error.to_string().contains("100 MiB asked for"), "{error}");
    let arena = arena(&context, 100 * MIB, true).unwrap();
    arena.wait_mapped(arena.capacity(), LIMIT).unwrap();
    assert!((30 * MIB..=48 * MIB).contains(&arena.capacity()), "{}", arena.capacity());
}

/// Copies random pieces into a host arena and back, over two streams that wait for each other.
/// Returns whether the content is right; the check bypasses streams and rings, in case those are
/// what does not work.
fn random_copies(
    fake: &Fake,
    arena: &PinnedArena,
    mut ring: Option<StagingRing>,
    seed: u64,
) -> Outcome<bool> {
    let (mut dice, capacity, context) = (Dice(seed), arena.capacity(), arena.context());
    let content = dice.bytes(capacity);
    let (down, up) = (Stream::new(context)?, Stream::new(context)?);
    let memory = [0, 1].map(|_| DeviceMemory::new(context, capacity));
    let [from, to] = memory.map(|memory| memory.map(|memory| memory.span()));
    let (from, to) = (from?, to?);
    assert!(fake.poke(from.address(), &content));
    let mut at = 0;
    while at < capacity {
        let len = (1 + dice.below(3 * MIB)).min(capacity - at);
        let way = |ring: &mut Option<StagingRing>, body: &mut dyn FnMut(Unregistered<'_>) -> _| {
            body(ring.as_mut().map_or(Unregistered::Pageable, Unregistered::Staged))
        };
        way(&mut ring, &mut |way| arena.copy_in(&down, at, &from.slice(at, len)?, way))?;
        up.wait_for(&down.record()?)?;
        way(&mut ring, &mut |way| arena.copy_out(&up, &to.slice(at, len)?, at, way))?;
        at += len;
    }
    context.synchronize()?;
    Ok(fake.peek(to.address(), capacity) == Some(content))
}

#[test]
fn copies_across_chunks_are_right_whatever_is_registered() {
    let fake = Fake::start();
    let context = context().unwrap();
    for seed in 0..20 {
        fake.seed(seed);
        let arena = pinned(&context, 7 * MIB + 12_345, seed % 2 == 0).unwrap();
        if seed % 4 == 0 {
            arena.wait_registered(arena.capacity(), LIMIT).unwrap();
        }
        // Copies to pageable memory are done when the call returns, those from a ring when an event
        // after them is: the same wait follows both kinds.
        let ring = (seed % 3 != 0).then(|| StagingRing::new(&context, MIB / 4, 3, LIMIT).unwrap());
        assert!(random_copies(&fake, &arena, ring, seed).unwrap(), "seed {seed}");
    }
}

#[test]
fn a_ring_whose_slots_were_not_waited_for_would_be_noticed() {
    let fake = Fake::start();
    let context = context().unwrap();
    fake.pace(Duration::from_micros(200), 0);
    let is_right = |seed| {
        let arena = pinned(&context, 2 * MIB, false).unwrap();
        let ring = StagingRing::new(&context, MIB / 16, 2, LIMIT).unwrap();
        random_copies(&fake, &arena, Some(ring), seed).unwrap()
    };
    assert!((0..3).all(is_right));
    fake.fail("cuEventQuery", 0, 0);
    assert!((0..5).any(|seed| !is_right(seed)));
}

#[test]
fn a_registration_that_is_refused_leaves_the_copies_right_and_slower() {
    let fake = Fake::start();
    let context = context().unwrap();
    fake.fail("cuMemHostRegister", 2, OUT_OF_MEMORY);
    let arena = pinned(&context, 7 * MIB, true).unwrap();
    assert!(comes_true(|| arena.failure().is_some()));
    let failure = arena.failure().unwrap();
    assert_eq!(failure.kind(), DeviceErrorKind::PinLimit);
    assert!(failure.to_string().contains("cuMemHostRegister_v2 failed"), "{failure}");
    assert_eq!(arena.registered(), 2 * MIB);
    assert!(random_copies(&fake, &arena, None, 5).unwrap());
}

#[test]
fn a_host_arena_is_unregistered_after_the_copies_that_use_it() {
    let fake = Fake::start();
    let context = context().unwrap();
    let (stream, device) =
        (Stream::new(&context).unwrap(), DeviceMemory::new(&context, 5 * MIB).unwrap());
    let arena = pinned(&context, 5 * MIB, true).unwrap();
    arena.wait_registered(5 * MIB, LIMIT).unwrap();
    let registered = fake.count("registrations");
    fake.hold();
    arena.copy_in(&stream, 0, &device.span(), Unregistered::Pageable).unwrap();
    drop(arena);
    assert_eq!(fake.count("registrations"), registered, "unregistered under a copy");
    fake.release();
    assert!(comes_true(|| fake.count("registrations") + 3 <= registered));
    stream.sync(LIMIT).unwrap();
}

#[test]
fn the_memory_of_an_arena_is_the_next_ones_after_the_copies_that_use_it() {
    let fake = Fake::start();
    let context = context().unwrap();
    let (stream, device) =
        (Stream::new(&context).unwrap(), DeviceMemory::new(&context, 5 * MIB).unwrap());
    let next = || PinnedArena::new(&context, 5 * MIB, &pinned_options()).unwrap();
    let place = |arena: &PinnedArena| arena.address(0, 1).unwrap();
    trim();
    let first = next();
    first.wait_registered(5 * MIB, LIMIT).unwrap();
    let (used, registered) = (place(&first), fake.count("registrations"));
    fake.hold();
    first.copy_in(&stream, 0, &device.span(), Unregistered::Pageable).unwrap();
    drop(first);
    let second = next();
    assert_ne!(place(&second), used, "a copy into the first one is not done");
    fake.release();
    stream.sync(LIMIT).unwrap();
    settle(LIMIT);
    let again = next();
    assert_eq!((place(&again), again.registered()), (used, 5 * MIB));
    drop((second, again));
    settle(LIMIT);
    assert!(trim() >= 5 * MIB);
    assert!(fake.count("registrations") + 3 <= registered, "given back");
}

#[test]
fn memory_that_is_dropped_waits_for_the_work_on_it() {
    let fake = Fake::start();
    let context = context().unwrap();
    let stream = Stream::new(&context).unwrap();
    let memory = DeviceMemory::new(&context, MIB).unwrap();
    let blocks = fake.count("blocks");
    fake.hold();
    copy::fill(&stream, &memory.span(), 7).unwrap();
    drop(memory);
    assert_eq!(fake.count("blocks"), blocks);
    fake.release();
    assert!(comes_true(|| fake.count("blocks") < blocks));
    stream.sync(LIMIT).unwrap();
}

/// A layout in an array of 4,096 items of 4 bytes, with the index of its first item.
fn layout(dice: &mut Dice) -> (StridedLayout, u64) {
    let full = [16u64, 16, 16];
    let mut dims: Vec<(u64, i64)> = Vec::new();
    let mut first = 0;
    for (axis, &size) in full.iter().enumerate() {
        let apart = 16u64.pow(2 - axis as u32);
        let (begin, step) = (dice.below(size), 1 + dice.below(3));
        let count = (size - begin).div_ceil(step);
        let stride = (apart * step * 4).cast_signed();
        let backwards = dice.below(3) == 0;
        first += apart * (begin + if backwards { (count - 1) * step } else { 0 });
        dims.push((count, if backwards { -stride } else { stride }));
    }
    dims.rotate_left(dice.below(3) as usize);
    let (shape, strides) = dims.into_iter().unzip();
    (StridedLayout { shape, strides, itemsize: 4 }, first)
}

/// The place of each item in the array, in bytes, in C order.
fn places(layout: &StridedLayout, first: u64) -> Vec<usize> {
    let mut places = vec![(first * 4).cast_signed()];
    for (&size, &stride) in layout.shape.iter().zip(&layout.strides) {
        let along = |place: i64| (0..size).map(move |index| place + index.cast_signed() * stride);
        places = places.into_iter().flat_map(along).collect();
    }
    places.into_iter().map(|place| place as usize).collect()
}

#[test]
fn items_that_lie_apart_are_gathered_and_scattered_by_kernels() {
    let fake = Fake::start();
    let context = context().unwrap();
    let (copies, stream) =
        (StridedCopies::new(&context, Vec::new()), Stream::new(&context).unwrap());
    let array = DeviceMemory::new(&context, 16_384).unwrap().span();
    let dense = DeviceMemory::new(&context, 16_384).unwrap().span();
    let mut dice = Dice(9);
    for _ in 0..100 {
        let (layout, first) = layout(&mut dice);
        let (content, places) = (dice.bytes(16_384), places(&layout, first));
        upload(&stream, &array, &content).unwrap();
        let (at, dense) =
            (array.address() + first * 4, dense.slice(0, layout.bytes().unwrap()).unwrap());
        // SAFETY: the items are in the array, which lives until the end.
        unsafe { copies.gather(&stream, &dense, at, &layout) }.unwrap();
        let gathered = download(&stream, &dense).unwrap();
        let expected: Vec<u8> =
            places.iter().flat_map(|&place| content[place..place + 4].to_vec()).collect();
        assert!(gathered == expected, "{layout:?} from item {first} on");
        copy::fill(&stream, &array, 0xEE).unwrap();
        // SAFETY: as above.
        unsafe { copies.scatter(&stream, at, &layout, &dense) }.unwrap();
        let mut expected = vec![0xEE; 16_384];
        places.iter().for_each(|&at| expected[at..at + 4].copy_from_slice(&content[at..at + 4]));
        assert!(download(&stream, &array).unwrap() == expected, "{layout:?} to item {first} on");
    }
    assert!(fake.calls("cuLaunchKernel") > 100);
}

#[test]
fn many_copies_are_made_by_few_launches_and_one_by_one_where_there_are_no_kernels() {
    let fake = Fake::start();
    let context = context().unwrap();
    let stream = Stream::new(&context).unwrap();
    let memory = |bytes| DeviceMemory::new(&context, bytes).unwrap().span();
    let (from, to, large) = (memory(1 << 19), memory(1 << 19), memory(34 << 20));
    let mut dice = Dice(4);
    for (has_kernels, launches) in [(true, 3), (false, 0)] {
        if !has_kernels {
            fake.cache_in(std::path::Path::new("/nonexistent"));
            fake.fail("nvrtcCompileProgram", 0, 1);
        }
        let (content, copies) = (dice.bytes(1 << 19), StridedCopies::new(&context, Vec::new()));
        upload(&stream, &from, &content).unwrap();
        copy::fill(&stream, &to, 0xEE).unwrap();
        let mut expected = vec![0xEE; 1 << 19];
        // Two launches' worth and one more, of all alignments; and one that the driver copies.
        let mut list: Vec<_> = (0..337)
            .map(|index| {
                let (first, len) = (index * 1500 + dice.below(9), 1 + dice.below(1400));
                let range = first as usize..(first + len) as usize;
                expected[range.clone()].copy_from_slice(&content[range]);
                (to.slice(first, len).unwrap(), from.slice(first, len).unwrap())
            })
            .collect();
        let half = |first| large.slice(first, 17 << 20).unwrap();
        list.push((half(17 << 20), half(0)));
        // Nothing to do.
        list.push((to.slice(0, 0).unwrap(), from.slice(0, 0).unwrap()));
        let calls = || ["cuLaunchKernel", "cuMemcpyDtoDAsync_v2"].map(|name| fake.calls(name));
        let before = calls();
        copies.copy_many(&stream, &list).unwrap();
        let [launched, copied] = [0, 1].map(|index| calls()[index] - before[index]);
        assert!(download(&stream, &to).unwrap() == expected);
        assert_eq!(launched, launches);
        assert_eq!(copied, if has_kernels { 1 } else { 338 });
        let wrong = [(to.slice(0, 8).unwrap(), from.slice(0, 9).unwrap()), list[0].clone()];
        assert!(copies.copy_many(&stream, &wrong).is_err());
        fake.reset();
    }
}

#[test]
fn a_broken_context_is_distinguished_from_unfinished_work() {
    let fake = Fake::start();
    // Memory of the test before this one would be leaked too, were its release still going on.
    settle(LIMIT);
    let context = context().unwrap();
    let (stream, memory) =
        (Stream::new(&context).unwrap(), DeviceMemory::new(&context, MIB).unwrap());
    fake.hold();
    copy::fill(&stream, &memory.span(), 1).unwrap();
    let event = stream.record().unwrap();
    fake.fail("execute", 1, 700);
    fake.release();
    let error = event.wait(LIMIT).unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::Driver);
    assert!(error.to_string().contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
    assert!(context.memory().is_err() && DeviceMemory::new(&context, 1).is_err());
    // What cannot be released any more is leaked and counted.
    drop((memory, event, stream));
    assert!(comes_true(|| releasing() == 0));
}
