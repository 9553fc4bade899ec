//! Fences, captures, copies of any host memory, and the operations that a watch sees.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use unspool_cuda::kernels::pattern;
use unspool_cuda::{
    Context, DeviceArena, DeviceArenaOptions, DeviceErrorKind, DeviceMemory, Driver, FencePool,
    PinnedArena, PinnedOptions, Stream, Unregistered, Watch, copy, current_ordinal, device_of,
};
use unspool_verify::{Checker, Op, Violation};

use crate::util::{LONG, MIB, Random, wait_for_releases};

pub fn run(driver: &Driver, context: &Context) {
    assert_eq!(current_ordinal(), None, "a context was left current");
    fences(context);
    any_host_memory(context);
    too_late(context);
    addresses(context);
    captures(context);
    watched(driver);
    wait_for_releases();
    println!("fences, captures, copies of any memory, the watch: all passed");
}

/// Memory whose size is a part of the device's; filling it keeps the device busy.
fn large(context: &Context) -> DeviceMemory {
    DeviceMemory::new(context, (context.device().memory / 64).max(16 * MIB)).unwrap()
}

/// About a hundredth of a second of work.
fn keep_busy(stream: &Stream, memory: &DeviceMemory) {
    for byte in 0..30 {
        copy::fill(stream, &memory.span(), byte).unwrap();
    }
}

fn fences(context: &Context) {
    let (stream, fences) = (Stream::new(context).unwrap(), FencePool::new(context));
    let memory = large(context);
    keep_busy(&stream, &memory);
    let fence = fences.record(&stream).unwrap();
    assert!(!fence.is_done(), "half of the memory is not written in no time");
    let other = Stream::new(context).unwrap();
    other.wait_for(&fence).unwrap();
    other.sync(LONG).unwrap();
    assert!(fence.is_done());
    let many: Vec<_> = (0..1000).map(|_| fences.record(&stream).unwrap()).collect();
    drop(many);
    assert_eq!(fences.kept(), 1000);
    let begin = std::time::Instant::now();
    for _ in 0..1000 {
        drop(fences.record(&stream).unwrap());
    }
    println!("a fence from the pool: {:.2} us", begin.elapsed().as_secs_f64() * 1e3);
    fence.wait(LONG).unwrap();
}

fn any_host_memory(context: &Context) {
    let (stream, mut random) = (Stream::new(context).unwrap(), Random::new(5));
    let memory = DeviceMemory::new(context, 100 * MIB).unwrap();
    for round in 0..40 {
        let largest = if round % 2 == 0 { 9_000 } else { 60 * MIB };
        let len = random.below(largest);
        let span = memory.span().slice(random.below(40 * MIB), len).unwrap();
        let mut sent = vec![0; len as usize];
        pattern::fill(&mut sent, round, 0);
        copy::host_to_device(&stream, &span, &sent, LONG).unwrap();
        let mut found = vec![0; len as usize];
        copy::device_to_host(&stream, &mut found, &span, LONG).unwrap();
        assert!(found == sent, "round {round}, {len} bytes");
    }
}

/// A copy after long work times out, and nothing accesses its memory afterwards.
fn too_late(context: &Context) {
    let (stream, short) = (Stream::new(context).unwrap(), Duration::from_micros(200));
    let memory = large(context);
    let mut host = vec![77; 16 << 20];
    let span = memory.span().slice(0, 16 * MIB).unwrap();
    // The buffers are created before, so that their creation is not measured.
    copy::host_to_device(&stream, &span, &host, LONG).unwrap();
    keep_busy(&stream, &memory);
    let error = copy::device_to_host(&stream, &mut host, &span, short).unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::TimedOut);
    stream.sync(LONG).unwrap();
    assert!(host.iter().all(|&byte| byte == 77), "written after the error");
    println!("  {error}");
}

