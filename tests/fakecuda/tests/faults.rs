//! Planned faults, and kernels.

mod driver;

use driver::{Driver, OUT_OF_MEMORY};

#[test]
fn the_call_that_was_named_fails_once_and_does_nothing() {
    let driver = Driver::start();
    let before = driver.memory_info();
    driver.fail("cuMemAlloc", 2, OUT_OF_MEMORY);
    let first = driver.alloc(512).unwrap();
    assert_eq!(driver.alloc(512), Err(OUT_OF_MEMORY));
    assert_eq!(driver.memory_info().0, before.0 - 512);
    driver.free(first).unwrap();
    assert!(driver.alloc(512).is_ok());
}

#[test]
fn a_fault_that_no_context_survives_breaks_the_context() {
    let driver = Driver::start();
    driver.fail("cuMemGetInfo_v2", 1, 700);
    assert_eq!(driver.memory_info(), (0, 0));
    assert_eq!(driver.alloc(512), Err(700));
}

#[test]
fn an_operation_that_fails_is_reported_later() {
    let driver = Driver::start();
    let (a, stream) = (driver.alloc(64).unwrap(), driver.stream().unwrap());
    driver.hold();
    driver.fail("execute", 2, 719);
    driver.fill(a, 1, 64, stream).unwrap();
    driver.fill(a, 2, 64, stream).unwrap();
    assert!(driver.poke(a, &[0; 64]));
    driver.release();
    assert_eq!(driver.stream_synchronize(stream), Err(719));
    assert_eq!(driver.bytes(a, 64), [1; 64]);
}

#[test]
fn calls_are_counted() {
    let driver = Driver::start();
    let before = driver.calls("cuMemAlloc_v2");
    driver.alloc(64).unwrap();
    let _ = driver.alloc(0);
    assert_eq!(driver.calls("cuMemAlloc_v2"), before + 2);
    assert_eq!(driver.count("no such thing"), u64::MAX);
}

#[test]
fn a_kernel_runs_in_its_stream() {
    let driver = Driver::start();
    let (a, stream) = (driver.alloc(64).unwrap(), driver.stream().unwrap());
    let (mut module, mut function) = (0, 0);
    let image = [unspool_fakecuda::IMAGE, b" and more"].concat();
    driver.module_load_raw(&raw mut module, image.as_ptr()).unwrap();
    assert_eq!(driver.module_load_raw(&raw mut module, b"\x7fELF....".as_ptr()), Err(200));
    let get =
        |name: &[u8], function: &mut u64| driver.function_raw(function, module, name.as_ptr());
    assert_eq!(get(b"no_such_kernel\0", &mut function), Err(500));
    get(b"fill_pattern\0", &mut function).unwrap();
    let words = [a, 64, 5, 0];
    let parameters: Vec<*const u64> = words.iter().map(std::ptr::from_ref).collect();
    let (list, none) = (parameters.as_ptr(), std::ptr::null());
    driver.launch_raw(function, 1, 1, 1, 1, 1, 1, 0, stream, list, none).unwrap();
    driver.stream_synchronize(stream).unwrap();
    let first = driver.bytes(a, 64);
    assert_ne!(first, vec![0xDB; 64]);
    let beyond = [a, 10_000, 5, 0];
    let parameters: Vec<*const u64> = beyond.iter().map(std::ptr::from_ref).collect();
    let list = parameters.as_ptr();
    driver.launch_raw(function, 1, 1, 1, 1, 1, 1, 0, stream, list, none).unwrap();
    assert_eq!(driver.stream_synchronize(stream), Err(driver::ILLEGAL_ADDRESS));
}
