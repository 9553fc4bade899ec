//! The blocks that each thread is in: a call inside of one that waits for its room, or for its
//! checkpoint, waits for itself.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use unspool::{Error, Spool, Wait};

use crate::errors::{about, saying};

/// How long nothing moves before a wait is looked at.
const STILL: Duration = Duration::from_secs(1);

/// The open blocks of a spool.
#[derive(Debug, Default)]
pub struct Blocks(Mutex<Vec<Block>>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Block {
    thread: ThreadId,
    call: &'static str,
    version: i64,
}

impl Blocks {
    fn open(&self) -> MutexGuard<'_, Vec<Block>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the block of `call(version)` in this thread by `work`.
    ///
    /// # Errors
    /// Those of `work`, as [`explained`](Self::explained); the block is not entered then.
    pub fn begin<T>(
        &self,
        py: Python<'_>,
        (call, version): (&'static str, i64),
        work: impl FnOnce() -> PyResult<T>,
    ) -> PyResult<T> {
        let given = work().map_err(|raised| self.explained(py, raised, version))?;
        self.open().push(Block { thread: thread::current().id(), call, version });
        Ok(given)
    }

    /// Leaves the block of `call(version)` by `work`, in any thread.
    ///
    /// # Errors
    /// Those of `work`, with the version; the block is left all the same.
    pub fn end(
        &self,
        py: Python<'_>,
        (call, version): (&'static str, i64),
        work: impl FnOnce() -> PyResult<()>,
    ) -> PyResult<()> {
        self.leave(call, version);
        work().map_err(|raised| about(py, raised, Some(version)))
    }

    /// Forgets the block of `call(version)`, of any thread.
    pub fn leave(&self, call: &'static str, version: i64) {
        let mut open = self.open();
        let found = open.iter().rposition(|block| block.call == call && block.version == version);
        found.map(|index| open.remove(index));
    }

    /// The block that this thread is in, in words; the innermost one.
    pub fn own(&self) -> Option<String> {
        let (open, thread) = (self.open(), thread::current().id());
        let own = open.iter().rfind(|block| block.thread == thread)?;
        Some(format!("{}({})", own.call, own.version))
    }

    /// Whether this thread computes `version` in a block.
    pub fn writes(&self, version: i64) -> bool {
        let own = Block { thread: thread::current().id(), call: "writing", version };
        self.open().contains(&own)
    }

    /// The exception of a call about `version`, with what it has to do with a block of this thread.
    pub fn explained(&self, py: Python<'_>, raised: PyErr, version: i64) -> PyErr {
        let raised = about(py, raised, Some(version));
        let Some(block) = self.own() else { return raised };
        let name = raised.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
        match name.as_str() {
            "UnknownVersionError" if self.writes(version) => {
                let text = format!(
                    "Version {version} is computed by the block of writing({version}) that this \
                     call is in: it is there when the block ends. Leave the block first."
                );
                saying(py, raised, &text)
            }
            "WaitTimeoutError" => {
                let text = format!(
                    "{} This thread is inside of {block}, whose room cannot be given up before \
                     that block ends: leave the block first.",
                    raised.value(py)
                );
                saying(py, raised, &text)
            }
            _ => raised,
        }
    }

    /// Does `work`, which waits for room for `version`; why it was ended, if it waited for a block
    /// of this thread.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn unless_stuck<T>(
        &self,
        (spool, version): (&Spool, i64),
        wait: &Wait<'_>,
        work: impl FnOnce(&Wait<'_>) -> Result<T, Error>,
    ) -> Result<Result<T, String>, Error> {
        let Some(block) = self.own() else { return work(wait).map(Ok) };
        let seen = Cell::new((Instant::now(), 0));
        let watch = Watch { spool, block, seen, stuck: Cell::new(false) };
        let end = || (wait.interrupted)() || watch.is_stuck();
        let done = work(&Wait { interrupted: &end, ..*wait });
        match watch.refusal(version) {
            Some(refusal) if done.is_err() => Ok(Err(refusal)),
            _ => done.map(Ok),
        }
    }
}

/// A wait of a thread that is in a block.
struct Watch<'a> {
    spool: &'a Spool,
    block: String,
    /// Since when nothing has moved, and a sum over what had.
    seen: Cell<(Instant, u64)>,
    stuck: Cell<bool>,
}

impl Watch<'_> {
    /// Whether the wait cannot end: nothing moves, and there is no thread that could change that.
    fn is_stuck(&self) -> bool {
        let (since, before) = self.seen.get();
        let Some(moved) = self.moved() else { return false };
        if moved != before {
            self.seen.set((Instant::now(), moved));
            return false;
        }
        let alone = || Python::try_attach(|py| alone(py).unwrap_or(false)).unwrap_or(false);
        self.stuck.set(since.elapsed() >= STILL && alone());
        self.stuck.get()
    }

    /// What the error says, if the wait was ended for that.
    fn refusal(&self, version: i64) -> Option<String> {
        let block = &self.block;
        self.stuck.get().then(|| {
            format!(
                "There is no room for version {version}: this thread is inside of {block}, whose \
                 room cannot be given up before that block ends, so that the call would wait for \
                 itself. Leave the block first, or open the spool with a larger tier."
            )
        })
    }

    /// A sum that changes with everything that makes room; `None` while something is under way.
    fn moved(&self) -> Option<u64> {
        let stats = self.spool.stats().ok()?;
        let directions = stats.links.iter().flat_map(|link| [link.flush, link.prefetch]);
        let (mut under_way, mut moved) = (0, 0);
        for direction in directions {
            under_way += direction.in_flight;
            moved += direction.transfers + direction.failed + direction.cancelled;
        }
        let evicted: u64 = stats.tiers.iter().map(|tier| tier.evictions).sum();
        (under_way == 0).then_some(moved + evicted + stats.application.discards)
    }
}

/// Whether this is the only thread of the program that runs Python; those of this package, which
/// read counters of energy, discard nothing.
fn alone(py: Python<'_>) -> PyResult<bool> {
    let mut count = 0;
    for thread in py.import("threading")?.call_method0("enumerate")?.try_iter()? {
        let name: String = thread?.getattr("name")?.extract()?;
        count += usize::from(!name.starts_with("unspool-"));
    }
    Ok(count == 1)
}
