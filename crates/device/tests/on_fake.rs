//! The safe floor over a fake driver, on machines without a GPU: operations are late, overlap, and
//! come in many orders, and what goes wrong on a GPU can be made to go wrong here.

use std::time::Duration;

use unspool_device::{Context, DeviceMemory, Driver, PinnedMemory, Stream, copy};
use unspool_fakecuda::Fake;

const LIMIT: Duration = Duration::from_secs(20);

fn context() -> Context {
    let driver = Driver::load().expect("the fake");
    Context::new(&driver, 0).expect("its first device")
}

#[test]
fn a_copy_to_the_device_and_back_is_the_same_bytes() {
    let _fake = Fake::start();
    let context = context();
    let stream = Stream::new(&context).unwrap();
    let device = DeviceMemory::new(&context, 100_000).unwrap();
    let mut host = PinnedMemory::new(&context, 100_000).unwrap();
    let back = PinnedMemory::new(&context, 100_000).unwrap();
    // SAFETY: no copy is under way.
    unsafe { host.bytes_mut() }.iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8);
    copy::pinned_to_device(&stream, &device.span(), &host, 0).unwrap();
    copy::device_to_pinned(&stream, &back, 0, &device.span()).unwrap();
    stream.record().unwrap().wait(LIMIT).unwrap();
    // SAFETY: both copies are done.
    unsafe { assert_eq!(back.bytes(), host.bytes()) };
}
