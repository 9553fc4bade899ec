//! Allocation of memory by the fake, refusals, and errors that break a context.

mod driver;

use std::ffi::c_void;

use driver::{
    ALREADY_REGISTERED, Answer, Driver, ILLEGAL_ADDRESS, INVALID_VALUE, NOT_READY, NOT_REGISTERED,
    OUT_OF_MEMORY,
};

const MIB: usize = 1 << 20;
const GRANULE: usize = 2 * MIB;

/// A reserved range of `granules`, mapped and open to device 0.
fn mapped(driver: &Driver, granules: usize) -> Answer<u64> {
    let len = granules * GRANULE;
    let (address, handle) = (driver.reserve(len)?, driver.create(len, 0)?);
    driver.map(address, len, 0, handle, 0)?;
    driver.release_memory(handle)?;
    driver.set_access(address, len, 0)?;
    Ok(address)
}

fn pointer(bytes: &mut [u8]) -> *mut c_void {
    bytes.as_mut_ptr().cast()
}

#[test]
fn memory_is_poisoned_when_it_is_given_and_when_it_is_freed() {
    let driver = Driver::start();
    let a = driver.alloc(100).unwrap();
    assert_eq!(driver.bytes(a, 100), [0xDB; 100]);
    assert!(driver.poke(a, &[1; 100]));
    driver.free(a).unwrap();
    assert_eq!(driver.peek(a, 100), None);
    assert_eq!(driver.bytes(driver.alloc(100).unwrap(), 100), [0xDB; 100]);
    assert_eq!(driver.free(a + 1), Err(INVALID_VALUE));
}

#[test]
fn a_device_has_so_much_memory_and_no_more() {
    let driver = Driver::start();
    let (free, total) = driver.memory_info();
    assert_eq!((free, total), (256 << 20, 256 << 20));
    let a = driver.alloc(100 * MIB).unwrap();
    let address = mapped(&driver, 50).unwrap();
    assert_eq!(driver.memory_info().0, 56 << 20);
    assert_eq!(driver.alloc(57 * MIB), Err(OUT_OF_MEMORY));
    assert_eq!(driver.create(58 * MIB, 0), Err(OUT_OF_MEMORY));
    driver.unmap(address, 50 * GRANULE).unwrap();
    driver.address_free(address, 50 * GRANULE).unwrap();
    driver.free(a).unwrap();
    assert_eq!(driver.memory_info().0, total);
}

#[test]
fn memory_that_others_take_is_not_there() {
    let driver = Driver::start();
    driver.take(0, 250 << 20);
    assert_eq!(driver.memory_info().0, 6 << 20);
    assert_eq!(driver.alloc(7 * MIB), Err(OUT_OF_MEMORY));
    driver.take(0, 0);
    assert!(driver.alloc(7 * MIB).is_ok());
}

#[test]
fn memory_that_is_mapped_keeps_what_was_written_until_it_is_unmapped() {
    let driver = Driver::start();
    let (address, stream) = (mapped(&driver, 1).unwrap(), driver.stream().unwrap());
    assert_eq!(driver.bytes(address, 4), [0xDB; 4]);
    driver.fill(address, 9, GRANULE, stream).unwrap();
    driver.stream_synchronize(stream).unwrap();
    assert_eq!(driver.bytes(address + GRANULE as u64 - 4, 4), [9; 4]);
    driver.unmap(address, GRANULE).unwrap();
    assert_eq!(driver.peek(address, 4), None);
    assert_eq!(driver.fill(address, 9, 4, stream), Err(INVALID_VALUE));
}

#[test]
fn chunks_that_lie_side_by_side_are_one_memory() {
    let driver = Driver::start();
    let (address, stream) = (driver.reserve(2 * GRANULE).unwrap(), driver.stream().unwrap());
    for at in [address, address + GRANULE as u64] {
        let handle = driver.create(GRANULE, 0).unwrap();
        driver.map(at, GRANULE, 0, handle, 0).unwrap();
        driver.release_memory(handle).unwrap();
        driver.set_access(at, GRANULE, 0).unwrap();
    }
    let across = address + GRANULE as u64 - 8;
    driver.fill(across, 3, 16, stream).unwrap();
    driver.stream_synchronize(stream).unwrap();
    assert_eq!(driver.bytes(across, 16), [3; 16]);
    assert_eq!(driver.unmap(address, GRANULE / 2), Err(INVALID_VALUE));
    assert_eq!(driver.address_free(address, 2 * GRANULE), Err(INVALID_VALUE));
}

