//! A wrapper whose calls fail as planned.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use unspool_core::{CheckpointId, Failure};
use unspool_tiers::{Description, Stored, Tier, TierError};

use crate::operation::{Operation, total};

/// A planned fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The call fails and has no effect.
    Fail(Failure),
    /// Half of the bytes are moved, then the call fails with this error: a `put` stores nothing, a
    /// `get` fills half of the parts. Like `Fail` for other operations.
    Short(Failure),
    /// The call succeeds, but one bit of byte `at` of the frame is wrong: of the stored frame for a
    /// `put`, of the result for a `get`. No effect when the call does not move that byte.
    FlipBit {
        /// The byte, counted from the first byte of the frame.
        at: u64,
    },
    /// The call takes effect and then reports this failure (the answer was lost).
    AfterEffect(Failure),
}

/// The calls that a fault applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum When {
    Nth(u64),
    Always,
}

#[derive(Debug, Default)]
struct Script {
    calls: [u64; Operation::ALL.len()],
    faults: Vec<(Operation, When, Fault)>,
}

/// A tier whose calls fail as planned.
///
/// As on a real medium, bytes that are written to an arena in place (`Arena`) have no faults.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn Tier>,
    script: Mutex<Script>,
}

impl Faulty {
    /// Passes all calls to `inner` until a fault is planned.
    #[must_use]
    pub fn new(inner: Arc<dyn Tier>) -> Faulty {
        Faulty { inner, script: Mutex::default() }
    }

    /// Plans `fault` for the `nth` call (from 1) of `operation` from now on. It happens once.
    pub fn on_nth(&self, operation: Operation, nth: u64, fault: Fault) {
        assert!(nth > 0, "calls are counted from 1");
        let mut script = self.script();
        let call = script.calls[operation.index()] + nth;
        script.faults.push((operation, When::Nth(call), fault));
    }

    /// Plans `fault` for every call of `operation` until [`Faulty::heal`].
    pub fn always(&self, operation: Operation, fault: Fault) {
        self.script().faults.push((operation, When::Always, fault));
    }

    /// Removes all planned faults.
    pub fn heal(&self) {
        self.script().faults.clear();
    }

    /// Number of calls of `operation`.
    #[must_use]
    pub fn calls(&self, operation: Operation) -> u64 {
        self.script().calls[operation.index()]
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call and returns its fault.
    fn next_fault(&self, operation: Operation) -> Option<Fault> {
        let mut script = self.script();
        let calls = &mut script.calls[operation.index()];
        *calls += 1;
        let call = *calls;
        let due = |when| matches!(when, When::Always) || when == When::Nth(call);
        let at = script.faults.iter().position(|&(op, when, _)| op == operation && due(when))?;
        match script.faults[at] {
            (_, When::Always, fault) => Some(fault),
            (_, When::Nth(_), _) => Some(script.faults.remove(at).2),
        }
    }

    fn plain<T>(
        &self,
        operation: Operation,
        call: impl FnOnce() -> Result<T, TierError>,
    ) -> Result<T, TierError> {
        match self.next_fault(operation) {
            Some(Fault::Fail(failure) | Fault::Short(failure)) => Err(planned(operation, failure)),
            Some(Fault::AfterEffect(failure)) => {
                call()?;
                Err(planned(operation, failure))
            }
            Some(Fault::FlipBit { .. }) | None => call(),
        }
    }
}

fn planned(operation: Operation, failure: Failure) -> TierError {
    TierError::new(failure, operation.name(), "a faulty tier", "this failure was planned")
        .with_advice("It is part of a test.")
}

impl Tier for Faulty {
    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn put(&self, id: CheckpointId, offset: u64, parts: &[&[u8]]) -> Result<(), TierError> {
        let asked = total(parts);
        let put = || self.inner.put(id, offset, parts);
        match self.next_fault(Operation::Put) {
            Some(Fault::Fail(failure)) => Err(planned(Operation::Put, failure)),
            Some(Fault::Short(failure)) => {
                Err(planned(Operation::Put, failure).with_progress(asked, asked / 2))
            }
            Some(Fault::AfterEffect(failure)) => {
                put()?;
                Err(planned(Operation::Put, failure))
            }
            Some(Fault::FlipBit { at }) if at < asked => {
                let mut bytes = parts.concat();
                bytes[at as usize] ^= 1;
                self.inner.put(id, offset, &[&bytes])
            }
            Some(Fault::FlipBit { .. }) | None => put(),
        }
    }

    fn get(&self, id: CheckpointId, skip: u64, parts: &mut [&mut [u8]]) -> Result<(), TierError> {
        let asked = total(parts);
        match self.next_fault(Operation::Get) {
            Some(Fault::Fail(failure)) => Err(planned(Operation::Get, failure)),
            Some(Fault::Short(failure)) => {
                let mut half = vec![0; (asked / 2) as usize];
                self.inner.get(id, skip, &mut [&mut half])?;
                scatter(&half, parts);
                Err(planned(Operation::Get, failure).with_progress(asked, asked / 2))
            }
            Some(Fault::AfterEffect(failure)) => {
                self.inner.get(id, skip, parts)?;
                Err(planned(Operation::Get, failure).with_progress(asked, asked))
            }
            Some(Fault::FlipBit { at }) => {
                self.inner.get(id, skip, parts)?;
                flip(skip, at, parts);
                Ok(())
            }
            None => self.inner.get(id, skip, parts),
        }
    }

