//! What is known of every checkpoint besides its bytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use unspool_codec::{Achieved, Spec};
use unspool_core::CheckpointId;
use unspool_transfer::{Frame, TransferError};

use crate::error::ErrorKind;

/// The heads of all checkpoints that are saved or being saved.
#[derive(Debug, Default)]
pub(crate) struct FrameIndex {
    entries: HashMap<CheckpointId, FrameEntry>,
    /// Versions of an earlier run that did not come back, until they are saved again.
    unrecovered: HashMap<i64, Unrecovered>,
    /// A file of an earlier run whose version nobody knows.
    nameless: Option<String>,
}

/// Why a version of an earlier run did not come back.
#[derive(Clone, Debug)]
pub(crate) struct Unrecovered {
    /// `Corrupt` or `Lost`.
    pub(crate) kind: ErrorKind,
    /// The file, and what is wrong with it: a sentence.
    pub(crate) reason: String,
    /// Frames of it that are in the directory, or that the directory says should be.
    pub(crate) frames: Vec<CheckpointId>,
}

#[derive(Debug)]
struct FrameEntry {
    frame: Arc<Frame>,
    /// The errors of the encoders, by region; none where nothing is encoded or nobody knows.
    achieved: Vec<Option<Achieved>>,
    /// What made the regions whose codec the frame does not name with its parameters; none where
    /// there are none or nobody knows.
    codecs: Vec<Option<Spec>>,
    durable: bool,
    /// What happened to a copy of it that was lost.
    loss: Option<TransferError>,
}

impl FrameIndex {
    pub(crate) fn insert(&mut self, id: CheckpointId, frame: Arc<Frame>, durable: bool) {
        self.unrecovered.remove(&frame.head().version);
        let entry =
            FrameEntry { frame, achieved: Vec::new(), codecs: Vec::new(), durable, loss: None };
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

    /// Regions of `id` are made by these codecs, which its frame does not name.
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

    /// How many there are.
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
    pub(crate) fn set_loss(&mut self, id: CheckpointId, what: TransferError) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.loss = Some(what);
        }
    }

    /// `version` of an earlier run did not come back.
    pub(crate) fn set_unrecovered(&mut self, version: i64, why: Unrecovered) {
        self.unrecovered.insert(version, why);
    }

    /// Takes out what is known of a `version` that did not come back.
    pub(crate) fn take_unrecovered(&mut self, version: i64) -> Option<Unrecovered> {
        self.unrecovered.remove(&version)
    }

    /// The versions that did not come back, in ascending order.
    pub(crate) fn all_unrecovered(&self) -> BTreeMap<i64, &Unrecovered> {
        self.unrecovered.iter().map(|(&version, why)| (version, why)).collect()
    }

    /// Why `version` of an earlier run did not come back, if so.
    pub(crate) fn unrecovered(&self, version: i64) -> Option<&Unrecovered> {
        self.unrecovered.get(&version)
    }

    /// A file of an earlier run is damaged, and nobody knows which version it had.
    pub(crate) fn set_nameless(&mut self, file: String) {
        self.nameless.get_or_insert(file);
    }

    /// The first such file.
    pub(crate) fn nameless(&self) -> Option<&str> {
        self.nameless.as_deref()
    }

    pub(crate) fn loss(&self, id: CheckpointId) -> Option<&TransferError> {
        self.entries.get(&id).and_then(|entry| entry.loss.as_ref())
    }
}
