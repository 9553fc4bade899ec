//! Fences, copies of any host memory, rows, and the watch, over a fake driver whose operations are
//! late and come in many orders.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use unspool_cuda::{
    Context, DeviceArena, DeviceArenaOptions, DeviceErrorKind, DeviceMemory, Driver, FencePool,
    PinnedArena, PinnedOptions, Stream, StridedCopies, StridedLayout, Unregistered, Watch, copy,
    current_ordinal, device_of,
};
use unspool_fakecuda::Fake;
use unspool_verify::{Agent, Checker, Op, Violation};

const LIMIT: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;

fn context() -> Context {
    let driver = Driver::load().expect("the fake");
    Context::new(&driver, 0).expect("its first device")
}

fn stream(context: &Context) -> Stream {
    Stream::new(context).expect("a stream")
}

fn memory(context: &Context, len: u64) -> DeviceMemory {
    DeviceMemory::new(context, len).expect("device memory")
}

/// Bytes in which every position is recognisable.
fn bytes(len: u64, seed: u64) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) ^ (i >> 9) ^ seed) as u8).collect()
}

/// A watch that checks the order of a run while it goes on.
#[derive(Debug)]
struct Checked(Mutex<(Checker, Vec<Op>, Vec<Violation>)>);

impl Checked {
    fn of(context: &Context) -> Arc<Checked> {
        let checked = Arc::new(Checked(Mutex::new((Checker::new(), Vec::new(), Vec::new()))));
        context.watch(checked.clone());
        checked
    }

    fn ops(&self) -> Vec<Op> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    fn violations(&self) -> Vec<String> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.2.iter().map(ToString::to_string).collect()
    }
}

impl Watch for Checked {
    fn saw(&self, op: Op) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.1.push(op);
        let seen = state.0.see(&op);
        state.2.extend(seen.err());
    }
}

#[test]
fn a_fence_is_done_when_what_is_before_it_is_done_and_stays_so() {
    let fake = Fake::start();
    let context = context();
    let (stream, memory) = (stream(&context), memory(&context, MIB));
    let fences = FencePool::new(&context);
    fake.hold();
    copy::fill(&stream, &memory.span(), 1).unwrap();
    let first = fences.record(&stream).unwrap();
    assert!(!first.is_done());
    assert_eq!(first.wait(Duration::from_millis(5)).unwrap_err().kind(), DeviceErrorKind::TimedOut);
    fake.release();
    first.wait(LIMIT).unwrap();
    assert!(first.is_done());
    fake.hold();
    copy::fill(&stream, &memory.span(), 2).unwrap();
    let second = fences.record(&stream).unwrap();
    assert!(first.is_done() && !second.is_done());
    fake.release();
    stream.sync(LIMIT).unwrap();
    assert!(second.is_done());
}

#[test]
fn the_event_of_a_fence_is_used_again_after_its_last_clone_only() {
    let fake = Fake::start();
    let context = context();
    let (stream, fences) = (stream(&context), FencePool::new(&context));
    let first = fences.record(&stream).unwrap();
    let other = first.clone();
    drop(first);
    assert_eq!(fences.kept(), 0);
    drop(other);
    assert_eq!(fences.kept(), 1);
    let before = fake.calls("cuEventCreate");
    let again = fences.record(&stream).unwrap();
    assert_eq!((fences.kept(), fake.calls("cuEventCreate")), (0, before));
    again.wait(LIMIT).unwrap();
}

#[test]
fn work_without_a_fence_is_waited_for_without_an_event() {
    let fake = Fake::start();
    let context = context();
    let (stream, fences) = (stream(&context), FencePool::new(&context));
    let memory = memory(&context, MIB);
    let unrecorded = fences.prepare().unwrap();
    fake.hold();
    copy::fill(&stream, &memory.span(), 1).unwrap();
    fake.fail("cuEventRecord", 1, 2);
    assert!(unrecorded.record(&stream).is_err());
    assert_eq!(fences.kept(), 1, "its event is kept for another");
    let short = Duration::from_millis(5);
    assert_eq!(stream.drain(short).unwrap_err().kind(), DeviceErrorKind::TimedOut);
    fake.release();
    stream.drain(LIMIT).unwrap();
    let mut found = vec![0; MIB as usize];
    copy::device_to_host(&stream, &mut found, &memory.span(), LIMIT).unwrap();
    assert!(found.iter().all(|&byte| byte == 1));
}

