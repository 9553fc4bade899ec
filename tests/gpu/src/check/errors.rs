//! Errors that a real driver reports, with helpful texts.

use std::process::Command;

use unspool_cuda::{
    Context, DeviceArena, DeviceArenaOptions, DeviceErrorKind, DeviceMemory, Driver, PinnedArena,
    PinnedOptions, Stream, Unregistered,
};

use crate::util::{LONG, MIB, wait_for_releases};

pub fn run(driver: &Driver, context: &Context) {
    too_much(context);
    too_much_of_the_host(context);
    closed_and_outside(context);
    let error = Context::new(driver, 99).unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::Missing);
    println!("  {error}");
    let own = std::env::current_exe().unwrap();
    let hidden = Command::new(own).arg("hidden").env("CUDA_VISIBLE_DEVICES", "").status();
    assert!(hidden.unwrap().success(), "hidden devices are told");
    wait_for_releases();
    println!("errors: all passed");
}

/// Runs in a separate process whose devices are hidden.
pub fn hidden() {
    let error = Driver::load().unwrap_err();
    println!("  {error}");
    assert!(error.text.contains("set and empty"));
}

fn too_much(context: &Context) {
    let (free, total) = context.memory().unwrap();
    let options = DeviceArenaOptions::default();
    let error = DeviceArena::new(context, 2 * total, &options).unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::OutOfMemory);
    println!("  {error}");
    let error = DeviceMemory::new(context, 2 * total).unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::OutOfMemory);
    println!("  {error}");
    let options = DeviceArenaOptions { shrink_ok: true, ..options };
    let arena = DeviceArena::new(context, 2 * total, &options).unwrap();
    let shrunk = arena.shrunk().unwrap();
    assert!(shrunk.got < free && shrunk.got > free / 2, "{shrunk:?}, free {free}");
    arena.wait_mapped(arena.capacity(), LONG).unwrap();
    drop(arena);
    wait_for_releases();
    let (after, _) = context.memory().unwrap();
    assert!(after + 64 * MIB > free, "memory came back: {after} of {free}");
}

fn too_much_of_the_host(context: &Context) {
    let error = PinnedArena::new(context, 1 << 44, &PinnedOptions::default()).unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::PinLimit);
    println!("  {error}");
}

fn closed_and_outside(context: &Context) {
    let stream = Stream::new(context).unwrap();
    let device = DeviceArena::new(context, 8 * MIB, &DeviceArenaOptions::default()).unwrap();
    device.wait_mapped(8 * MIB, LONG).unwrap();
    let span = device.span(0, 4 * MIB).unwrap();
    let host = PinnedArena::new(context, 8 * MIB, &PinnedOptions::default()).unwrap();
    let copy = |offset| host.copy_in(&stream, offset, &span, Unregistered::Pageable);
    copy(4 * MIB).unwrap();
    let error = copy(4 * MIB + 1).unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::OutOfRange);
    println!("  {error}");
    assert!(device.span(8 * MIB - 1, 2).is_err());
    host.close();
    let error = host.copy_in(&stream, 0, &span, Unregistered::Pageable).unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::Closed);
    println!("  {error}");
}
