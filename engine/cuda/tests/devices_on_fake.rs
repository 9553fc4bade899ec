//! Two devices in one process: each entry point refuses an object of the other device before
//! anything is enqueued; copies between devices do not exist.

use std::time::{Duration, Instant};

use unspool_cuda::{
    Context, DeviceArena, DeviceArenaOptions, DeviceError, DeviceErrorKind, DeviceMemory, Driver,
    Event, FencePool, PinnedArena, PinnedMemory, PinnedOptions, StagingRing, Stream, StridedCopies,
    StridedLayout, Unregistered, copy, device_of, releasing,
};
use unspool_fakecuda::Fake;

const LIMIT: Duration = Duration::from_secs(20);
const LEN: u64 = 4096;

/// A context of one device with a stream, memory and an arena.
struct Side {
    context: Context,
    stream: Stream,
    memory: DeviceMemory,
    pinned: PinnedMemory,
    arena: PinnedArena,
}

fn sides() -> Result<[Side; 2], DeviceError> {
    let driver = Driver::load()?;
    let side = |ordinal| -> Result<Side, DeviceError> {
        let context = Context::new(&driver, ordinal)?;
        let options = PinnedOptions { take_turns: false, ..PinnedOptions::default() };
        let arena = PinnedArena::new(&context, 2 * LEN, &options)?;
        Ok(Side {
            stream: Stream::new(&context)?,
            memory: DeviceMemory::new(&context, LEN)?,
            pinned: PinnedMemory::new(&context, LEN)?,
            arena,
            context,
        })
    };
    Ok([side(0)?, side(1)?])
}

/// Waits until the condition is true, at most for the limit.
fn wait_until(mut is: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is() && begin.elapsed() < LIMIT {
        std::thread::yield_now();
    }
}

fn start() -> Fake {
    Fake::start_with(&[("FAKECUDA_DEVICES", "2")])
}

/// Asserts that `result` is a refusal that names both devices and the remedy.
fn refused(what: &str, result: Result<(), DeviceError>) {
    let Err(error) = result else { panic!("{what} was not refused") };
    assert_eq!(error.kind(), DeviceErrorKind::WrongDevice, "{what}: {error}");
    let text = error.to_string();
    assert!(text.contains('0') && text.contains('1') && text.contains("device"), "{what}: {text}");
    assert!(text.contains("spool"), "no remedy for {what}: {text}");
}

#[test]
fn every_copy_refuses_memory_and_streams_of_another_device() {
    let fake = start();
    let [a, b] = sides().unwrap();
    let (ours, theirs) = (a.memory.span(), b.memory.span());
    let mut host = vec![0; LEN as usize];
    let before = fake.count("pending");
    refused("a copy to it", copy::device_to_device(&a.stream, &theirs, &ours));
    refused("a copy from it", copy::device_to_device(&a.stream, &ours, &theirs));
    refused("a copy on its stream", copy::device_to_device(&b.stream, &ours, &ours));
    refused("a raw copy", copy::device_to_device_blocking(&a.stream, &ours, &theirs));
    refused("a fill", copy::fill(&a.stream, &theirs, 1));
    refused("to pinned memory", copy::device_to_pinned(&a.stream, &b.pinned, 0, &ours));
    refused("from pinned memory", copy::pinned_to_device(&a.stream, &ours, &b.pinned, 0));
    refused("a copy from the host", copy::host_to_device(&a.stream, &theirs, &host, LIMIT));
    refused("a copy to the host", copy::device_to_host(&a.stream, &mut host, &theirs, LIMIT));
    assert_eq!(fake.count("pending"), before);
}

#[test]
fn arenas_and_rings_refuse_memory_and_streams_of_another_device() {
    let _fake = start();
    let [a, b] = sides().unwrap();
    let (ours, theirs) = (a.memory.span(), b.memory.span());
    let way = || Unregistered::Pageable;
    refused("into its arena", b.arena.copy_in(&a.stream, 0, &ours, way()));
    refused("out of its arena", b.arena.copy_out(&a.stream, &ours, 0, way()));
    refused("memory of it in", a.arena.copy_in(&a.stream, 0, &theirs, way()));
    refused("memory of it out", a.arena.copy_out(&a.stream, &theirs, 0, way()));
    let plain = PinnedOptions { prepare: false, ..PinnedOptions::default() };
    let plain = PinnedArena::new(&a.context, LEN, &plain).unwrap();
    let mut ring = StagingRing::new(&b.context, 1024, 2, LIMIT).unwrap();
    let staged = plain.copy_in(&a.stream, 0, &ours, Unregistered::Staged(&mut ring));
    refused("its ring, in", staged);
    let staged = plain.copy_out(&a.stream, &ours, 0, Unregistered::Staged(&mut ring));
    refused("its ring, out", staged);
}

#[test]
fn events_fences_and_borrowed_streams_of_another_device_are_refused() {
    let _fake = start();
    let [a, b] = sides().unwrap();
    refused("an event", Event::new(&a.context).unwrap().record(&b.stream));
    refused("a fence", FencePool::new(&a.context).record(&b.stream).map(drop));
    // SAFETY: the stream outlives the attempt.
    let borrowed = unsafe { Stream::borrow(&a.context, b.stream.handle()) };
    refused("a borrowed stream", borrowed.map(drop));
}

#[test]
fn gathers_and_scatters_on_another_device_are_refused() {
    let _fake = start();
    let [a, b] = sides().unwrap();
    let copies = StridedCopies::new(&a.context, Vec::new());
    let layout = StridedLayout { shape: vec![LEN], strides: vec![1], itemsize: 1 };
    let (ours, theirs) = (a.memory.span(), b.memory.span());
    let (to, stream) = (ours.address(), &a.stream);
    // SAFETY: all of them are refused before anything is touched.
    unsafe {
        refused("a gather on it", copies.gather(&b.stream, &ours, to, &layout));
        refused("a gather to it", copies.gather(stream, &theirs, to, &layout));
        refused("a scatter on it", copies.scatter(&b.stream, to, &layout, &ours));
        refused("a scatter from it", copies.scatter(stream, to, &layout, &theirs));
    }
}

#[test]
fn a_stream_may_wait_for_an_event_of_another_device() {
    let fake = start();
    let [a, b] = sides().unwrap();
    assert!(fake.hold_stream(a.stream.handle()));
    copy::fill(&a.stream, &a.memory.span(), 1).unwrap();
    b.stream.wait_for(&a.stream.record().unwrap()).unwrap();
    assert!(b.stream.sync(Duration::from_millis(5)).is_err());
    fake.release();
    b.stream.sync(LIMIT).unwrap();
}

#[test]
fn memory_is_counted_on_its_own_device_and_comes_back() {
    let _fake = start();
    let [a, b] = sides().unwrap();
    wait_until(|| releasing() == 0);
    let free = || [&a, &b].map(|side| side.context.memory().unwrap().0);
    let before = free();
    let len = 64 << 20;
    let arena = DeviceArena::new(&b.context, len, &DeviceArenaOptions::default()).unwrap();
    arena.wait_mapped(len, LIMIT).unwrap();
    let span = arena.span(0, len).unwrap();
    assert_eq!(device_of(span.address()).unwrap(), Some(1));
    let during = free();
    assert_eq!(during[0], before[0]);
    assert!(during[1] + len <= before[1], "{during:?} of {before:?}");
    drop((span, arena));
    wait_until(|| free() == before);
    assert_eq!(free(), before);
}
