//! The order of operations that streams and events enforce on the fake, and what they leave open.

mod driver;

use driver::{Answer, Driver, INVALID_HANDLE, NOT_READY};

const LEN: usize = 10_000;

/// Fills `a` on one stream and copies it to `b` on another. Returns whether `b` is the filled `a`.
fn produce_and_consume(driver: &Driver, seed: u64, with_wait: bool) -> Answer<bool> {
    driver.seed(seed);
    let (a, b) = (driver.alloc(LEN)?, driver.alloc(LEN)?);
    let (one, other, event) = (driver.stream()?, driver.stream()?, driver.event()?);
    driver.fill(a, 7, LEN, one)?;
    driver.record(event, one)?;
    if with_wait {
        driver.stream_wait(other, event, 0)?;
    }
    driver.within(b, a, LEN, other)?;
    driver.synchronize()?;
    let arrived = driver.bytes(b, LEN as u64) == vec![7; LEN];
    [a, b].into_iter().try_for_each(|address| driver.free(address))?;
    [one, other].into_iter().try_for_each(|stream| driver.stream_destroy(stream))?;
    driver.event_destroy(event)?;
    Ok(arrived)
}

#[test]
fn a_wait_orders_two_streams_with_every_seed() {
    let driver = Driver::start();
    assert!((0..100).all(|seed| produce_and_consume(&driver, seed, true) == Ok(true)));
}

#[test]
fn without_the_wait_many_seeds_see_wrong_bytes() {
    let driver = Driver::start();
    let is_wrong = |&seed: &u64| produce_and_consume(&driver, seed, false) == Ok(false);
    let wrong = (0..100).filter(is_wrong).count();
    assert!(wrong >= 20, "{wrong} of 100 seeds");
}

#[test]
fn nothing_is_done_while_the_device_is_held() {
    let driver = Driver::start();
    let (a, stream, event) =
        (driver.alloc(8).unwrap(), driver.stream().unwrap(), driver.event().unwrap());
    driver.hold();
    driver.fill(a, 1, 8, stream).unwrap();
    driver.record(event, stream).unwrap();
    assert_eq!(driver.event_query(event), Err(NOT_READY));
    assert_eq!(driver.stream_query(stream), Err(NOT_READY));
    assert_eq!(driver.bytes(a, 8), [0xDB; 8]);
    driver.release();
    driver.event_synchronize(event).unwrap();
    assert_eq!(driver.event_query(event), Ok(()));
    assert_eq!(driver.bytes(a, 8), [1; 8]);
}

#[test]
fn one_held_stream_does_not_stop_the_others() {
    let driver = Driver::start();
    let a = driver.alloc(8).unwrap();
    let [stuck, free] = [0, 1].map(|_| driver.stream().unwrap());
    assert!(driver.hold_stream(stuck as usize));
    driver.fill(a, 1, 8, stuck).unwrap();
    driver.fill(a, 2, 8, free).unwrap();
    driver.stream_synchronize(free).unwrap();
    assert_eq!(driver.bytes(a, 8), [2; 8]);
    driver.release();
    driver.stream_synchronize(stuck).unwrap();
    assert_eq!(driver.bytes(a, 8), [1; 8]);
}

#[test]
fn an_event_that_was_never_recorded_is_done() {
    let driver = Driver::start();
    let (event, stream) = (driver.event().unwrap(), driver.stream().unwrap());
    assert_eq!(driver.event_query(event), Ok(()));
    driver.stream_wait(stream, event, 0).unwrap();
    assert_eq!(driver.stream_synchronize(stream), Ok(()));
}

#[test]
fn a_wait_keeps_the_recording_that_there_was_when_it_was_enqueued() {
    let driver = Driver::start();
    let [first, second, waiting] = [0, 1, 2].map(|_| driver.stream().unwrap());
    let event = driver.event().unwrap();
    driver.record(event, first).unwrap();
    driver.event_synchronize(event).unwrap();
    driver.stream_wait(waiting, event, 0).unwrap();
    assert!(driver.hold_stream(second as usize));
    driver.record(event, second).unwrap();
    assert_eq!(driver.event_query(event), Err(NOT_READY));
    driver.stream_synchronize(waiting).unwrap();
    driver.event_destroy(event).unwrap();
    driver.release();
    assert_eq!(driver.event_query(event), Err(INVALID_HANDLE));
}

#[test]
fn an_event_that_is_destroyed_is_still_waited_for() {
    let driver = Driver::start();
    let [first, second] = [0, 1].map(|_| driver.stream().unwrap());
    let event = driver.event().unwrap();
    assert!(driver.hold_stream(first as usize));
    driver.record(event, first).unwrap();
    driver.stream_wait(second, event, 0).unwrap();
    driver.event_destroy(event).unwrap();
    assert_eq!(driver.stream_query(second), Err(NOT_READY));
    driver.release();
    assert_eq!(driver.stream_synchronize(second), Ok(()));
}

