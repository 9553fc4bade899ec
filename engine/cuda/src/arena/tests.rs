//! A device arena on a stand-in for the driver with a given amount of memory.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;
use crate::error::{CudaError, OUT_OF_MEMORY};

const GRANULE: u64 = 2 << 20;
const LONG: Duration = Duration::from_secs(60);

/// Memory that runs out after `room` bytes although the stand-in reports `said` free bytes.
struct Fake {
    said: u64,
    room: Mutex<u64>,
    gate: Option<Mutex<Receiver<()>>>,
    unmapped: Sender<(u64, u64)>,
}

impl Mapper for Fake {
    fn granularity(&self) -> u64 {
        GRANULE
    }

    fn free(&self) -> Result<u64, CudaError> {
        Ok(self.said)
    }

    fn reserve(&self, len: u64) -> Result<u64, CudaError> {
        assert!(len.is_multiple_of(GRANULE));
        Ok(1 << 40)
    }

    unsafe fn map(&self, _address: u64, len: u64) -> Result<(), CudaError> {
        assert!(len > 0 && len.is_multiple_of(GRANULE));
        if let Some(gate) = &self.gate {
            let _ = gate.lock().unwrap().recv_timeout(LONG);
        }
        let mut room = self.room.lock().unwrap();
        *room = room.checked_sub(len).ok_or_else(|| CudaError {
            call: "cuMemCreate",
            code: OUT_OF_MEMORY,
            name: "CUDA_ERROR_OUT_OF_MEMORY".into(),
            text: "out of memory".into(),
        })?;
        Ok(())
    }

    unsafe fn unmap(&self, address: u64, len: u64) -> Result<(), CudaError> {
        self.unmapped.send((address, len)).unwrap();
        Ok(())
    }

    unsafe fn give_back(&self, _address: u64, _len: u64) -> Result<(), CudaError> {
        Ok(())
    }
}

type Arena = (Result<DeviceArena, DeviceError>, Receiver<(u64, u64)>, Sender<()>);

fn arena(asked: u64, said: u64, room: u64, shrink_ok: bool, gated: bool) -> Arena {
    let (unmapped, seen) = channel();
    let (open, gate) = channel();
    let gate = gated.then(|| Mutex::new(gate));
    let mapper = Box::new(Fake { said, room: room.into(), gate, unmapped });
    let options = DeviceArenaOptions { chunk: 64 * GRANULE, shrink_ok, leave_free: 4 * GRANULE };
    let after = AfterUse::Nothing;
    (DeviceArena::with(mapper, after, 0, asked, &options), seen, open)
}

#[test]
fn the_whole_arena_is_mapped_and_unmapped_as_it_was_mapped() {
    let asked = 150 * GRANULE + 5;
    let (made, seen, _) = arena(asked, 1 << 40, 1 << 40, false, false);
    let made = made.unwrap();
    made.wait_mapped(asked, LONG).unwrap();
    assert_eq!((made.mapped(), made.capacity(), made.shrunk()), (asked, asked, None));
    drop(made);
    let mut total = 0;
    while let Ok((address, len)) = seen.recv_timeout(LONG) {
        assert_eq!(address, (1 << 40) + total);
        total += len;
    }
    assert_eq!(total, 151 * GRANULE);
}

#[test]
fn bytes_that_are_not_mapped_yet_are_refused_and_come_with_their_chunk() {
    let (made, _seen, open) = arena(128 * GRANULE, 1 << 40, 1 << 40, false, true);
    let made = made.unwrap();
    assert_eq!(made.span(0, 1).unwrap_err().kind(), DeviceErrorKind::OutOfRange);
    open.send(()).unwrap();
    made.wait_mapped(64 * GRANULE, LONG).unwrap();
    assert!(made.span(0, 64 * GRANULE).is_ok());
    assert_eq!(made.span(1, 64 * GRANULE).unwrap_err().kind(), DeviceErrorKind::OutOfRange);
    let error = made.wait_mapped(65 * GRANULE, Duration::from_millis(1)).unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::TimedOut);
    open.send(()).unwrap();
}

#[test]
fn memory_that_is_not_there_is_an_error_at_once_with_both_sizes() {
    let (made, ..) = arena(8 << 30, 1 << 30, 1 << 30, false, false);
    let error = made.unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::OutOfMemory);
    assert!(error.to_string().contains("8 GiB asked for, 1 GiB free"), "{error}");
}

#[test]
fn an_arena_that_may_be_smaller_and_has_no_room_at_all_is_not_advised_to_be_smaller() {
    let (made, ..) = arena(8 << 30, 3 * GRANULE, 3 * GRANULE, true, false);
    let error = made.unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::OutOfMemory);
    let text = error.to_string();
    assert!(text.contains("Not even a smaller arena") && !text.contains("or allow"), "{text}");
}

#[test]
fn an_arena_ends_with_what_is_mapped_when_another_takes_memory_meanwhile() {
    for shrink_ok in [false, true] {
        let (made, ..) = arena(1 << 30, 2 << 30, 300 << 20, shrink_ok, false);
        let made = made.unwrap();
        let error = made.wait_mapped(1 << 30, LONG).unwrap_err();
        assert_eq!(error.kind(), DeviceErrorKind::OutOfMemory);
        assert!(error.cause().is_some());
        assert!(error.to_string().contains("of 1 GiB were mapped when another user"), "{error}");
        let got = made.capacity();
        assert!((288 << 20..=300 << 20).contains(&got), "{got}");
        assert_eq!((made.mapped(), made.shrunk()), (got, Some(Shrunk { asked: 1 << 30, got })));
        assert!(made.span(0, got).is_ok());
    }
}

#[test]
fn an_arena_that_gets_nothing_is_one_of_no_bytes() {
    let (made, ..) = arena(1 << 30, 2 << 30, 0, false, false);
    let made = made.unwrap();
    assert_eq!(made.wait_mapped(1, LONG).unwrap_err().kind(), DeviceErrorKind::OutOfMemory);
    assert_eq!((made.capacity(), made.mapped()), (0, 0));
    assert!(made.span(0, 0).is_ok());
}

#[test]
fn a_smaller_arena_where_it_is_allowed_says_so() {
    let (made, ..) = arena(8 << 30, 1 << 30, 1 << 30, true, false);
    let made = made.unwrap();
    let got = (1 << 30) - 4 * GRANULE;
    assert_eq!(made.shrunk(), Some(Shrunk { asked: 8 << 30, got }));
    made.wait_mapped(got, LONG).unwrap();
}

#[test]
fn an_arena_stays_mapped_while_a_span_names_it() {
    let (made, seen, _) = arena(GRANULE, 1 << 40, 1 << 40, false, false);
    let made = made.unwrap();
    made.wait_mapped(GRANULE, LONG).unwrap();
    let span = made.span(0, 10).unwrap();
    drop(made);
    assert!(seen.try_recv().is_err(), "unmapped although a span names it");
    drop(span);
    assert_eq!(seen.recv_timeout(LONG), Ok((1 << 40, GRANULE)));
}

#[test]
fn an_arena_that_goes_away_while_it_is_mapped_unmaps_what_there_is() {
    let (made, seen, open) = arena(640 * GRANULE, 1 << 40, 1 << 40, false, true);
    let made = made.unwrap();
    open.send(()).unwrap();
    made.wait_mapped(1, LONG).unwrap();
    drop(made);
    drop(open);
    let mut total = 0;
    while let Ok((_, len)) = seen.recv_timeout(LONG) {
        total += len;
    }
    assert!((64 * GRANULE..=128 * GRANULE).contains(&total), "{total}");
}
