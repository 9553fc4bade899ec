//! Captures of streams into graphs, without the graphs: during a capture, calls that the driver
//! considers unsafe fail, and spoil the capture.

use std::cell::Cell;
use std::thread::{self, ThreadId};

use crate::codes::{Code, Outcome};

/// Which threads a capture forbids unsafe calls: all, the capturing one, none. The same numbers are
/// the modes of a thread.
pub(crate) const GLOBAL: u32 = 0;
const OF_THE_THREAD: u32 = 1;
const RELAXED: u32 = 2;

/// A capture that has begun.
#[derive(Debug)]
pub(crate) struct Capture {
    mode: u32,
    thread: ThreadId,
    /// Whether an unsafe call has spoilt it.
    pub(crate) spoilt: bool,
}

impl Capture {
    pub(crate) fn begin(mode: u32) -> Outcome<Capture> {
        if mode > RELAXED {
            return Err(Code::INVALID_VALUE);
        }
        Ok(Capture { mode, thread: thread::current().id(), spoilt: false })
    }

    /// Whether it forbids unsafe calls of this thread, which is in `mode`.
    fn forbids(&self, mode: u32) -> bool {
        let own = self.thread == thread::current().id();
        match mode {
            RELAXED => false,
            OF_THE_THREAD => own && self.mode != RELAXED,
            _ => self.mode == GLOBAL || (own && self.mode != RELAXED),
        }
    }
}

thread_local! {
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

/// Sets the mode of this thread, and returns the old one.
pub(crate) fn exchange_mode(mode: u32) -> Outcome<u32> {
    if mode > RELAXED {
        return Err(Code::INVALID_VALUE);
    }
    Ok(MODE.replace(mode))
}

/// Unsafe calls during a capture: they may wait for the device, or change mappings.
const UNSAFE: &[&str] = &[
    "cuCtxSynchronize",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuMemAddressFree",
    "cuMemAlloc_v2",
    "cuMemCreate",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemMap",
    "cuMemRelease",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuStreamQuery",
    "cuStreamSynchronize",
];

/// Refuses a call that is unsafe while one of these captures forbids it, and spoils them.
pub(crate) fn check<'a>(captures: impl Iterator<Item = &'a mut Capture>, call: &str) -> Outcome {
    if !UNSAFE.contains(&call) {
        return Ok(());
    }
    let mode = MODE.get();
    let mut refused = false;
    for capture in captures.filter(|capture| capture.forbids(mode)) {
        (capture.spoilt, refused) = (true, true);
    }
    if refused { Err(Code::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
}