#[test]
fn the_legacy_default_stream_and_blocking_streams_wait_for_each_other() {
    let driver = Driver::start();
    let [one, other] = [0, 1].map(|_| driver.stream_with(0).unwrap());
    let a = driver.alloc(LEN).unwrap();
    for seed in 0..50 {
        driver.seed(seed);
        driver.fill(a, 1, LEN, one).unwrap();
        driver.fill(a, 2, LEN, 0).unwrap();
        driver.fill(a, 3, LEN, other).unwrap();
        driver.fill(a, 4, LEN, 1).unwrap();
        driver.stream_synchronize(1).unwrap();
        assert_eq!(driver.bytes(a, LEN as u64), vec![4; LEN], "seed {seed}");
    }
}

#[test]
fn the_legacy_default_stream_waits_for_a_blocking_stream_that_is_held() {
    let driver = Driver::start();
    let (blocking, apart) = (driver.stream_with(0).unwrap(), driver.stream().unwrap());
    let a = driver.alloc(8).unwrap();
    assert!(driver.hold_stream(blocking as usize));
    driver.fill(a, 1, 8, blocking).unwrap();
    driver.fill(a, 2, 8, 0).unwrap();
    for byte in 3..20 {
        driver.fill(a, byte, 8, apart).unwrap();
    }
    driver.stream_synchronize(apart).unwrap();
    assert_eq!(driver.stream_query(1), Err(NOT_READY));
    assert_eq!(driver.bytes(a, 8), [19; 8]);
    driver.release();
    driver.synchronize().unwrap();
    assert_eq!(driver.bytes(a, 8), [2; 8]);
}

#[test]
fn the_legacy_default_stream_does_not_wait_for_streams_that_do_not_block() {
    let driver = Driver::start();
    let (stream, a) = (driver.stream().unwrap(), driver.alloc(8).unwrap());
    assert!(driver.hold_stream(stream as usize));
    driver.fill(a, 1, 8, stream).unwrap();
    driver.fill(a, 2, 8, 1).unwrap();
    assert_eq!(driver.stream_synchronize(0), Ok(()));
    assert_eq!(driver.bytes(a, 8), [2; 8]);
}

#[test]
fn the_default_stream_of_a_thread_is_its_own() {
    let driver = Driver::start();
    let (a, event) = (driver.alloc(8).unwrap(), driver.event().unwrap());
    assert!(driver.hold_stream(2));
    driver.fill(a, 1, 8, 2).unwrap();
    driver.record(event, 2).unwrap();
    let context = driver.retain(0).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            driver.set_current(context).unwrap();
            assert_eq!(driver.stream_synchronize(2), Ok(()));
        });
    });
    assert_eq!(driver.event_query(event), Err(NOT_READY));
}

#[test]
fn a_stream_that_is_destroyed_finishes_what_it_has() {
    let driver = Driver::start();
    let (stream, a) = (driver.stream().unwrap(), driver.alloc(LEN).unwrap());
    let before = driver.count("streams");
    driver.hold();
    driver.fill(a, 5, LEN, stream).unwrap();
    driver.stream_destroy(stream).unwrap();
    assert_eq!(driver.fill(a, 6, LEN, stream), Err(INVALID_HANDLE));
    assert_eq!(driver.stream_destroy(stream), Err(INVALID_HANDLE));
    driver.release();
    driver.synchronize().unwrap();
    assert_eq!(driver.bytes(a, LEN as u64), vec![5; LEN]);
    assert_eq!(driver.count("streams"), before - 1);
}

#[test]
fn events_measure_time_when_they_are_done() {
    let driver = Driver::start();
    let stream = driver.stream().unwrap();
    let [start, end] = [0, 1].map(|_| driver.event().unwrap());
    let a = driver.alloc(LEN).unwrap();
    driver.pace(std::time::Duration::ZERO, 1_000_000);
    driver.record(start, stream).unwrap();
    driver.fill(a, 5, LEN, stream).unwrap();
    driver.record(end, stream).unwrap();
    driver.stream_synchronize(stream).unwrap();
    let mut milliseconds = 0.0;
    driver.elapsed_raw(&raw mut milliseconds, start, end).unwrap();
    assert!(milliseconds > 1.0, "{milliseconds} ms for 10,000 bytes at 1 MB/s");
}

#[test]
fn a_stream_that_is_captured_says_so_and_takes_no_work() {
    let driver = Driver::start();
    let (stream, a) = (driver.stream().unwrap(), driver.alloc(8).unwrap());
    driver.begin_capture(stream, 0).unwrap();
    assert_eq!(driver.fill(a, 1, 8, stream), Err(900));
}

#[test]
fn a_capture_keeps_every_thread_from_unsafe_calls_unless_it_is_relaxed() {
    let driver = Driver::start();
    let (stream, mut graph, mut relaxed) = (driver.stream().unwrap(), 0, 2);
    driver.begin_capture(stream, 0).unwrap();
    driver.exchange_mode(&raw mut relaxed).unwrap();
    assert_eq!((relaxed, driver.alloc(8).map(drop)), (0, Ok(())));
    assert_eq!(driver.end_capture(stream, &raw mut graph), Ok(()));
    driver.exchange_mode(&raw mut relaxed).unwrap();
    driver.begin_capture(stream, 0).unwrap();
    assert_eq!(driver.alloc(8), Err(900));
    assert_eq!(driver.end_capture(stream, &raw mut graph), Err(901));
    assert!(driver.alloc(8).is_ok());
}
