//! Reports of accesses to a watch.

use unspool_verify::{Agent, Op, Space};

use crate::context::Context;
use crate::span::DeviceSpan;
use crate::stream::Stream;

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
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::watch::{Watch, Watched};

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
}