fn addresses(context: &Context) {
    let memory = DeviceMemory::new(context, MIB).unwrap();
    let arena = DeviceArena::new(context, MIB, &DeviceArenaOptions::default()).unwrap();
    arena.wait_mapped(MIB, LONG).unwrap();
    let pinned = PinnedArena::new(context, 4 * MIB, &PinnedOptions::default()).unwrap();
    pinned.wait_registered(4 * MIB, LONG).unwrap();
    let plain = [0u8; 8];
    let of = |address| device_of(address).unwrap();
    assert_eq!(of(memory.span().address() + MIB - 1), Some(context.ordinal()));
    assert_eq!(of(arena.span(5, 1).unwrap().address()), Some(context.ordinal()));
    assert_eq!(of(pinned.address(0, 1).unwrap().as_ptr() as u64), None);
    assert_eq!(of(plain.as_ptr() as u64), None);
}

/// Begins and ends a capture with the driver's own functions.
fn captures(context: &Context) {
    type Begin = unsafe extern "C" fn(usize, u32) -> u32;
    type End = unsafe extern "C" fn(usize, *mut usize) -> u32;
    type Retain = unsafe extern "C" fn(*mut usize, i32) -> u32;
    type Push = unsafe extern "C" fn(usize) -> u32;
    type Pop = unsafe extern "C" fn(*mut usize) -> u32;
    type Release = unsafe extern "C" fn(i32) -> u32;
    /// The mode that PyTorch uses: it forbids all threads calls that could spoil the capture.
    const GLOBAL: u32 = 0;
    let stream = Stream::new(context).unwrap();
    assert!(!stream.is_capturing().unwrap());
    // SAFETY: the driver is loaded already, the signatures are its own, and the stream lives.
    unsafe {
        let name = std::env::var("UNSPOOL_CUDA_DRIVER").unwrap_or("libcuda.so.1".to_owned());
        let driver = libloading::Library::new(name).unwrap();
        let (mut current, ordinal) = (0, context.ordinal().cast_signed());
        let retain = driver.get::<Retain>(b"cuDevicePrimaryCtxRetain").unwrap();
        assert_eq!(retain(&raw mut current, ordinal), 0);
        assert_eq!(driver.get::<Push>(b"cuCtxPushCurrent_v2").unwrap()(current), 0);
        let begin = driver.get::<Begin>(b"cuStreamBeginCapture_v2").unwrap();
        let end = driver.get::<End>(b"cuStreamEndCapture").unwrap();
        // Releases of earlier checks wait for the whole device, which spoils captures.
        while unspool_cuda::releasing() > 0 {
            std::thread::yield_now();
        }
        let (mut kept, mut spoilt) = (Kept::default(), Vec::new());
        for (name, step) in STEPS {
            assert_eq!(begin(stream.handle(), GLOBAL), 0);
            assert!(stream.is_capturing().unwrap());
            assert!(!Stream::new(context).unwrap().is_capturing().unwrap());
            std::thread::scope(|scope| scope.spawn(|| step(context, &mut kept)).join()).unwrap();
            let mut graph = 0;
            let ended = end(stream.handle(), &raw mut graph);
            println!("  a capture while a thread {name}: {ended}");
            if ended != 0 {
                spoilt.push(name);
            }
        }
        assert!(spoilt.is_empty(), "captures are spoilt by a thread that {spoilt:?}");
        assert_eq!(current_ordinal(), Some(context.ordinal()));
        assert_eq!(driver.get::<Pop>(b"cuCtxPopCurrent_v2").unwrap()(&raw mut current), 0);
        let release = driver.get::<Release>(b"cuDevicePrimaryCtxRelease_v2").unwrap();
        assert_eq!(release(ordinal), 0);
    }
    assert!(!stream.is_capturing().unwrap());
    assert!(!Stream::legacy_default(context).is_capturing().unwrap());
}

/// Resources of the steps, dropped after the captures: a release that waits for the whole device
/// would spoil them.
#[derive(Debug, Default)]
struct Kept {
    device: Option<DeviceArena>,
    host: Option<PinnedArena>,
    memory: Option<DeviceMemory>,
}

