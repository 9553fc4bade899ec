//! Streams, events and the operations in them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use crate::capture::Capture;
use crate::kernels::Launch;

/// A place in a stream: the stream's handle, and the number of operations up to there.
pub(crate) type Place = (u64, u64);

/// One recording of an event. Recording the event again makes a new one; earlier waits keep theirs.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    state: AtomicU8,
    at: std::sync::OnceLock<Instant>,
}

impl Recording {
    /// Completes the recording: everything before it is done.
    pub(crate) fn complete(&self) {
        let _ = self.at.set(Instant::now());
        self.state.store(1, Ordering::Release);
    }

    /// Gives the recording up, because an operation before it was given up.
    pub(crate) fn give_up(&self) {
        self.state.store(2, Ordering::Release);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state.load(Ordering::Acquire) != 0
    }

    /// The time at which it was completed.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.at.get().copied()
    }
}

/// An event of a device.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) device: u32,
    pub(crate) timed: bool,
    /// `None` until it is recorded.
    pub(crate) latest: Option<Arc<Recording>>,
}

/// One end of a copy.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// Memory of the device.
    Device(u64),
    /// Memory of the host that the driver knows.
    Pinned(u64),
    /// Memory of the host, valid until the call that waits for the copy returns.
    Pageable(u64),
    /// Bytes that were read from the host when the copy was enqueued.
    Staged(Vec<u8>),
}

/// One end of a copy of rows.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) bytes: Bytes,
    /// Distance between the begins of two rows.
    pub(crate) pitch: u64,
}

/// A copy of rows of bytes.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) to: Side,
    pub(crate) from: Side,
    pub(crate) width: u64,
    pub(crate) height: u64,
}

impl Rows {
    /// A copy of one row.
    pub(crate) fn plain(to: Bytes, from: Bytes, len: u64) -> Rows {
        let side = |bytes| Side { bytes, pitch: len };
        Rows { to: side(to), from: side(from), width: len, height: 1 }
    }

    pub(crate) fn len(&self) -> u64 {
        self.width * self.height
    }

    /// Distance from the first byte of the first row to the end of the last row.
    pub(crate) fn extent(&self, pitch: u64) -> u64 {
        if self.len() == 0 { 0 } else { (self.height - 1) * pitch + self.width }
    }
}

/// The work of an operation.
#[derive(Debug)]
pub(crate) enum Work {
    /// A copy.
    Copy(Rows),
    /// A fill with a pattern of a few bytes.
    Fill { to: u64, pattern: Vec<u8>, len: u64 },
    /// The recording of an event.
    Record(Arc<Recording>),
    /// A wait for a recording.
    Wait(Arc<Recording>),
    /// A launch of a kernel.
    Kernel(Launch),
}

impl Work {
    /// Number of bytes that are moved piece by piece; 0 for work that is done at once.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Work::Copy(rows) => rows.len(),
            Work::Fill { len, .. } => *len,
            _ => 0,
        }
    }

    /// Whether it is a copy from or to main memory.
    pub(crate) fn crosses_the_link(&self) -> bool {
        let Work::Copy(rows) = self else { return false };
        let sides = [&rows.to.bytes, &rows.from.bytes];
        !sides.into_iter().all(|bytes| matches!(bytes, Bytes::Device(_)))
    }

    /// Whether it begins with a delay.
    pub(crate) fn is_late(&self) -> bool {
        !matches!(self, Work::Record(_) | Work::Wait(_))
    }
}

/// An operation in a stream.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) work: Work,
    /// Places in other streams that have to be done before, by the rules of the legacy default
    /// stream.
    pub(crate) after: Vec<Place>,
    /// The time from which it is ready; `None` until it is the first of its stream.
    pub(crate) ready: Option<Instant>,
    /// Number of bytes that are done.
    pub(crate) done: u64,
}

/// A stream: operations that are executed in order.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) device: u32,
    /// Whether it and the legacy default stream wait for each other.
    pub(crate) blocking: bool,
    pub(crate) queue: VecDeque<Operation>,
    /// Number of enqueued operations, and of those that are done.
    pub(crate) enqueued: u64,
    pub(crate) done: u64,
    pub(crate) destroyed: bool,
    /// The active capture.
    pub(crate) capture: Option<Capture>,
    /// Whether a test has stopped it.
    pub(crate) held: bool,
}

impl Stream {
    pub(crate) fn new(device: u32, blocking: bool) -> Stream {
        Stream {
            device,
            blocking,
            queue: VecDeque::new(),
            enqueued: 0,
            done: 0,
            destroyed: false,
            capture: None,
            held: false,
        }
    }

    /// Removes the first operation, which is done.
    pub(crate) fn finish_first(&mut self) -> Option<Operation> {
        let first = self.queue.pop_front();
        self.done += u64::from(first.is_some());
        first
    }

    /// Gives up all enqueued operations.
    pub(crate) fn give_up(&mut self) {
        while let Some(operation) = self.finish_first() {
            if let Work::Record(recording) = operation.work {
                recording.give_up();
            }
        }
    }
}
