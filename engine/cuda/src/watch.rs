//! Observation of a run, for a check that all accesses to memory are ordered: every record, wait
//! and access of this crate is reported as an [`Op`] to the context's watch. Without a watch this
//! costs one load.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use unspool_verify::{Agent, Op, Space};

use crate::context::Context;
use crate::span::DeviceSpan;
use crate::stream::Stream;

/// Receives everything that is enqueued, recorded and waited for. It is called on the thread that
/// does it, before the reported call returns, and must not block.
pub trait Watch: Send + Sync + Debug {
    /// Receives an operation that has just happened.
    fn saw(&self, op: Op);
}

/// The optional watch of one context.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    is: AtomicBool,
    by: RwLock<Option<Arc<dyn Watch>>>,
}

impl Watched {
    pub(crate) fn set(&self, watch: Arc<dyn Watch>) {
        *self.by.write().unwrap_or_else(PoisonError::into_inner) = Some(watch);
        self.is.store(true, Ordering::Release);
    }

    pub(crate) fn is(&self) -> bool {
        self.is.load(Ordering::Relaxed)
    }

    pub(crate) fn report(&self, op: Op) {
        // Cloned, so that the watch is not called under the lock.
        let watch = self.by.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(watch) = watch {
            watch.saw(op);
        }
    }
}

/// A number for a recording of an event that no other recording in the process has.
pub(crate) fn new_recording() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Bytes that are accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessedBytes {
    space: Space,
    first: u64,
    len: u64,
}

impl AccessedBytes {
    /// Bytes of a span of device memory.
    pub fn of(span: &DeviceSpan) -> AccessedBytes {
        AccessedBytes::device(span.ordinal(), span.address(), span.len())
    }

    /// `len` bytes from the address `first` on, on device `ordinal`.
    pub fn device(ordinal: u32, first: u64, len: u64) -> AccessedBytes {
        AccessedBytes { space: Space::Device(ordinal), first, len }
    }

    pub(crate) fn host(first: *const u8, len: u64) -> AccessedBytes {
        AccessedBytes { space: Space::Host, first: first.addr() as u64, len }
    }

    fn end(self) -> u64 {
        self.first.saturating_add(self.len)
    }

    fn access(self, by: Agent, write: bool, what: &'static str) -> Op {
        Op::Access { by, space: self.space, first: self.first, end: self.end(), write, what }
    }

    /// The operation that declares the bytes to be part of an arena.
    pub(crate) fn arena(self) -> Op {
        Op::Arena { space: self.space, first: self.first, end: self.end() }
    }
}

impl Context {
    /// Reports that the processor reads, or with `write` writes, `len` bytes at `first`.
    pub(crate) fn saw_host(&self, what: &'static str, first: *const u8, len: u64, write: bool) {
        if len > 0 {
            self.saw(|| AccessedBytes::host(first, len).access(Agent::Host, write, what));
        }
    }
}

impl Stream {
    /// Reports the enqueued operation `what`, which reads `from` and writes `to`.
    pub fn saw_copy(&self, what: &'static str, from: AccessedBytes, to: AccessedBytes) {
        self.saw_read(what, from);
        self.saw_write(what, to);
    }

    /// Reports the enqueued operation `what`, which reads `place`.
    pub fn saw_read(&self, what: &'static str, place: AccessedBytes) {
        self.saw_access(what, place, false);
    }

    /// Reports the enqueued operation `what`, which writes `place`.
    pub fn saw_write(&self, what: &'static str, place: AccessedBytes) {
        self.saw_access(what, place, true);
    }

    fn saw_access(&self, what: &'static str, place: AccessedBytes, write: bool) {
        if place.len > 0 {
            self.context().saw(|| place.access(self.agent(), write, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct Notes(Mutex<Vec<Op>>);

    impl Watch for Notes {
        fn saw(&self, op: Op) {
            self.0.lock().unwrap().push(op);
        }
    }

    #[test]
    fn a_watch_sees_what_happens_after_it_was_set() {
        let (watched, notes) = (Watched::default(), Arc::new(Notes::default()));
        let op = AccessedBytes::device(1, 100, 20).access(Agent::Stream(7), true, "a fill");
        watched.report(op);
        assert!(!watched.is());
        watched.set(notes.clone());
        assert!(watched.is());
        watched.report(op);
        assert_eq!(*notes.0.lock().unwrap(), [op]);
        let space = Space::Device(1);
        let expected = Op::Access {
            by: Agent::Stream(7),
            space,
            first: 100,
            end: 120,
            write: true,
            what: "a fill",
        };
        assert_eq!(op, expected);
        assert_eq!(
            AccessedBytes::device(1, 100, 20).arena(),
            Op::Arena { space, first: 100, end: 120 }
        );
    }

    #[test]
    fn no_two_recordings_have_the_same_number() {
        let threads: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(|| (0..100).map(|_| new_recording()).collect::<Vec<_>>()))
            .collect();
        let mut all: Vec<u64> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 400);
        assert!(all[0] > 0, "0 stands for never recorded");
    }
}
