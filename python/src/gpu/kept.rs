//! Arrays that were borrowed for copies which are still under way.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use pyo3::prelude::*;
use unspool::gpu::Fence;

use crate::array::Owner;

/// The longest wait for all of them when the spool ends.
const LIMIT: Duration = Duration::from_secs(60);

/// See the module. It is used while Python is attached, and so are the arrays dropped.
pub struct KeptArrays {
    entries: Mutex<VecDeque<Kept>>,
    /// The process whose copies they are: in a forked child the device cannot be asked.
    process: u32,
}

/// Arrays of one call that one fence is behind.
struct Kept {
    fence: Fence,
    owners: Vec<Owner>,
}

// SAFETY: an owner is made and dropped while Python is attached, on whichever thread: a reference
// to a Python object, or a tensor of DLPack, whose deleter may be called on any thread. Views of
// the buffer protocol lend host memory, and copies of that are done when their call returns.
unsafe impl Send for Kept {}

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
    /// Keeps what owns each array of a call until the fence behind its copy is done.
    pub fn keep(&self, _attached: Python<'_>, arrays: impl Iterator<Item = (Fence, Owner)>) {
        let Ok(mut entries) = self.entries.lock() else { return };
        for (fence, owner) in arrays {
            match entries.back_mut().filter(|last| last.fence.is_same(&fence)) {
                Some(last) => last.owners.push(owner),
                None => entries.push_back(Kept { fence, owners: vec![owner] }),
            }
        }
    }

    /// Lets go of those whose copies are done. The first that is not ends the search: each look is
    /// a call of the driver. It goes to the end, as its stream may be held for long.
    pub fn sweep(&self, _attached: Python<'_>) {
        // Dropping an array may run any code, so that happens without the lock.
        let mut done = Vec::new();
        if let Ok(mut entries) = self.entries.try_lock() {
            while let Some(entry) = entries.pop_front() {
                if entry.fence.is_done() {
                    done.push(entry.owners);
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
        let entries: Vec<Kept> = match self.entries.lock() {
            Ok(mut entries) => entries.drain(..).collect(),
            Err(_) => return,
        };
        let mut stuck = self.process != std::process::id();
        for Kept { fence, owners } in entries {
            stuck = stuck || !(fence.is_done() || py.detach(|| fence.wait(LIMIT)).is_ok());
            if stuck {
                std::mem::forget((fence, owners));
            }
        }
    }
}