#[test]
fn what_is_mapped_and_not_opened_cannot_be_used() {
    let driver = Driver::start();
    let (address, stream) = (driver.reserve(GRANULE).unwrap(), driver.stream().unwrap());
    let handle = driver.create(GRANULE, 0).unwrap();
    driver.map(address, GRANULE, 0, handle, 0).unwrap();
    assert_eq!(driver.fill(address, 9, 4, stream), Err(INVALID_VALUE));
    assert_eq!(driver.map(address, GRANULE, 0, handle, 0), Err(INVALID_VALUE));
    driver.set_access(address, GRANULE, 0).unwrap();
    assert_eq!(driver.fill(address, 9, 4, stream), Ok(()));
}

#[test]
fn an_operation_whose_memory_is_unmapped_breaks_the_context_for_good() {
    let driver = Driver::start();
    let (address, stream) = (mapped(&driver, 1).unwrap(), driver.stream().unwrap());
    let event = driver.event().unwrap();
    driver.hold();
    driver.fill(address, 9, GRANULE, stream).unwrap();
    driver.record(event, stream).unwrap();
    driver.unmap(address, GRANULE).unwrap();
    driver.release();
    assert_eq!(driver.stream_synchronize(stream), Err(ILLEGAL_ADDRESS));
    assert_eq!(driver.event_query(event), Err(ILLEGAL_ADDRESS));
    assert_eq!(driver.alloc(8), Err(ILLEGAL_ADDRESS));
    assert_eq!(driver.stream(), Err(ILLEGAL_ADDRESS));
    let other = driver.retain(1).unwrap();
    driver.set_current(other).unwrap();
    assert!(driver.alloc(8).is_ok(), "the other device works");
}

#[test]
fn a_context_that_is_released_and_retained_again_is_whole() {
    let driver = Driver::start();
    driver.break_context(0, 719);
    assert_eq!(driver.alloc(8), Err(719));
    driver.release_context(0).unwrap();
    assert_eq!(driver.alloc(8), Err(driver::INVALID_CONTEXT));
    let context = driver.retain(0).unwrap();
    driver.set_current(context).unwrap();
    assert!(driver.alloc(8).is_ok());
}

#[test]
fn a_copy_beyond_an_allocation_is_refused() {
    let driver = Driver::start();
    let [a, b] = [0, 1].map(|_| driver.alloc(512).unwrap());
    let stream = driver.stream().unwrap();
    assert_eq!(driver.within(a, b, 513, stream), Err(INVALID_VALUE));
    assert_eq!(driver.within(a + 1, b, 512, stream), Err(INVALID_VALUE));
    assert_eq!(driver.fill(a - 1, 0, 1, stream), Err(INVALID_VALUE));
    assert_eq!(driver.within(a, b, 512, stream), Ok(()));
}

#[test]
fn memory_of_another_device_is_refused_and_known_by_its_pointer() {
    let driver = Driver::start();
    let (stream, own) = (driver.stream().unwrap(), driver.alloc(8).unwrap());
    let other = driver.retain(1).unwrap();
    driver.set_current(other).unwrap();
    let theirs = driver.alloc(8).unwrap();
    assert_eq!(driver.within(own, theirs, 8, stream), Err(driver::INVALID_HANDLE));
    assert_eq!(driver.within(own, theirs, 8, 0), Err(INVALID_VALUE));
    let mut ordinal = 7;
    for (pointer, device) in [(own, 0), (theirs, 1)] {
        driver.pointer_attribute_raw(&raw mut ordinal, 9, pointer).unwrap();
        assert_eq!(ordinal, device);
    }
    let plain = [0u8; 8];
    let asked = driver.pointer_attribute_raw(&raw mut ordinal, 9, plain.as_ptr() as u64);
    assert_eq!(asked, Err(INVALID_VALUE));
}

#[test]
fn a_copy_across_two_registrations_is_refused() {
    let driver = Driver::start();
    let (mut host, a, stream) =
        (vec![0u8; 8192], driver.alloc(8192).unwrap(), driver.stream().unwrap());
    driver.register(host.as_ptr(), 4096, 0).unwrap();
    assert_eq!(driver.register(&raw const host[4095], 10, 0), Err(ALREADY_REGISTERED));
    driver.register(&raw const host[4096], 4096, 0).unwrap();
    assert_eq!(driver.to_host(pointer(&mut host), a, 4097, stream), Err(INVALID_VALUE));
    assert_eq!(driver.to_host(pointer(&mut host), a, 4096, stream), Ok(()));
    driver.stream_synchronize(stream).unwrap();
    assert_eq!(host[..4096], [0xDB; 4096]);
    driver.unregister(host.as_ptr()).unwrap();
    assert_eq!(driver.unregister(host.as_ptr()), Err(NOT_REGISTERED));
    driver.unregister(&raw const host[4096]).unwrap();
}