#[test]
fn waiting_for_the_whole_device_ends_with_the_limit_or_the_work() {
    let fake = Fake::start();
    let context = context();
    let checked = Checked::of(&context);
    let (stream, memory) = (stream(&context), memory(&context, MIB));
    fake.hold();
    copy::fill(&stream, &memory.span(), 1).unwrap();
    let error = context.synchronize_within(Duration::from_millis(5)).unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::TimedOut);
    assert!(!checked.ops().contains(&Op::WaitAll));
    fake.release();
    context.synchronize_within(LIMIT).unwrap();
    assert!(checked.ops().contains(&Op::WaitAll));
}

#[test]
fn a_wait_that_was_enqueued_on_a_fence_holds_after_its_event_was_used_again() {
    let fake = Fake::start();
    let context = context();
    let (a, b, fences) = (stream(&context), stream(&context), FencePool::new(&context));
    let memory = memory(&context, MIB);
    fake.hold();
    copy::fill(&a, &memory.span(), 1).unwrap();
    let fence = fences.record(&a).unwrap();
    b.wait_for(&fence).unwrap();
    drop(fence);
    // The same event, on a stream that has nothing to do.
    let _again = fences.record(&stream(&context)).unwrap();
    copy::fill(&b, &memory.span(), 2).unwrap();
    fake.release();
    b.sync(LIMIT).unwrap();
    let mut found = vec![0; MIB as usize];
    copy::device_to_host(&b, &mut found, &memory.span(), LIMIT).unwrap();
    assert!(found.iter().all(|&byte| byte == 2));
}

#[test]
fn any_host_memory_comes_back_as_it_was_sent() {
    let _fake = Fake::start();
    let context = context();
    let (stream, memory) = (stream(&context), memory(&context, 40 * MIB));
    for (len, seed) in [(0, 1), (1, 2), (4 * MIB, 3), (4 * MIB + 1, 4), (33 * MIB + 7, 5)] {
        let span = memory.span().slice(5, len).unwrap();
        let sent = bytes(len, seed);
        copy::host_to_device(&stream, &span, &sent, LIMIT).unwrap();
        let mut found = vec![0; len as usize];
        copy::device_to_host(&stream, &mut found, &span, LIMIT).unwrap();
        assert!(found == sent, "{len} bytes");
    }
}

#[test]
fn a_copy_that_takes_too_long_leaves_the_host_memory_alone_and_the_next_one_works() {
    let fake = Fake::start();
    let context = context();
    let (stream, memory) = (stream(&context), memory(&context, MIB));
    let short = Duration::from_millis(5);
    let (sent, mut found) = (bytes(MIB, 1), vec![7; MIB as usize]);
    copy::host_to_device(&stream, &memory.span(), &sent, LIMIT).unwrap();
    fake.hold();
    let error = copy::device_to_host(&stream, &mut found, &memory.span(), short).unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::TimedOut);
    let error = copy::host_to_device(&stream, &memory.span(), &found, short).unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::TimedOut);
    fake.release();
    stream.sync(LIMIT).unwrap();
    assert!(found.iter().all(|&byte| byte == 7), "written after the error");
    copy::host_to_device(&stream, &memory.span(), &sent, LIMIT).unwrap();
    copy::device_to_host(&stream, &mut found, &memory.span(), LIMIT).unwrap();
    assert!(found == sent);
}

#[test]
fn lengths_that_differ_are_refused() {
    let _fake = Fake::start();
    let context = context();
    let (stream, memory) = (stream(&context), memory(&context, 10));
    let mut host = [0; 9];
    let errors = [
        copy::host_to_device(&stream, &memory.span(), &host, LIMIT).unwrap_err(),
        copy::device_to_host(&stream, &mut host, &memory.span(), LIMIT).unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.kind() == DeviceErrorKind::OutOfRange));
}

#[test]
fn rows_are_gathered_and_scattered_by_the_driver_where_there_are_no_kernels() {
    let fake = Fake::start();
    let context = context();
    let copies = StridedCopies::new(&context, Vec::new());
    let (stream, array) = (stream(&context), memory(&context, MIB));
    let dense = memory(&context, 5 * 8192);
    let layout = StridedLayout { shape: vec![5, 2048], strides: vec![10_000, 4], itemsize: 4 };
    let (sent, first) = (bytes(MIB, 3), 300);
    copy::host_to_device(&stream, &array.span(), &sent, LIMIT).unwrap();
    let address = array.span().address() + first as u64;
    // SAFETY: the rows are in the array, which lives until the end.
    unsafe { copies.gather(&stream, &dense.span(), address, &layout) }.unwrap();
    let mut found = vec![0; 5 * 8192];
    copy::device_to_host(&stream, &mut found, &dense.span(), LIMIT).unwrap();
    let rows = |row: usize| first + row * 10_000..first + row * 10_000 + 8192;
    let expected: Vec<u8> = (0..5).flat_map(|row| sent[rows(row)].to_vec()).collect();
    assert!(found == expected);
    copy::fill(&stream, &array.span(), 0xEE).unwrap();
    // SAFETY: as above.
    unsafe { copies.scatter(&stream, address, &layout, &dense.span()) }.unwrap();
    let mut back = vec![0; MIB as usize];
    copy::device_to_host(&stream, &mut back, &array.span(), LIMIT).unwrap();
    let mut expected = vec![0xEE; MIB as usize];
    (0..5).for_each(|row| expected[rows(row)].copy_from_slice(&sent[rows(row)]));
    assert!(back == expected);
    assert!(fake.calls("cuModuleLoadData") <= 1, "the kernels are not looked for again");
}

