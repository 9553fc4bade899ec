//! What was promised to survive a crash.

use std::collections::{BTreeMap, BTreeSet};

use unspool_core::{CheckpointId, Version};

/// The promises, and what excuses from them.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    durable: BTreeMap<Version, CheckpointId>,
    /// Checkpoints of which the medium has damaged or lost a frame.
    hurt: BTreeSet<CheckpointId>,
}

impl Promises {
    /// The application was told that this checkpoint is durable.
    pub fn promise(&mut self, version: Version, id: CheckpointId) {
        if !self.hurt.contains(&id) {
            self.durable.insert(version, id);
        }
    }

    /// The checkpoint was discarded: it need not survive any more.
    pub fn release(&mut self, version: Version) {
        self.durable.remove(&version);
    }

    /// A fault of the medium has hurt a frame of this checkpoint.
    pub fn excuse(&mut self, id: CheckpointId) {
        self.hurt.insert(id);
        self.durable.retain(|_, promised| *promised != id);
    }

    /// Everything that must have survived.
    pub fn all(&self) -> impl Iterator<Item = (Version, CheckpointId)> + '_ {
        self.durable.iter().map(|(version, id)| (*version, *id))
    }
}
