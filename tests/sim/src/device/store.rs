//! Stores: a disk, which loses or tears unsynced frames in a crash, and an object store, in which
//! an object is completely and permanently present, or not at all.

use std::collections::BTreeMap;

use unspool_core::{CheckpointId, Failure, TierKind};

use crate::random::Random;

/// The unit of writes to a disk: it is written completely or not at all.
const SECTOR: usize = 512;

#[derive(Clone, Debug)]
struct File {
    bytes: Vec<u8>,
    synced: bool,
}

/// A store of frames.
#[derive(Clone, Debug)]
pub struct Store {
    kind: TierKind,
    frames: BTreeMap<CheckpointId, File>,
    /// Frames whose removal was not synced: a crash may restore them.
    removed: BTreeMap<CheckpointId, Vec<u8>>,
    /// Actual capacity of the medium in bytes, whatever the settings say.
    pub limit: u64,
}

impl Store {
    /// An empty store.
    #[must_use]
    pub fn new(kind: TierKind) -> Store {
        Store { kind, frames: BTreeMap::new(), removed: BTreeMap::new(), limit: u64::MAX }
    }

    /// Total size of all frames in bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.frames.values().map(|file| file.bytes.len() as u64).sum()
    }

    /// Stores a frame.
    ///
    /// # Errors
    /// `NoSpace` when the medium is full.
    pub fn put(&mut self, id: CheckpointId, bytes: Vec<u8>) -> Result<(), Failure> {
        if self.used().saturating_add(bytes.len() as u64) > self.limit {
            return Err(Failure::NoSpace);
        }
        let synced = self.kind == TierKind::Remote;
        self.frames.insert(id, File { bytes, synced });
        Ok(())
    }

    /// The bytes of a frame.
    #[must_use]
    pub fn get(&self, id: CheckpointId) -> Option<&[u8]> {
        self.frames.get(&id).map(|file| file.bytes.as_slice())
    }

    /// Removes a frame and returns whether it existed.
    pub fn remove(&mut self, id: CheckpointId) -> bool {
        let Some(file) = self.frames.remove(&id) else { return false };
        if file.synced && self.kind == TierKind::Disk {
            self.removed.insert(id, file.bytes);
        }
        true
    }

    /// Flips some bits of a frame, as a failing medium does.
    pub fn damage(&mut self, id: CheckpointId, random: &mut Random) {
        if let Some(file) = self.frames.get_mut(&id).filter(|file| !file.bytes.is_empty()) {
            let at = random.below(file.bytes.len() as u64) as usize;
            file.bytes[at] ^= 1 << random.below(8);
        }
    }

    /// Makes earlier writes and removals permanent.
    pub fn sync(&mut self) {
        self.frames.values_mut().for_each(|file| file.synced = true);
        self.removed.clear();
    }

    /// Whether the frame exists and survives a crash.
    #[must_use]
    pub fn is_synced(&self, id: CheckpointId) -> bool {
        self.frames.get(&id).is_some_and(|file| file.synced)
    }

    /// The ids of all frames, including torn ones.
    pub fn list(&self) -> impl Iterator<Item = CheckpointId> + '_ {
        self.frames.keys().copied()
    }

    /// Crashes the machine; `writing` are the frames that were being written.
    pub fn crash(&mut self, writing: Vec<(CheckpointId, Vec<u8>)>, random: &mut Random) {
        if self.kind != TierKind::Disk {
            return;
        }
        for (id, bytes) in writing {
            self.frames.insert(id, File { bytes, synced: false });
        }
        for (id, bytes) in std::mem::take(&mut self.removed) {
            if random.chance(0.5) {
                self.frames.insert(id, File { bytes, synced: true });
            }
        }
        self.frames.retain(|_, file| file.synced || tear(&mut file.bytes, random));
        self.sync();
    }
}

/// Truncates or corrupts an unsynced file; returns `false` when nothing is left of it.
fn tear(bytes: &mut Vec<u8>, random: &mut Random) -> bool {
    match random.below(5) {
        0 => return false,
        1 => bytes.truncate(random.below(bytes.len() as u64 + 1) as usize),
        2 => bytes.fill(0),
        3 => lose_sectors(bytes, random),
        _ => {}
    }
    true
}

fn lose_sectors(bytes: &mut [u8], random: &mut Random) {
    let share = random.unit();
    for sector in bytes.chunks_mut(SECTOR) {
        if random.chance(share) {
            sector.fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: CheckpointId = CheckpointId(1);

    fn after_crash(seed: u64, prepare: impl Fn(&mut Store)) -> Option<Vec<u8>> {
        let mut store = Store::new(TierKind::Disk);
        prepare(&mut store);
        store.crash(vec![], &mut Random::new(seed));
        store.get(ID).map(<[u8]>::to_vec)
    }

    #[test]
    fn a_synced_frame_survives_every_crash() {
        for seed in 0..100 {
            let left = after_crash(seed, |store| {
                store.put(ID, vec![7; 2000]).unwrap();
                store.sync();
            });
            assert_eq!(left, Some(vec![7; 2000]));
        }
    }

    #[test]
    fn an_unsynced_frame_is_lost_torn_or_whole() {
        let left: Vec<_> = (0..100)
            .map(|s| after_crash(s, |store| store.put(ID, vec![7; 2000]).unwrap()))
            .collect();
        assert!(left.contains(&None));
        assert!(left.contains(&Some(vec![7; 2000])));
        assert!(left.iter().flatten().any(|bytes| bytes.len() < 2000));
        assert!(left.iter().flatten().any(|bytes| bytes.len() == 2000 && bytes.contains(&0)));
    }

    #[test]
    fn an_unsynced_removal_may_be_undone() {
        let removed = |store: &mut Store| {
            store.put(ID, vec![7; 2000]).unwrap();
            store.sync();
            assert!(store.remove(ID));
        };
        let left: Vec<_> = (0..100).map(|seed| after_crash(seed, removed)).collect();
        assert!(left.contains(&None) && left.contains(&Some(vec![7; 2000])));
    }

    #[test]
    fn an_object_store_keeps_everything_and_nothing_in_between() {
        let mut store = Store::new(TierKind::Remote);
        store.put(ID, vec![7; 10]).unwrap();
        store.crash(vec![(CheckpointId(2), vec![8; 5])], &mut Random::new(1));
        assert_eq!((store.get(ID), store.get(CheckpointId(2))), (Some(&[7; 10][..]), None));
    }

    #[test]
    fn a_full_medium_refuses() {
        let mut store = Store::new(TierKind::Disk);
        store.limit = 100;
        assert_eq!(store.put(ID, vec![0; 101]), Err(Failure::NoSpace));
        assert_eq!(store.put(ID, vec![0; 100]), Ok(()));
    }
}
