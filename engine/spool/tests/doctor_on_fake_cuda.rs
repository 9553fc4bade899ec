//! The doctor and the automatic sizes on a driver in plain memory.

use std::time::{Duration, Instant};

use unspool::doctor::{Checkup, Diagnosis};
use unspool::{ErrorKind, On, Settings, Spool, auto};
use unspool_fakecuda::Fake;

const GIB: u64 = 1 << 30;
/// What starts a device.
const START: &str = "cuDevicePrimaryCtxRetain";

/// A machine with two devices of 4 GiB.
fn machine() -> Fake {
    let fake = Fake::start_with(&[("FAKECUDA_DEVICES", "2"), ("FAKECUDA_MEMORY", "4294967296")]);
    fake.memory(4 * GIB);
    // What an earlier test used is kept for a while, or given back on threads of its own.
    until_idle(&fake);
    fake
}

fn until_idle(fake: &Fake) {
    let kept = ["pending", "blocks", "mappings", "handles", "contexts"];
    until(|| {
        unspool::trim();
        kept.iter().all(|name| fake.count(name) == 0)
    });
}

fn unmeasured() -> Diagnosis {
    Checkup { measure: false, ..Checkup::default() }.run()
}

/// Waits until a condition holds.
fn until(mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it never came to that");
        std::thread::yield_now();
    }
}

#[test]
fn every_device_is_started_and_measured() {
    let _fake = machine();
    let diagnosis = Checkup { budget: Duration::MAX, ..Checkup::default() }.run();
    assert_eq!(diagnosis.cuda.problem, None);
    assert_eq!(diagnosis.cuda.devices.len(), 2);
    for (index, device) in diagnosis.cuda.devices.iter().enumerate() {
        assert_eq!(device.info.ordinal as usize, index);
        assert_eq!(device.problem, None);
        assert!(device.free.is_some_and(|free| free > 3 * GIB), "{device:?}");
        assert!(device.start.is_some() && device.pins_are_locked.is_some());
        let speeds = device.speeds.unwrap();
        let all = [speeds.device_to_host, speeds.host_to_device, speeds.device_to_device];
        assert!(all.iter().all(|&rate| rate > 0.0), "{speeds:?}");
    }
    let automatic = diagnosis.automatic.device.unwrap();
    assert!(automatic.contains("1.75 GiB: 50 % of what is free after 512 MiB"), "{automatic}");
}

#[test]
fn without_measuring_devices_are_started_and_nothing_is_copied() {
    let fake = machine();
    let before = fake.calls("cuMemcpyDtoHAsync_v2");
    let diagnosis = unmeasured();
    assert!(diagnosis.cuda.devices.iter().all(|device| device.free.is_some()));
    assert!(diagnosis.cuda.devices.iter().all(|device| device.speeds.is_none()));
    assert_eq!(fake.calls("cuMemcpyDtoHAsync_v2"), before);
}

#[test]
fn devices_beyond_the_budget_are_started_and_not_measured() {
    let _fake = machine();
    let diagnosis = Checkup { budget: Duration::ZERO, ..Checkup::default() }.run();
    assert!(diagnosis.cuda.devices.iter().all(|device| device.free.is_some()));
    assert!(diagnosis.cuda.devices.iter().all(|device| device.speeds.is_none()));
}

#[test]
fn memory_that_another_process_holds_is_found() {
    let fake = machine();
    fake.take(0, 4 * GIB - (100 << 20));
    let diagnosis = unmeasured();
    let [first, second] = &diagnosis.cuda.devices[..] else { panic!("two devices") };
    assert!(first.free.is_some_and(|free| free < GIB), "{first:?}");
    assert!(second.free.is_some_and(|free| free > 3 * GIB), "{second:?}");
}

#[test]
fn a_device_that_refuses_does_not_hide_the_other_one() {
    let fake = machine();
    fake.fail(START, 1, 46);
    let diagnosis = unmeasured();
    let [first, second] = &diagnosis.cuda.devices[..] else { panic!("two devices") };
    assert!(first.problem.as_ref().is_some_and(|text| text.contains("(46)")), "{first:?}");
    assert!(first.free.is_none() && second.free.is_some() && second.problem.is_none());
}

#[test]
fn a_copy_that_fails_is_told_with_the_call() {
    let fake = machine();
    fake.fail("cuMemcpyDtoHAsync_v2", 1, 1);
    let diagnosis = Checkup::default().run();
    let problem = diagnosis.cuda.devices[0].problem.as_deref().unwrap_or_default();
    assert!(problem.contains("cuMemcpyDtoHAsync"), "{problem}");
    assert!(diagnosis.cuda.devices[0].free.is_some(), "it works otherwise");
}

#[test]
fn a_device_that_hangs_is_left_with_what_was_found() {
    let fake = machine();
    let started = fake.calls(START);
    fake.hold();
    let begin = Instant::now();
    let diagnosis = Checkup { limit: Duration::from_secs(2), ..Checkup::default() }.run();
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    let problem = diagnosis.cuda.problem.unwrap_or_default();
    assert!(problem.contains("no answer within 2 s while"), "{problem}");
    assert!(diagnosis.cuda.devices[0].free.is_some(), "what was found before stays");
    fake.release();
    // The thread that was left behind goes on with both devices, and must not do so in the next
    // test.
    until(|| fake.calls(START) == started + 2);
    until_idle(&fake);
}

#[test]
fn automatic_sizes_open_a_spool() {
    let _fake = machine();
    let device = auto::device(&On::Auto).unwrap();
    assert!(device.sentence.contains("device 0"), "{}", device.sentence);
    assert_eq!(device.bytes, (4 * GIB - (512 << 20)) / 2);
    let mut settings = Settings { device: Some(device.bytes), ..Settings::default() };
    let host = auto::host(&settings).unwrap();
    assert!(host.sentence.contains("50 % of what is free"), "{}", host.sentence);
    // The machine of the test need not have that much to pin.
    settings.host = Some(host.bytes.min(64 << 20));
    let spool = Spool::open(settings).unwrap();
    assert_eq!(spool.stats().unwrap().tiers[0].capacity, device.bytes);
    spool.close().unwrap();
}

#[test]
fn the_device_that_is_named_is_the_one_that_is_asked() {
    let fake = machine();
    fake.take(1, 4 * GIB - (200 << 20));
    let error = auto::device(&On::Cuda(Some(1))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.message().contains("free on device 1"), "{error}");
    assert!(auto::device(&On::Cuda(Some(0))).is_ok());
    assert_eq!(auto::device(&On::Cuda(Some(2))).unwrap_err().kind(), ErrorKind::NoDevice);
}