    fn delete(&self, id: CheckpointId) -> Result<(), TierError> {
        self.plain(Operation::Delete, || self.inner.delete(id))
    }

    fn list(&self) -> Result<Vec<Stored>, TierError> {
        self.plain(Operation::List, || self.inner.list())
    }

    fn sync(&self) -> Result<(), TierError> {
        self.plain(Operation::Sync, || self.inner.sync())
    }
}

/// Copies `bytes` to the front of `parts`.
fn scatter(mut bytes: &[u8], parts: &mut [&mut [u8]]) {
    for part in parts {
        let (head, tail) = bytes.split_at(part.len().min(bytes.len()));
        part[..head.len()].copy_from_slice(head);
        bytes = tail;
    }
}

/// Flips a bit of the frame's byte `at` in `parts`, which begin at the frame's byte `skip`.
fn flip(skip: u64, at: u64, parts: &mut [&mut [u8]]) {
    let place = at.checked_sub(skip).and_then(|place| usize::try_from(place).ok());
    if let Some(place) = place
        && let Some(byte) = parts.iter_mut().flat_map(|part| part.iter_mut()).nth(place)
    {
        *byte ^= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspool_core::TierKind;
    use unspool_tiers::Arena;

    const ID: CheckpointId = CheckpointId(7);

    fn faulty() -> Faulty {
        Faulty::new(Arc::new(Arena::new(TierKind::Host, 1 << 16).unwrap()))
    }

    fn read(tier: &Faulty, len: usize) -> Result<Vec<u8>, TierError> {
        let mut bytes = vec![0; len];
        tier.get(ID, 0, &mut [&mut bytes]).map(|()| bytes)
    }

    #[test]
    fn the_nth_call_fails_once_and_has_no_effect() {
        let tier = faulty();
        tier.on_nth(Operation::Put, 2, Fault::Fail(Failure::NoSpace));
        tier.put(ID, 0, &[b"abcd"]).unwrap();
        let other = CheckpointId(8);
        let error = tier.put(other, 4096, &[b"abcd"]).unwrap_err();
        assert_eq!(error.kind(), Failure::NoSpace);
        assert_eq!(tier.list().unwrap().len(), 1);
        tier.put(other, 4096, &[b"abcd"]).unwrap();
    }

    #[test]
    fn a_short_put_reports_how_far_it_came_and_stores_nothing() {
        let tier = faulty();
        tier.on_nth(Operation::Put, 1, Fault::Short(Failure::Io));
        let error = tier.put(ID, 0, &[b"abcd"]).unwrap_err();
        assert_eq!(error.progress().map(|progress| progress.done), Some(2));
        assert!(tier.list().unwrap().is_empty());
    }

    #[test]
    fn a_short_get_fills_one_half() {
        let tier = faulty();
        tier.put(ID, 0, &[b"abcd"]).unwrap();
        tier.on_nth(Operation::Get, 1, Fault::Short(Failure::Io));
        let (mut left, mut right) = ([0; 1], [0; 3]);
        assert!(tier.get(ID, 0, &mut [&mut left, &mut right]).is_err());
        assert_eq!((&left, &right), (b"a", b"b\0\0"));
    }

    #[test]
    fn a_flipped_bit_of_a_put_stays_and_that_of_a_get_does_not() {
        let tier = faulty();
        tier.on_nth(Operation::Put, 1, Fault::FlipBit { at: 1 });
        tier.put(ID, 0, &[b"a", b"b"]).unwrap();
        assert_eq!(read(&tier, 2).unwrap(), b"ac");
        tier.on_nth(Operation::Get, 1, Fault::FlipBit { at: 0 });
        assert_eq!(read(&tier, 2).unwrap(), b"`c");
        assert_eq!(read(&tier, 2).unwrap(), b"ac");
    }

    #[test]
    fn a_lasting_fault_ends_with_heal() {
        let tier = faulty();
        tier.always(Operation::Delete, Fault::Fail(Failure::Io));
        tier.put(ID, 0, &[b"abcd"]).unwrap();
        assert!(tier.delete(ID).is_err());
        assert!(tier.delete(ID).is_err());
        tier.heal();
        tier.delete(ID).unwrap();
        assert_eq!(tier.calls(Operation::Delete), 3);
    }

    #[test]
    fn a_lost_answer_comes_after_the_effect() {
        let tier = faulty();
        tier.put(ID, 0, &[b"abcd"]).unwrap();
        tier.on_nth(Operation::Delete, 1, Fault::AfterEffect(Failure::Io));
        assert!(tier.delete(ID).is_err());
        assert!(tier.list().unwrap().is_empty());
    }
}