#[test]
fn a_scatter_to_items_that_share_memory_is_refused_and_a_gather_of_no_items_does_nothing() {
    let fake = Fake::start();
    let context = context();
    let (copies, stream) = (StridedCopies::new(&context, Vec::new()), stream(&context));
    let memory = memory(&context, 64);
    let layout = |shape: &[u64], strides: &[i64]| {
        let (shape, strides) = (shape.to_vec(), strides.to_vec());
        StridedLayout { shape, strides, itemsize: 4 }
    };
    let (span, broadcast) = (memory.span(), layout(&[4, 4], &[0, 4]));
    // SAFETY: refused before anything is touched, and nothing to touch.
    let refused = unsafe { copies.scatter(&stream, span.address(), &broadcast, &span) };
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("share memory") && text.contains("[0, 4]"), "{text}");
    let before = fake.count("pending");
    let none = span.slice(0, 0).unwrap();
    // SAFETY: as above.
    unsafe { copies.gather(&stream, &none, 0, &layout(&[0, 4], &[16, 4])) }.unwrap();
    assert_eq!(fake.count("pending"), before);
    // SAFETY: as above.
    let wrong = unsafe { copies.gather(&stream, &span, 0, &layout(&[2], &[8])) };
    assert_eq!(wrong.unwrap_err().kind(), DeviceErrorKind::OutOfRange);
}

#[test]
fn the_current_device_and_that_of_an_address_are_reported() {
    let _fake = Fake::start();
    let context = context();
    let memory = memory(&context, 100);
    assert_eq!(current_ordinal(), None, "a call left its context current");
    assert_eq!(device_of(memory.span().address() + 99).unwrap(), Some(0));
    let pinned = PinnedArena::new(&context, MIB, &PinnedOptions::default()).unwrap();
    pinned.wait_registered(MIB, LIMIT).unwrap();
    assert_eq!(device_of(pinned.address(0, 1).unwrap().as_ptr() as u64).unwrap(), None);
    assert_eq!(current_ordinal(), None, "a call left its context current");
    let plain = [0u8; 4];
    assert_eq!(device_of(plain.as_ptr() as u64).unwrap(), None);
}

#[test]
fn copies_that_wait_for_each_other_are_in_order_and_all_of_them_are_seen() {
    let fake = Fake::start();
    let context = context();
    let checked = Checked::of(&context);
    let fences = FencePool::new(&context);
    let (a, b) = (stream(&context), stream(&context));
    let arena = DeviceArena::new(&context, 4 * MIB, &DeviceArenaOptions::default()).unwrap();
    arena.wait_mapped(4 * MIB, LIMIT).unwrap();
    let host = PinnedArena::new(&context, 4 * MIB, &PinnedOptions::default()).unwrap();
    host.wait_registered(4 * MIB, LIMIT).unwrap();
    let (low, high) = (arena.span(0, MIB).unwrap(), arena.span(MIB, MIB).unwrap());
    fake.hold();
    copy::fill(&a, &low, 1).unwrap();
    let filled = fences.record(&a).unwrap();
    b.wait_for(&filled).unwrap();
    fake.release();
    copy::device_to_device(&b, &high, &low).unwrap();
    host.copy_in(&b, 77, &high, Unregistered::Pageable).unwrap();
    let copied = fences.record(&b).unwrap();
    copied.wait(LIMIT).unwrap();
    // SAFETY: the only copy is done.
    assert!(unsafe { host.bytes(77, MIB) }.unwrap().iter().all(|&byte| byte == 1));
    copy::host_to_device(&a, &low, &bytes(MIB, 9), LIMIT).unwrap();
    let mut back = vec![0; MIB as usize];
    copy::device_to_host(&b, &mut back, &low, LIMIT).unwrap();
    assert_eq!(checked.violations(), Vec::<String>::new());
    let ops = checked.ops();
    let count = |is: fn(&Op) -> bool| ops.iter().filter(|op| is(op)).count();
    assert!(count(|op| matches!(op, Op::Arena { .. })) >= 2);
    assert!(count(|op| matches!(op, Op::Wait { by: Agent::Stream(_), .. })) >= 1);
    assert!(count(|op| matches!(op, Op::Wait { by: Agent::Host, .. })) >= 1);
    assert!(count(|op| matches!(op, Op::Access { write: true, .. })) >= 4);
}

