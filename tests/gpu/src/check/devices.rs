//! Two devices in one process, if there are two: each entry point refuses objects of the other
//! device, and nothing is ever copied between them.

use unspool_cuda::{
    Context, DeviceArena, DeviceArenaOptions, DeviceError, DeviceErrorKind, DeviceMemory, Driver,
    Event, FencePool, PinnedArena, PinnedMemory, PinnedOptions, StagingRing, Stream, StridedCopies,
    StridedLayout, Unregistered, copy, device_of,
};

use crate::util::{LONG, MIB, wait_for_releases};

struct Side {
    context: Context,
    stream: Stream,
    memory: DeviceMemory,
    pinned: PinnedMemory,
    arena: PinnedArena,
}

impl Side {
    fn new(context: &Context) -> Side {
        Side {
            context: context.clone(),
            stream: Stream::new(context).unwrap(),
            memory: DeviceMemory::new(context, MIB).unwrap(),
            pinned: PinnedMemory::new(context, MIB).unwrap(),
            arena: PinnedArena::new(context, MIB, &PinnedOptions::default()).unwrap(),
        }
    }
}

pub fn run(driver: &Driver, context: &Context) {
    let Some(other) = driver.devices().get(1) else {
        println!("  (one device only: not checked)");
        return;
    };
    let (a, b) = (Side::new(context), Side::new(&Context::new(driver, other.ordinal).unwrap()));
    copies(&a, &b);
    arenas(&a, &b);
    streams(&a, &b);
    strided(&a, &b);
    memory(&a, &b);
    drop((a, b));
    wait_for_releases();
    println!("two devices: objects of the other one are refused");
}

/// Asserts that `result` is a refusal of another device's object.
fn refused(what: &str, result: Result<(), DeviceError>) {
    let error = result.expect_err(what);
    assert_eq!(error.kind(), DeviceErrorKind::WrongDevice, "{what}: {error}");
}

fn copies(a: &Side, b: &Side) {
    let (ours, theirs, mut host) = (a.memory.span(), b.memory.span(), vec![0; MIB as usize]);
    refused("to", copy::device_to_device(&a.stream, &theirs, &ours));
    refused("from", copy::device_to_device(&a.stream, &ours, &theirs));
    refused("on", copy::device_to_device(&b.stream, &ours, &ours));
    refused("raw", copy::device_to_device_blocking(&a.stream, &ours, &theirs));
    refused("fill", copy::fill(&a.stream, &theirs, 1));
    refused("to pinned", copy::device_to_pinned(&a.stream, &b.pinned, 0, &ours));
    refused("from pinned", copy::pinned_to_device(&a.stream, &ours, &b.pinned, 0));
    refused("from the host", copy::host_to_device(&a.stream, &theirs, &host, LONG));
    refused("to the host", copy::device_to_host(&a.stream, &mut host, &theirs, LONG));
}

fn arenas(a: &Side, b: &Side) {
    let (ours, theirs) = (a.memory.span(), b.memory.span());
    let pageable = || Unregistered::Pageable;
    refused("into", b.arena.copy_in(&a.stream, 0, &ours, pageable()));
    refused("out of", b.arena.copy_out(&a.stream, &ours, 0, pageable()));
    refused("theirs in", a.arena.copy_in(&a.stream, 0, &theirs, pageable()));
    refused("theirs out", a.arena.copy_out(&a.stream, &theirs, 0, pageable()));
    let options = PinnedOptions { prepare: false, ..PinnedOptions::default() };
    let plain = PinnedArena::new(&a.context, MIB, &options).unwrap();
    let mut ring = StagingRing::new(&b.context, 4096, 2, LONG).unwrap();
    refused("ring", plain.copy_in(&a.stream, 0, &ours, Unregistered::Staged(&mut ring)));
    refused("ring", plain.copy_out(&a.stream, &ours, 0, Unregistered::Staged(&mut ring)));
}

fn streams(a: &Side, b: &Side) {
    refused("event", Event::new(&a.context).unwrap().record(&b.stream));
    refused("fence", FencePool::new(&a.context).record(&b.stream).map(drop));
    // SAFETY: the stream outlives the attempt.
    let error = unsafe { Stream::borrow(&a.context, b.stream.handle()) }.unwrap_err();
    println!("  {error}");
    assert_eq!(error.kind(), DeviceErrorKind::WrongDevice);
    // Waiting for the other device is allowed, because it copies nothing.
    b.stream.wait_for(&a.stream.record().unwrap()).unwrap();
    b.stream.sync(LONG).unwrap();
}

fn strided(a: &Side, b: &Side) {
    let copies = StridedCopies::new(&a.context, Vec::new());
    let layout = StridedLayout { shape: vec![MIB], strides: vec![1], itemsize: 1 };
    let (ours, theirs, to) = (a.memory.span(), b.memory.span(), a.memory.span().address());
    // SAFETY: all are refused before anything is touched.
    unsafe {
        refused("on", copies.gather(&b.stream, &ours, to, &layout));
        refused("to", copies.gather(&a.stream, &theirs, to, &layout));
        refused("on", copies.scatter(&b.stream, to, &layout, &ours));
        refused("from", copies.scatter(&a.stream, to, &layout, &theirs));
    }
}

/// Checks that an arena is counted on its own device, and that its memory is released.
fn memory(a: &Side, b: &Side) {
    wait_for_releases();
    let free = || [a, b].map(|side| side.context.memory().unwrap().0);
    let before = free();
    let len = b.context.device().memory / 20;
    let arena = DeviceArena::new(&b.context, len, &DeviceArenaOptions::default()).unwrap();
    arena.wait_mapped(len, LONG).unwrap();
    assert_eq!(device_of(arena.span(0, 1).unwrap().address()).unwrap(), Some(b.context.ordinal()));
    let during = free();
    assert!(during[1] + len <= before[1], "{during:?} of {before:?}");
    assert!(during[0] + 64 * MIB >= before[0], "{during:?} of {before:?}");
    drop(arena);
    wait_for_releases();
    let after = free();
    assert!(after[1] + 64 * MIB >= before[1], "{after:?} of {before:?}");
}
