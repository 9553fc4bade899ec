//! The promises of durability: checkpoints that must survive a crash.

use std::collections::{BTreeMap, BTreeSet};

use unspool_core::{CheckpointId, Version};

/// Promised checkpoints, and those that are excused.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    durable: BTreeMap<Version, CheckpointId>,
    /// Checkpoints with a frame that the medium damaged or lost.
    hurt: BTreeSet<CheckpointId>,
}

impl Promises {
    /// Records that this checkpoint was reported durable.
    pub fn promise(&mut self, version: Version, id: CheckpointId) {
        if !self.hurt.contains(&id) {
            self.durable.insert(version, id);
        }
    }

    /// Ends the promise for a version that was discarded.
    pub fn release(&mut self, version: Version) {
        self.durable.remove(&version);
    }

    /// Excuses a checkpoint, because a fault of the medium damaged a frame of it.
    pub fn excuse(&mut self, id: CheckpointId) {
        self.hurt.insert(id);
        self.durable.retain(|_, promised| *promised != id);
    }

    /// All checkpoints that must have survived.
    pub fn all(&self) -> impl Iterator<Item = (Version, CheckpointId)> + '_ {
        self.durable.iter().map(|(version, id)| (*version, *id))
    }
}