#[test]
fn threads_that_share_a_copy_write_after_what_was_enqueued_before() {
    const MANY: u64 = 64 * MIB + 3;
    let fake = Fake::start();
    let context = context();
    let checked = Checked::of(&context);
    let (a, b) = (stream(&context), stream(&context));
    let arena = DeviceArena::new(&context, 68 * MIB, &DeviceArenaOptions::default()).unwrap();
    arena.wait_mapped(68 * MIB, LIMIT).unwrap();
    let span = arena.span(MIB, MANY).unwrap();
    let (sent, mut found) = (bytes(MANY, 9), vec![0; MANY as usize]);
    fake.hold();
    copy::fill(&a, &span, 1).unwrap();
    std::thread::scope(|scope| {
        let copied = scope.spawn(|| copy::host_to_device(&a, &span, &sent, LIMIT));
        std::thread::sleep(Duration::from_millis(20));
        fake.release();
        copied.join().unwrap().unwrap();
    });
    copy::device_to_host(&b, &mut found, &span, LIMIT).unwrap();
    assert!(found == sent);
    assert_eq!(checked.violations(), Vec::<String>::new());
}

#[test]
fn a_stream_does_not_wait_for_what_the_host_finds_done() {
    let fake = Fake::start();
    let context = context();
    let checked = Checked::of(&context);
    let (a, b) = (stream(&context), stream(&context));
    let arena = DeviceArena::new(&context, 4 * MIB, &DeviceArenaOptions::default()).unwrap();
    arena.wait_mapped(4 * MIB, LIMIT).unwrap();
    let span = arena.span(0, MIB).unwrap();
    copy::fill(&a, &span, 1).unwrap();
    let filled = a.record().unwrap();
    filled.wait(LIMIT).unwrap();
    let before = fake.calls("cuStreamWaitEvent");
    b.wait_for(&filled).unwrap();
    copy::fill(&b, &span, 2).unwrap();
    b.sync(LIMIT).unwrap();
    assert_eq!(fake.calls("cuStreamWaitEvent"), before);
    assert_eq!(checked.violations(), Vec::<String>::new());
}

#[test]
fn a_missing_wait_is_found_whether_or_not_it_did_harm() {
    let _fake = Fake::start();
    let context = context();
    let checked = Checked::of(&context);
    let (a, b) = (stream(&context), stream(&context));
    let arena = DeviceArena::new(&context, 4 * MIB, &DeviceArenaOptions::default()).unwrap();
    arena.wait_mapped(4 * MIB, LIMIT).unwrap();
    let (low, high) = (arena.span(0, MIB).unwrap(), arena.span(MIB, MIB).unwrap());
    copy::fill(&a, &low, 1).unwrap();
    copy::device_to_device(&b, &high, &low).unwrap();
    a.sync(LIMIT).unwrap();
    b.sync(LIMIT).unwrap();
    let found = checked.violations();
    assert_eq!(found.len(), 1, "{found:?}");
    let text = &found[0];
    assert!(text.contains("setting device memory") && text.contains("a copy within"), "{text}");
}

#[test]
fn a_ring_that_is_kept_reports_to_each_watch_its_own_copies_only() {
    let _fake = Fake::start();
    let (mut back, sent) = (vec![0; MIB as usize], bytes(MIB, 1));
    for _ in 0..3 {
        let context = context();
        let checked = Checked::of(&context);
        let (stream, memory) = (stream(&context), memory(&context, MIB));
        copy::host_to_device(&stream, &memory.span(), &sent, LIMIT).unwrap();
        copy::device_to_host(&stream, &mut back, &memory.span(), LIMIT).unwrap();
        assert_eq!(checked.violations(), Vec::<String>::new());
        let ops = checked.ops();
        let records = ops.iter().filter(|op| matches!(op, Op::Record { .. })).count();
        let waits = ops.iter().filter(|op| matches!(op, Op::Wait { by: Agent::Host, .. })).count();
        assert!(records >= 2 && waits >= 2, "{ops:?}");
        drop((stream, memory, context));
        // The idle ring does not keep the watch alive.
        let begin = std::time::Instant::now();
        while Arc::strong_count(&checked) > 1 && begin.elapsed() < LIMIT {
            std::thread::yield_now();
        }
        assert_eq!(Arc::strong_count(&checked), 1);
    }
}
