//! The bookkeeping of packs: how long each is, how much of it is in use, and which may go. No I/O
//! happens here.
//!
//! Invariants:
//! - A byte of a pack is written once: what a pack holds never changes, it only gets more or goes.
//! - A pack goes when nothing in it is in use. One from which frames were moved goes after the
//!   manifest that says where they lie now was synced.

use std::collections::BTreeMap;

use crate::disk::names::PackFile;
use crate::disk::record::Place;
use crate::disk::table::file_size;

/// How many of the longest frames fit in a pack.
pub(super) const FRAMES: u64 = 64;

#[derive(Debug)]
struct Pack {
    /// The end of its last record.
    len: u64,
    /// Bytes of records that are in use.
    live: u64,
    /// Bytes that survive a crash.
    synced: u64,
    state: PackState,
    /// Frames were moved out of it, and the manifest was not synced since.
    moved: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PackState {
    Sound,
    /// A sync of it failed: nobody knows what is on the medium. Its frames are to be moved.
    Suspect,
    /// Its frames could not all be moved: they stay where they are.
    Left,
}

/// See the module.
#[derive(Debug)]
pub(super) struct PackTable {
    /// Bytes of the longest pack.
    limit: u64,
    packs: BTreeMap<PackFile, Pack>,
    /// The pack that gets new records.
    filling: Option<PackFile>,
    next: u32,
    /// Bytes of the files of packs, in whole blocks.
    used: u64,
    /// Bytes of records that are in use.
    live: u64,
    /// Those of them that are copies of records from which their frames have not been moved yet.
    copies: u64,
    /// Packs whose files may be removed.
    empty: Vec<PackFile>,
}

impl PackTable {
    /// Books for packs of frames of up to `longest` bytes.
    pub(super) fn new(longest: u64) -> PackTable {
        PackTable {
            limit: FRAMES * longest,
            packs: BTreeMap::new(),
            filling: None,
            next: 0,
            used: 0,
            live: 0,
            copies: 0,
            empty: Vec::new(),
        }
    }

    /// Bytes of the files of packs.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Bytes that the files of packs have in excess of what their frames need.
    pub(super) fn unused(&self) -> u64 {
        self.used.saturating_sub(self.live.saturating_sub(self.copies))
    }

    /// As `reserve`, for copies of records.
    pub(super) fn reserve_copies(&mut self, length: u32) -> Place {
        self.copies += u64::from(length);
        self.reserve(length)
    }

    /// The frame of a copy lies there now, or the copy is given up.
    pub(super) fn copied(&mut self, to: Place) {
        debug_assert!(self.copies >= u64::from(to.length));
        self.copies = self.copies.saturating_sub(u64::from(to.length));
    }

    /// By how much files grow when a record of `length` bytes is appended.
    pub(super) fn growth(&self, length: u32) -> u64 {
        let (target, len) = self.target(length);
        let before = target.map_or(0, |_| blocks(len));
        blocks(len + u64::from(length)) - before
    }

    /// The pack for a record of `length` bytes, if there is one that has room, and its length.
    fn target(&self, length: u32) -> (Option<PackFile>, u64) {
        let filling = self.filling.and_then(|pack| Some((pack, self.packs.get(&pack)?.len)));
        match filling {
            Some((pack, len)) if len + u64::from(length) <= self.limit => (Some(pack), len),
            _ => (None, 0),
        }
    }

    /// Takes room for records of `length` bytes, which is in use from now on.
    pub(super) fn reserve(&mut self, length: u32) -> Place {
        let (target, offset) = self.target(length);
        let pack = target.unwrap_or_else(|| {
            let pack = PackFile(self.next);
            self.skip(pack);
            self.filling = Some(pack);
            self.add(pack, offset, 0);
            pack
        });
        let place = Place { pack, offset: offset as u32, length };
        self.grow(pack, place.end());
        self.take(place);
        place
    }

    /// Numbers up to that of `pack` are not given to new packs.
    pub(super) fn skip(&mut self, pack: PackFile) {
        // Numbers are not used up: as many packs of a record each would fill any file system.
        self.next = self.next.max(pack.0.saturating_add(1));
    }

    /// Enters the file of a pack that an earlier process left.
    pub(super) fn found(&mut self, pack: PackFile, len: u64) {
        self.skip(pack);
        self.add(pack, len, u64::MAX);
        self.empty.push(pack);
    }

    fn add(&mut self, pack: PackFile, len: u64, synced: u64) {
        let state = PackState::Sound;
        self.packs.insert(pack, Pack { len, live: 0, synced, state, moved: false });
        self.used += blocks(len);
    }

    fn grow(&mut self, pack: PackFile, len: u64) {
        if let Some(pack) = self.packs.get_mut(&pack)
            && pack.len < len
        {
            self.used += blocks(len) - blocks(pack.len);
            pack.len = len;
        }
    }

    /// The record of a frame is in use.
    pub(super) fn take(&mut self, place: Place) {
        if !self.packs.contains_key(&place.pack) {
            self.add(place.pack, place.end(), u64::MAX);
        }
        self.grow(place.pack, place.end());
        if let Some(pack) = self.packs.get_mut(&place.pack) {
            if pack.live == 0 {
                self.empty.retain(|&empty| empty != place.pack);
            }
            pack.live += u64::from(place.length);
            self.live += u64::from(place.length);
        }
    }

    /// The record of a frame is not in use any more.
    pub(super) fn release(&mut self, place: Place) {
        let Some(pack) = self.packs.get_mut(&place.pack) else { return };
        debug_assert!(pack.live >= u64::from(place.length));
        pack.live -= u64::from(place.length);
        self.live -= u64::from(place.length);
        if pack.live == 0 {
            if !pack.moved {
                self.empty.push(place.pack);
            }
            self.seal(place.pack);
        }
    }

