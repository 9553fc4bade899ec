//! What is known of every checkpoint besides its bytes.

use std::collections::HashMap;
use std::sync::Arc;

use unspool_codec::{Achieved, Spec};
use unspool_core::CheckpointId;
use unspool_transfer::Frame;

/// The heads of all checkpoints that are saved or being saved.
#[derive(Debug, Default)]
pub(crate) struct FrameIndex {
    entries: HashMap<CheckpointId, Entry>,
}

#[derive(Debug)]
struct Entry {
    frame: Arc<Frame>,
    /// The errors of the encoders, by region; none where nothing is encoded or nobody knows.
    achieved: Vec<Option<Achieved>>,
    /// What made the regions whose codec the frame does not tell with its parameters; none where
    /// there are none or nobody knows.
    codecs: Vec<Option<Spec>>,
    durable: bool,
    /// What happened to a copy of it that was lost.
    loss: Option<String>,
}

impl FrameIndex {
    pub(crate) fn insert(&mut self, id: CheckpointId, frame: Arc<Frame>, durable: bool) {
        let entry = Entry { frame, achieved: Vec::new(), codecs: Vec::new(), durable, loss: None };
        let old = self.entries.insert(id, entry);
        debug_assert!(old.is_none(), "an id is given once");
    }

    /// `id` has got its true size: this is its frame from now on.
    pub(crate) fn seal(
        &mut self,
        id: CheckpointId,
        frame: Arc<Frame>,
        achieved: Vec<Option<Achieved>>,
    ) {
        if let Some(entry) = self.entries.get_mut(&id) {
            (entry.frame, entry.achieved) = (frame, achieved);
        }
    }

    /// Regions of `id` are made by these codecs, which its frame does not tell.
    pub(crate) fn set_codecs(&mut self, id: CheckpointId, codecs: Vec<Option<Spec>>) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.codecs = codecs;
        }
    }

    /// Those of `id`, by region; none where there are none.
    pub(crate) fn codecs(&self, id: CheckpointId) -> &[Option<Spec>] {
        self.entries.get(&id).map_or(&[], |entry| &entry.codecs)
    }

    /// The errors of the encoders of `id`, by region.
    pub(crate) fn achieved(&self, id: CheckpointId) -> &[Option<Achieved>] {
        self.entries.get(&id).map_or(&[], |entry| &entry.achieved)
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
