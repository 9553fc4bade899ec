//! Arrays that were borrowed for copies which are still under way.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use pyo3::prelude::*;
use unspool::gpu::Fence;

use crate::array::Owner;

/// How many are let go of in a call at most: one comes in, so the list does not grow without need.
const LOOKS: usize = 8;

/// The longest wait for all of them when the spool ends.
const LIMIT: Duration = Duration::from_secs(60);

/// See the module. It is used while Python is attached, and so are the arrays dropped.
pub struct KeptArrays {
    entries: Mutex<VecDeque<KeptArray>>,
    /// The process whose copies they are: in a forked child the device cannot be asked.
    process: u32,
}

struct KeptArray {
    /// After the copy.
    fence: Fence,
    owner: Owner,
}

// SAFETY: an owner is made and dropped while Python is attached, on whichever thread: a reference
// to a Python object, or a tensor of DLPack, whose deleter may be called on any thread. Views of
// the buffer protocol lend host memory, and copies of that are done when their call returns.
unsafe impl Send for KeptArray {}

impl std::fmt::Debug for KeptArrays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

impl Default for KeptArrays {
    fn default() -> KeptArrays {
        KeptArrays { entries: Mutex::default(), process: std::process::id() }
    }
}

impl KeptArrays {
    /// Keeps what owns an array until `fence` is done.
    pub fn keep(&self, _attached: Python<'_>, fence: Fence, owner: Owner) {
        if let Ok(mut entries) = self.entries.lock() {
            entries.push_back(KeptArray { fence, owner });
        }
    }

    /// Lets go of some of those whose copies are done. The first that is not ends the search: each
    /// look is a call of the driver. It goes to the end, as its stream may be held for long.
    pub fn sweep(&self, _attached: Python<'_>) {
        // Dropping an array may run any code, so that happens without the lock.
        let mut done = Vec::new();
        if let Ok(mut entries) = self.entries.try_lock() {
            for _ in 0..entries.len().min(LOOKS) {
                let Some(entry) = entries.pop_front() else { break };
                if entry.fence.is_done() {
                    done.push(entry.owner);
                } else {
                    entries.push_back(entry);
                    break;
                }
            }
        }
    }

    /// Waits for all copies and lets go of the arrays. Those whose copies do not end are leaked: a
    /// copy into memory that somebody else has by then is worse.
    pub fn finish(&self, py: Python<'_>) {
        let entries: Vec<KeptArray> = match self.entries.lock() {
            Ok(mut entries) => entries.drain(..).collect(),
            Err(_) => return,
        };
        let mut stuck = self.process != std::process::id();
        for KeptArray { fence, owner } in entries {
            stuck = stuck || !(fence.is_done() || py.detach(|| fence.wait(LIMIT)).is_ok());
            if stuck {
                std::mem::forget((fence, owner));
            }
        }
    }
}
