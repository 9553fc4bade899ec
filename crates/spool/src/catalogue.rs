//! What is known of every checkpoint besides its bytes.

use std::collections::HashMap;
use std::sync::Arc;

use unspool_core::CheckpointId;
use unspool_transfer::Frame;

/// The heads of all checkpoints that are saved or being saved.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    entries: HashMap<CheckpointId, Entry>,
}

#[derive(Debug)]
struct Entry {
    frame: Arc<Frame>,
    durable: bool,
    /// What happened to a copy of it that was lost.
    loss: Option<String>,
}

impl Catalogue {
    pub(crate) fn insert(&mut self, id: CheckpointId, frame: Arc<Frame>, durable: bool) {
        let old = self.entries.insert(id, Entry { frame, durable, loss: None });
        debug_assert!(old.is_none(), "an id is given once");
    }

    pub(crate) fn remove(&mut self, id: CheckpointId) {
        self.entries.remove(&id);
    }

    pub(crate) fn frame(&self, id: CheckpointId) -> Option<&Arc<Frame>> {
        self.entries.get(&id).map(|entry| &entry.frame)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_durable(&self, id: CheckpointId) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.durable)
    }

    pub(crate) fn set_durable(&mut self, id: CheckpointId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.durable = true;
        }
    }

    /// A copy of `id` is lost; `what` says how.
    pub(crate) fn set_loss(&mut self, id: CheckpointId, what: String) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.loss = Some(what);
        }
    }

    pub(crate) fn loss(&self, id: CheckpointId) -> Option<&str> {
        self.entries.get(&id).and_then(|entry| entry.loss.as_deref())
    }
}
