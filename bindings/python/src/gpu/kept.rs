//! Arrays that were borrowed for copies which are still under way.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use pyo3::prelude::*;
use unspool::gpu::Mark;

use crate::array::Owner;

/// How many are looked at in each call: one comes in, so the list does not grow without need.
const LOOKS: usize = 8;

/// The longest wait for all of them when the spool ends.
const LIMIT: Duration = Duration::from_secs(60);

/// See the module. It is used while Python is attached, and so are the arrays dropped.
pub struct Kept {
    entries: Mutex<VecDeque<Entry>>,
    /// The process whose copies they are: in a forked child the device cannot be asked.
    process: u32,
}

struct Entry {
    /// Behind the copy.
    mark: Mark,
    owner: Owner,
}

// SAFETY: an owner is made and dropped while Python is attached, on whichever thread: a reference
// to a Python object, or a tensor of DLPack, whose deleter may be called on any thread. Views of
// the buffer protocol lend host memory, and copies of that are done when their call returns.
unsafe impl Send for Entry {}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

impl Default for Kept {
    fn default() -> Kept {
        Kept { entries: Mutex::default(), process: std::process::id() }
    }
}

impl Kept {
    /// Keeps what owns an array until `mark` is done.
    pub fn keep(&self, _attached: Python<'_>, mark: Mark, owner: Owner) {
        if let Ok(mut entries) = self.entries.lock() {
            entries.push_back(Entry { mark, owner });
        }
    }

    /// Lets go of some of those whose copies are done.
    pub fn sweep(&self, _attached: Python<'_>) {
        // Dropping an array may run any code, so that happens without the lock.
        let mut done = Vec::new();
        if let Ok(mut entries) = self.entries.try_lock() {
            for _ in 0..entries.len().min(LOOKS) {
                let Some(entry) = entries.pop_front() else { break };
                if entry.mark.is_done() {
                    done.push(entry.owner);
                } else {
                    entries.push_back(entry);
                }
            }
        }
    }

    /// Waits for all copies and lets go of the arrays. Those whose copies do not end are leaked: a
    /// copy into memory that somebody else has by then is worse.
    pub fn finish(&self, py: Python<'_>) {
        let entries: Vec<Entry> = match self.entries.lock() {
            Ok(mut entries) => entries.drain(..).collect(),
            Err(_) => return,
        };
        let mut stuck = self.process != std::process::id();
        for Entry { mark, owner } in entries {
            stuck = stuck || !(mark.is_done() || py.detach(|| mark.wait(LIMIT)).is_ok());
            if stuck {
                std::mem::forget((mark, owner));
            }
        }
    }
}
