//! A wrapper whose calls wait until a test admits them: slowness without a clock.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use unspool_core::{CheckpointId, Failure};
use unspool_tiers::{Description, Stored, Tier, TierError};

use crate::operation::Operation;

/// No wait at a gate is longer than this: a test that forgets to open one fails instead of
/// hanging.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct State {
    /// Number of calls that may pass; `None` when the gate is open.
    permits: Option<u64>,
    /// Number of waiting calls.
    waiting: usize,
    /// Number of calls that have ever arrived.
    arrived: u64,
}

/// A gate for calls. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate(Arc<(Mutex<State>, Condvar)>);

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn closed() -> Gate {
        Gate::with(Some(0))
    }

    /// An open gate.
    #[must_use]
    pub fn opened() -> Gate {
        Gate::with(None)
    }

    fn with(permits: Option<u64>) -> Gate {
        Gate(Arc::new((Mutex::new(State { permits, waiting: 0, arrived: 0 }), Condvar::new())))
    }

    /// Lets all calls pass from now on.
    pub fn open(&self) {
        self.change(|state| state.permits = None);
    }

    /// Lets no calls pass from now on.
    pub fn close(&self) {
        self.change(|state| state.permits = Some(0));
    }

    /// Lets `calls` more calls pass.
    pub fn admit(&self, calls: u64) {
        self.change(|state| state.permits = state.permits.map(|permits| permits + calls));
    }

    /// Number of waiting calls.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.state().waiting
    }

    /// Number of calls that have ever arrived, whether they passed or wait.
    #[must_use]
    pub fn arrived(&self) -> u64 {
        self.state().arrived
    }

    /// Waits until `calls` calls wait at the gate; returns false when that does not happen within a
    /// minute.
    #[must_use]
    pub fn wait_until_waiting(&self, calls: usize) -> bool {
        self.wait(|state| state.waiting >= calls).is_some()
    }

    /// Waits for a permit and takes it; returns false when none comes within a minute.
    pub fn pass(&self) -> bool {
        self.change(|state| {
            state.waiting += 1;
            state.arrived += 1;
        });
        let state = self.wait(|state| state.permits != Some(0));
        let passed = state.is_some();
        let mut state = state.unwrap_or_else(|| self.state());
        state.waiting -= 1;
        if passed {
            state.permits = state.permits.map(|permits| permits - 1);
        }
        drop(state);
        self.0.1.notify_all();
        passed
    }

    fn wait(&self, ready: impl Fn(&State) -> bool) -> Option<MutexGuard<'_, State>> {
        let deadline = Instant::now() + LONGEST_WAIT;
        let mut state = self.state();
        while !ready(&state) {
            let left = deadline.checked_duration_since(Instant::now())?;
            let woken = self.0.1.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(state)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.0.1.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A tier whose calls wait at a gate before they take effect. One gate per operation, all open at
/// first.
#[derive(Debug)]
pub struct Gated {
    inner: Arc<dyn Tier>,
    gates: [Gate; Operation::ALL.len()],
}

impl Gated {
    /// Passes all calls to `inner` while the gates are open.
    #[must_use]
    pub fn new(inner: Arc<dyn Tier>) -> Gated {
        Gated { inner, gates: std::array::from_fn(|_| Gate::opened()) }
    }

    /// The gate of `operation`.
    #[must_use]
    pub fn gate(&self, operation: Operation) -> Gate {
        self.gates[operation.index()].clone()
    }

    fn pass(&self, operation: Operation) -> Result<(), TierError> {
        if self.gates[operation.index()].pass() {
            return Ok(());
        }
        let reason = format!("no permit came within {} s", LONGEST_WAIT.as_secs());
        Err(TierError::new(Failure::Io, operation.name(), "a gated tier", reason)
            .with_advice("Open the gate in the test."))
    }
}

impl Tier for Gated {
    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn put(&self, id: CheckpointId, offset: u64, parts: &[&[u8]]) -> Result<(), TierError> {
        self.pass(Operation::Put)?;
        self.inner.put(id, offset, parts)
    }

    fn get(&self, id: CheckpointId, skip: u64, parts: &mut [&mut [u8]]) -> Result<(), TierError> {
        self.pass(Operation::Get)?;
        self.inner.get(id, skip, parts)
    }

    fn delete(&self, id: CheckpointId) -> Result<(), TierError> {
        self.pass(Operation::Delete)?;
        self.inner.delete(id)
    }

    fn list(&self) -> Result<Vec<Stored>, TierError> {
        self.pass(Operation::List)?;
        self.inner.list()
    }

    fn sync(&self) -> Result<(), TierError> {
        self.pass(Operation::Sync)?;
        self.inner.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use unspool_core::TierKind;
    use unspool_tiers::Arena;

    #[test]
    fn a_call_waits_until_it_is_admitted() {
        let tier = Gated::new(Arc::new(Arena::new(TierKind::Host, 4096).unwrap()));
        let gate = tier.gate(Operation::Put);
        gate.close();
        thread::scope(|scope| {
            let put = scope.spawn(|| tier.put(CheckpointId(1), 0, &[b"x"]));
            assert!(gate.wait_until_waiting(1));
            assert!(tier.list().unwrap().is_empty());
            gate.admit(1);
            put.join().unwrap().unwrap();
        });
        assert_eq!(tier.list().unwrap().len(), 1);
        assert_eq!((gate.waiting(), gate.arrived()), (0, 1));
    }
}