    /// No record is appended to the pack any more.
    pub(super) fn seal(&mut self, pack: PackFile) {
        if self.filling == Some(pack) {
            self.filling = None;
        }
    }

    /// Packs whose files may be removed: call `gone` for each that was.
    pub(super) fn empty(&self) -> Vec<PackFile> {
        self.empty.clone()
    }

    /// The file of an empty pack is not there.
    pub(super) fn gone(&mut self, pack: PackFile) {
        self.empty.retain(|&empty| empty != pack);
        if let Some(pack) = self.packs.remove(&pack) {
            debug_assert_eq!(pack.live, 0);
            self.used -= blocks(pack.len);
        }
    }

    /// The file of a pack could not be created: what has its name is not ours, if anything has.
    pub(super) fn disown(&mut self, pack: PackFile) {
        self.seal(pack);
        if let Some(pack) = self.packs.remove(&pack) {
            self.used -= blocks(pack.len);
            self.live -= pack.live;
        }
    }

    /// Packs of which a sync has to make more durable, with their lengths.
    pub(super) fn unsynced(&self) -> Vec<(PackFile, u64)> {
        let unsynced = |pack: &Pack| {
            pack.live > 0 && pack.synced < pack.len && pack.state != PackState::Suspect
        };
        let found = self.packs.iter().filter(|(_, pack)| unsynced(pack));
        found.map(|(&file, pack)| (file, pack.len)).collect()
    }

    /// A sync of the pack ended, which had `len` bytes when it began. Says whether the pack is
    /// still there.
    pub(super) fn synced(&mut self, file: PackFile, len: u64, done: bool) -> bool {
        if !done {
            self.seal(file);
        }
        let Some(pack) = self.packs.get_mut(&file) else { return false };
        if done {
            pack.synced = len;
        } else {
            pack.state = PackState::Suspect;
        }
        true
    }

    /// Whether a record survives a crash of the machine.
    pub(super) fn is_synced(&self, place: Place) -> bool {
        self.packs.get(&place.pack).is_some_and(|pack| place.end() <= pack.synced)
    }

    /// Whether so little of the pack is in use that its frames are to be moved.
    pub(super) fn is_sparse(&self, file: PackFile) -> bool {
        self.packs.get(&file).is_some_and(|pack| {
            let started = self.filling == Some(file) && pack.len < self.limit / 4;
            pack.state == PackState::Sound && pack.live > 0 && 2 * pack.live < pack.len && !started
        })
    }

    /// Up to `most` packs of which little is in use, and all of which a sync failed.
    pub(super) fn worth_moving(&self, most: usize) -> Vec<PackFile> {
        let suspect = |pack: &Pack| pack.state == PackState::Suspect && pack.live > 0;
        let sparse = self.packs.keys().copied().filter(|&pack| self.is_sparse(pack)).take(most);
        let suspects = self.packs.iter().filter(|(_, pack)| suspect(pack));
        sparse.chain(suspects.map(|(&file, _)| file)).collect()
    }

    /// Up to `most` packs, those first of which moving their frames gives back most room.
    pub(super) fn wasteful(&self, most: usize) -> Vec<PackFile> {
        let waste = |pack: &Pack| blocks(pack.len).saturating_sub(blocks(pack.live));
        let movable = |pack: &&Pack| pack.state == PackState::Sound && pack.live > 0;
        let packs = self.packs.iter().filter(|(_, pack)| movable(pack) && waste(pack) > 0);
        let mut packs: Vec<_> = packs.map(|(&file, pack)| (waste(pack), file)).collect();
        packs.sort_unstable_by(|one, other| other.cmp(one));
        packs.into_iter().take(most).map(|(_, file)| file).collect()
    }

    /// Bytes of records of a pack that are in use.
    pub(super) fn live(&self, pack: PackFile) -> u64 {
        self.packs.get(&pack).map_or(0, |pack| pack.live)
    }

    /// The pack should hold a frame that it does not: it is not removed for having nothing else.
    pub(super) fn keep(&mut self, pack: PackFile) {
        self.empty.retain(|&empty| empty != pack);
        self.leave(pack);
    }

    /// The frames of the pack could not all be moved.
    pub(super) fn leave(&mut self, pack: PackFile) {
        if let Some(pack) = self.packs.get_mut(&pack)
            && pack.state == PackState::Sound
        {
            pack.state = PackState::Left;
        }
    }

    /// A frame of the pack is about to be moved out of it.
    pub(super) fn moving(&mut self, pack: PackFile) {
        if let Some(pack) = self.packs.get_mut(&pack) {
            pack.moved = true;
        }
    }

    /// What says where moved frames lie survives a crash: the packs that they left may go.
    pub(super) fn settled(&mut self) {
        for (&file, pack) in self.packs.iter_mut().filter(|(_, pack)| pack.moved) {
            pack.moved = false;
            if pack.live == 0 {
                self.empty.push(file);
            }
        }
    }

    /// A pack of which a sync failed and that is in use.
    pub(super) fn suspect(&self) -> Option<PackFile> {
        let suspect = |pack: &Pack| pack.state == PackState::Suspect && pack.live > 0;
        self.packs.iter().find(|(_, pack)| suspect(pack)).map(|(&file, _)| file)
    }
}

/// The bytes of whole blocks that `len` bytes take.
fn blocks(len: u64) -> u64 {
    file_size(len).unwrap_or(u64::MAX)
}
