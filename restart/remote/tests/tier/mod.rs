//! A tier in a remote place, one object for each frame: by it a place passes what tiers pass.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use unspool_core::{CheckpointId, Failure, TierKind};
use unspool_remote::{Entry, Options, Parts, Remote};
use unspool_tiers::{Description, Stored, Tier, TierError};

const PREFIX: &str = "frame-";

/// A tier in the folder `tier` of a place.
pub fn opened(place: &str, options: &Options, capacity: u64) -> RemoteTier {
    let remote = Remote::open(place, options).unwrap_or_else(|error| panic!("{error}"));
    RemoteTier::open(remote, "tier", Some(capacity)).unwrap_or_else(|error| panic!("{error}"))
}

/// Frames as objects of one folder of a remote place. What was put is durable when `put` returns,
/// as far as the place keeps its promises.
#[derive(Debug)]
pub struct RemoteTier {
    remote: Remote,
    folder: String,
    capacity: Option<u64>,
    frames: Mutex<BTreeMap<CheckpointId, Frame>>,
}

/// A frame of the tier.
#[derive(Clone, Copy, Debug)]
struct Frame {
    bytes: u64,
    /// All of it is there; else it is on its way, or going.
    whole: bool,
}

impl RemoteTier {
    /// The tier in `folder` of `remote`, with the frames that are there. Nobody else may change
    /// what is in that folder.
    ///
    /// # Errors
    /// When the folder has no sensible name, or cannot be listed.
    pub fn open(
        remote: Remote,
        folder: &str,
        capacity: Option<u64>,
    ) -> Result<RemoteTier, TierError> {
        let listed = remote.list(&format!("{folder}/"))?;
        let frame = |entry: Entry| {
            let number =
                entry.name.strip_prefix(folder)?.strip_prefix('/')?.strip_prefix(PREFIX)?;
            let id = CheckpointId(number.parse().ok()?);
            let frame = Frame { bytes: entry.bytes, whole: true };
            (entry.name == name(folder, id)).then_some((id, frame))
        };
        let frames = Mutex::new(listed.into_iter().filter_map(frame).collect());
        Ok(RemoteTier { remote, folder: folder.to_owned(), capacity, frames })
    }

    fn frames(&self) -> MutexGuard<'_, BTreeMap<CheckpointId, Frame>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(
        &self,
        failure: Failure,
        operation: &'static str,
        id: CheckpointId,
        reason: &str,
    ) -> TierError {
        TierError::new(failure, operation, self.locate(id), reason)
    }

    /// Takes the place of a frame, so that no other one of its id can come.
    fn reserve(&self, id: CheckpointId, bytes: u64) -> Result<(), TierError> {
        let mut frames = self.frames();
        if frames.contains_key(&id) {
            let reason = "there is a frame of this checkpoint";
            return Err(self.refused(Failure::Permanent, "put", id, reason));
        }
        let used: u64 = frames.values().map(|frame| frame.bytes).sum();
        let room = self.capacity.is_none_or(|most| used.saturating_add(bytes) <= most);
        if !room {
            let full = self.refused(Failure::NoSpace, "put", id, "the tier is full");
            return Err(full.with_progress(bytes, 0).with_advice("Give it a larger capacity."));
        }
        frames.insert(id, Frame { bytes, whole: false });
        Ok(())
    }

    fn found(&self, operation: &'static str, id: CheckpointId) -> Result<Frame, TierError> {
        let found = self.frames().get(&id).copied().filter(|frame| frame.whole);
        found.ok_or_else(|| self.refused(Failure::Missing, operation, id, "it is not there"))
    }
}

fn name(folder: &str, id: CheckpointId) -> String {
    format!("{folder}/{PREFIX}{}", id.0)
}

impl Tier for RemoteTier {
    fn describe(&self) -> Description {
        Description {
            kind: TierKind::Remote,
            location: self.remote.locate(&self.folder),
            capacity: self.capacity.unwrap_or(u64::MAX),
            used: self.frames().values().map(|frame| frame.bytes).sum(),
            alignment: 1,
            durable: true,
            notes: Vec::new(),
        }
    }

    fn locate(&self, id: CheckpointId) -> String {
        self.remote.locate(&name(&self.folder, id))
    }

    fn put(&self, id: CheckpointId, _offset: u64, parts: &[&[u8]]) -> Result<(), TierError> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.reserve(id, bytes)?;
        let put = self.remote.put(&name(&self.folder, id), &Parts::of(parts), None).map(drop);
        match put {
            Ok(()) => drop(self.frames().insert(id, Frame { bytes, whole: true })),
            // What is there of it would be found by the next opening.
            Err(_) => {
                let _ = self.remote.delete(&name(&self.folder, id));
                self.frames().remove(&id);
            }
        }
        put
    }

    fn get(&self, id: CheckpointId, skip: u64, parts: &mut [&mut [u8]]) -> Result<(), TierError> {
        let frame = self.found("get", id)?;
        let wanted: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if skip.checked_add(wanted).is_none_or(|end| end > frame.bytes) {
            let why = format!("{wanted} bytes from {skip} on end beyond its {}", frame.bytes);
            return Err(self.refused(Failure::Corrupt, "get", id, &why));
        }
        if wanted == 0 {
            return Ok(());
        }
        let all = self.remote.get(&name(&self.folder, id))?;
        let mut rest = &all[skip as usize..];
        for part in parts {
            let (now, later) = rest.split_at(part.len());
            part.copy_from_slice(now);
            rest = later;
        }
        Ok(())
    }

    fn delete(&self, id: CheckpointId) -> Result<(), TierError> {
        let frame = self.found("delete", id)?;
        self.frames().insert(id, Frame { whole: false, ..frame });
        let deleted = self.remote.delete(&name(&self.folder, id));
        match deleted {
            Ok(()) => drop(self.frames().remove(&id)),
            Err(_) => drop(self.frames().insert(id, frame)),
        }
        deleted
    }

    fn list(&self) -> Result<Vec<Stored>, TierError> {
        let frames = self.frames();
        let whole = frames.iter().filter(|(_, frame)| frame.whole);
        Ok(whole.map(|(&id, frame)| Stored { id, bytes: frame.bytes }).collect())
    }

    fn sync(&self) -> Result<(), TierError> {
        Ok(())
    }
}