type Step = fn(&Context, &mut Kept);

/// Operations of the threads of a spool during a capture by the user.
const STEPS: [(&str, Step); 6] = [
    ("does nothing", |_, _| {}),
    ("maps an arena", |context, kept| {
        let arena = DeviceArena::new(context, 64 * MIB, &DeviceArenaOptions::default()).unwrap();
        arena.wait_mapped(64 * MIB, LONG).unwrap();
        kept.device = Some(arena);
    }),
    ("registers an arena", |context, kept| {
        let arena = PinnedArena::new(context, 256 * MIB, &PinnedOptions::default()).unwrap();
        arena.wait_registered(256 * MIB, LONG).unwrap();
        kept.host = Some(arena);
    }),
    ("fills and flushes", |context, kept| {
        let stream = Stream::new(context).unwrap();
        let span = kept.device.as_ref().unwrap().span(0, 64 * MIB).unwrap();
        copy::fill(&stream, &span, 3).unwrap();
        let host = kept.host.as_ref().unwrap();
        host.copy_in(&stream, 0, &span, Unregistered::Pageable).unwrap();
        FencePool::new(context).record(&stream).unwrap().wait(LONG).unwrap();
    }),
    ("allocates memory", |context, kept| {
        kept.memory = Some(DeviceMemory::new(context, MIB).unwrap());
    }),
    ("copies from the host", |context, kept| {
        let stream = Stream::new(context).unwrap();
        let span = kept.memory.as_ref().unwrap().span();
        copy::host_to_device(&stream, &span, &vec![1; MIB as usize], LONG).unwrap();
    }),
];

#[derive(Debug, Default)]
struct Checked(Mutex<(Checker, u64, Vec<Violation>)>);

impl Watch for Checked {
    fn saw(&self, op: Op) {
        let mut state = self.0.lock().unwrap();
        state.1 += 1;
        let seen = state.0.see(&op);
        state.2.extend(seen.err());
    }
}

/// A chain of operations over two streams, with its waits and then with one missing.
fn watched(driver: &Driver) {
    let context = Context::new(driver, 0).unwrap();
    let checked = Arc::new(Checked::default());
    context.watch(checked.clone());
    let arena = DeviceArena::new(&context, 64 * MIB, &DeviceArenaOptions::default()).unwrap();
    arena.wait_mapped(64 * MIB, LONG).unwrap();
    let host = PinnedArena::new(&context, 64 * MIB, &PinnedOptions::default()).unwrap();
    let (a, b, fences) = chain(&context);
    let span = |index: u64| arena.span(index * 4 * MIB, 4 * MIB).unwrap();
    for round in 0..64 {
        let (from, to) = (span(round % 8), span(8 + round % 8));
        copy::fill(&a, &from, round as u8).unwrap();
        b.wait_for(&fences.record(&a).unwrap()).unwrap();
        copy::device_to_device(&b, &to, &from).unwrap();
        host.copy_in(&b, round % 8 * 4 * MIB, &to, Unregistered::Pageable).unwrap();
        a.wait_for(&fences.record(&b).unwrap()).unwrap();
    }
    a.sync(LONG).unwrap();
    let counted = |checked: &Checked| checked.0.lock().unwrap().2.len();
    let found = checked.0.lock().unwrap().2.first().map(ToString::to_string);
    assert_eq!(found, None, "all of it was in order");
    copy::fill(&a, &span(0), 1).unwrap();
    copy::device_to_device(&b, &span(1), &span(0)).unwrap();
    assert_eq!(counted(&checked), 1, "a wait is missing");
    let state = checked.0.lock().unwrap();
    println!("  {} operations seen; without a wait: {}", state.1, state.2[0]);
    drop(state);
    a.sync(LONG).unwrap();
    b.sync(LONG).unwrap();
}

fn chain(context: &Context) -> (Stream, Stream, Arc<FencePool>) {
    (Stream::new(context).unwrap(), Stream::new(context).unwrap(), FencePool::new(context))
}