#[test]
fn addresses_without_memory_cannot_be_registered() {
    let driver = Driver::start();
    let reserved = driver.reserve(2 * GRANULE).unwrap();
    driver.address_free(reserved, 2 * GRANULE).unwrap();
    assert_eq!(driver.register(reserved as *const u8, GRANULE, 0), Err(INVALID_VALUE));
}

#[test]
fn unregistering_memory_under_a_copy_breaks_the_context() {
    let driver = Driver::start();
    let (mut host, a, stream) =
        (vec![0u8; 64], driver.alloc(64).unwrap(), driver.stream().unwrap());
    driver.register(host.as_ptr(), 64, 0).unwrap();
    driver.hold();
    driver.to_host(pointer(&mut host), a, 64, stream).unwrap();
    driver.unregister(host.as_ptr()).unwrap();
    driver.release();
    assert_eq!(driver.stream_synchronize(stream), Err(ILLEGAL_ADDRESS));
    assert_eq!(host, [0; 64]);
}

#[test]
fn pinned_memory_is_written_later_and_pageable_memory_before_the_call_returns() {
    let driver = Driver::start();
    let (a, stream) = (driver.alloc(64).unwrap(), driver.stream().unwrap());
    let pinned = driver.host_alloc(64).unwrap();
    let mut pageable = vec![0u8; 64];
    assert!(driver.poke(a, &[4; 64]));
    driver.to_host(pointer(&mut pageable), a, 64, stream).unwrap();
    assert_eq!(pageable, [4; 64]);
    driver.hold();
    driver.to_host(pointer(pinned), a, 64, stream).unwrap();
    assert_eq!(driver.stream_query(stream), Err(NOT_READY));
    driver.release();
    driver.stream_synchronize(stream).unwrap();
    assert_eq!(pinned, [4; 64]);
    driver.host_free(pinned.as_ptr() as u64).unwrap();
}

#[test]
fn pageable_memory_is_read_before_the_call_returns_and_pinned_memory_later() {
    let driver = Driver::start();
    let [a, b] = [0, 1].map(|_| driver.alloc(64).unwrap());
    let (stream, pinned) = (driver.stream().unwrap(), driver.host_alloc(64).unwrap());
    let mut pageable = vec![1u8; 64];
    pinned.fill(1);
    driver.hold();
    driver.to_device(a, pointer(&mut pageable), 64, stream).unwrap();
    driver.to_device(b, pointer(pinned), 64, stream).unwrap();
    pageable.fill(2);
    pinned.fill(2);
    driver.release();
    driver.stream_synchronize(stream).unwrap();
    assert_eq!((driver.bytes(a, 64), driver.bytes(b, 64)), (vec![1; 64], vec![2; 64]));
}

#[test]
fn rows_are_copied_with_their_pitches() {
    let driver = Driver::start();
    let [dense, apart] = [0, 1].map(|_| driver.alloc(4096).unwrap());
    let stream = driver.stream().unwrap();
    let source: Vec<u8> = (0..48).collect();
    assert!(driver.poke(dense, &source));
    // x, y, kind (2: device), host, device, array, pitch; twice; width, height.
    let copy = |to: u64, width| [0, 0, 2, 0, dense, 0, 16, 0, 0, 2, 0, to, 0, 100, width, 3];
    driver.rows(&copy(apart, 16), stream).unwrap();
    driver.stream_synchronize(stream).unwrap();
    let got = driver.bytes(apart, 300);
    assert_eq!(got[..16], source[..16]);
    assert_eq!(got[16..100], [0xDB; 84]);
    assert_eq!(got[100..116], source[16..32]);
    assert_eq!(got[200..216], source[32..]);
    assert_eq!(driver.rows(&copy(apart + 3900, 16), stream), Err(INVALID_VALUE));
    assert_eq!(driver.rows(&copy(apart, 17), stream), Err(INVALID_VALUE));
}

#[test]
fn the_end_of_a_context_frees_all_that_it_has() {
    let driver = Driver::start();
    let a = driver.alloc(64).unwrap();
    mapped(&driver, 1).unwrap();
    driver.release_context(0).unwrap();
    assert_eq!(driver.peek(a, 64), None);
    driver.retain(0).unwrap();
    assert_eq!(driver.memory_info().0, 256 << 20);
}
