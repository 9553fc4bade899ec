//! The bookkeeping of a disk tier: which file holds which frame, and which files are left over for
//! the next frames. No I/O happens here.
//!
//! Invariants:
//! - A slot belongs to one frame, to the spares, to the resting slots, or to nobody.
//! - Frames, spares and resting slots together take at most `peak` bytes, the most that the frames
//!   alone ever took: keeping files for reuse costs no room that the tier did not need before.
//! - A slot that held a durable frame rests until the directory was synced: before that a crash
//!   could bring the old name back, over the bytes of a new frame.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use unspool_core::{CheckpointId, Failure};

use crate::disk::manifest::{FrameStart, Listing};
use crate::disk::names::{FrameName, SlotFile};
use crate::disk::pack::PackTable;
use crate::disk::record::Place;
use crate::tier::Stored;

/// Bytes of a block: files are written in whole blocks.
pub(super) const BLOCK: u64 = 4096;

/// The size of the file of a frame of `bytes` bytes; `None` when no number is large enough.
pub(super) fn file_size(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(BLOCK)
}

/// Where a frame is and what may be done with it.
#[derive(Debug)]
struct Frame {
    bytes: u64,
    /// The size of its file; 0 when it is packed.
    size: u64,
    state: FrameState,
    /// A sync of it has failed: nobody knows what is on the medium, so it is never published.
    suspect: bool,
    home: Home,
    /// The manifest lists it.
    listed: bool,
    /// Its first bytes, until the manifest lists it; `None` where only its file has them.
    start: Option<FrameStart>,
    /// Tells this put from an earlier one of the same id.
    put: u64,
    /// Cloned by every reader.
    readers: Arc<()>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FrameState {
    /// A put is under way. Ends: `Stored`, or the entry is removed.
    Writing,
    /// Complete. Delete -> `Leaving` or removed.
    Stored,
    /// A delete is under way. Ends: removed, or `Stored` when the delete failed.
    Leaving,
}

/// The file of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Home {
    /// Not durable (yet).
    Slot(SlotFile),
    /// Under its durable name.
    Published,
    /// With others.
    Packed(Place),
}

/// A frame that cannot be had, or cannot be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameRefusal {
    /// The id has a frame.
    Duplicate,
    /// The id has no frame.
    Unknown,
    /// The frame is still being written.
    StillWritten,
    /// The frame has `held` bytes.
    TooShort { held: u64 },
    /// The capacity is reached.
    Full { capacity: u64, used: u64 },
}

impl FrameRefusal {
    /// What it means to the core.
    pub(super) fn failure(self) -> Failure {
        match self {
            FrameRefusal::Unknown => Failure::Missing,
            FrameRefusal::TooShort { .. } => Failure::Corrupt,
            FrameRefusal::Full { .. } => Failure::NoSpace,
            FrameRefusal::Duplicate | FrameRefusal::StillWritten => Failure::Permanent,
        }
    }

    /// What a person can do about it.
    pub(super) fn advice(self) -> &'static str {
        match self {
            FrameRefusal::Full { .. } => {
                "Discard checkpoints, or give the disk tier more `capacity`."
            }
            _ => "",
        }
    }
}

impl fmt::Display for FrameRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FrameRefusal::Duplicate => write!(f, "the id already has a frame"),
            FrameRefusal::Unknown => write!(f, "the id has no frame"),
            FrameRefusal::StillWritten => write!(f, "the frame is still being written"),
            FrameRefusal::TooShort { held } => write!(f, "the frame has only {held} bytes"),
            FrameRefusal::Full { capacity, used } => {
                write!(f, "{used} of the {capacity} bytes of capacity are in use")
            }
        }
    }
}

/// Room for a new frame.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct FrameRoom {
    /// The file to write.
    pub(super) slot: SlotFile,
    /// The size of the file if it exists; `None`: it has to be created.
    pub(super) old_size: Option<u64>,
    /// The size that it will have.
    pub(super) size: u64,
    /// Spares that have to go first.
    pub(super) surplus: Vec<SlotFile>,
}

/// A frame that may be read while `_reader` lives.
#[derive(Debug)]
pub(super) struct BorrowedFrame {
    pub(super) file: File,
    pub(super) _reader: Arc<()>,
}

/// The file of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum File {
    Slot(SlotFile),
    Frame(FrameName),
    Pack(Place),
}

/// What a delete has to do on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Removal {
    /// Nothing: the file is a spare now.
    Kept,
    /// Remove the file, then call `left`.
    Remove(File),
    /// Rename the file to the slot, then call `rested`.
    Rest(FrameName, SlotFile),
    /// Nothing; then call `left`.
    Unpack(Place),
}

/// A frame whose record was copied from one place to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    pub(super) name: FrameName,
    pub(super) start: FrameStart,
    pub(super) from: Place,
    pub(super) to: Place,
}

/// What may be left of a frame that cannot be had any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lost {
    /// A file of this name.
    File(FrameName),
    /// Bytes in a pack.
    Packed,
}

/// A frame that waits for a sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UnsyncedFrame {
    pub(super) name: FrameName,
    pub(super) slot: SlotFile,
    put: u64,
    /// An earlier sync of it failed.
    pub(super) suspect: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct FrameTable {
    capacity: u64,
    pub(super) packs: PackTable,
    frames: BTreeMap<CheckpointId, Frame>,
    /// Frames that the manifest lists and that are not there, or not whole.
    lost: BTreeMap<CheckpointId, Lost>,
    /// Files for new frames, by size.
    spares: BTreeSet<(u64, SlotFile)>,
    /// Slots that become spares when the directory was synced, each with the number of syncs that
    /// had begun when it was renamed.
    resting: Vec<(u64, u64, SlotFile)>,
    syncs: u64,
    /// Bytes of the files of frames that are not packed.
    used: u64,
    /// Bytes of spares and resting slots.
    idle: u64,
    peak: u64,
    puts: u64,
    slots: u64,
}

impl FrameTable {
    /// Books of a tier of this capacity, which packs frames of up to `packed_up_to` bytes.
    pub(super) fn new(capacity: u64, packed_up_to: u64) -> FrameTable {
        FrameTable {
            capacity,
            packs: PackTable::new(packed_up_to),
            frames: BTreeMap::new(),
            lost: BTreeMap::new(),
            spares: BTreeSet::new(),
            resting: Vec::new(),
            syncs: 0,
            used: 0,
            idle: 0,
            peak: 0,
            puts: 0,
            slots: 0,
        }
    }

    pub(super) fn used(&self) -> u64 {
        self.used + self.packs.used()
    }

    /// Enters a durable frame that an earlier process left, and whether the manifest lists it;
    /// false when its id has a frame already.
    pub(super) fn recover(&mut self, name: FrameName, listed: bool) -> bool {
        let size = file_size(name.bytes).filter(|_| !self.frames.contains_key(&name.id));
        let Some(size) = size else { return false };
        self.enter(name.id, name.bytes, size, FrameState::Stored, Home::Published);
        if let Some(frame) = self.frames.get_mut(&name.id) {
            frame.listed = listed;
        }
        true
    }

    /// Enters a frame that the manifest lists and that cannot be had any more: its file may be
    /// there in part. The pack that it was in stays.
    pub(super) fn lose(&mut self, name: FrameName, place: Option<Place>) {
        place.into_iter().for_each(|place| self.packs.keep(place.pack));
        self.lost.insert(name.id, if place.is_some() { Lost::Packed } else { Lost::File(name) });
    }

    /// What may be left of a lost frame.
    pub(super) fn lost(&self, id: CheckpointId) -> Option<Lost> {
        self.lost.get(&id).copied()
    }

    /// Nothing is left of a lost frame.
    pub(super) fn forget_lost(&mut self, id: CheckpointId) {
        self.lost.remove(&id);
    }

    /// As `recover`, for a frame that is listed and packed.
    pub(super) fn recover_packed(&mut self, name: FrameName, place: Place) {
        let FrameName { id, bytes } = name;
        self.enter(id, bytes, 0, FrameState::Stored, Home::Packed(place));
        self.packs.take(place);
        if let Some(frame) = self.frames.get_mut(&id) {
            frame.listed = true;
        }
    }

    /// Forgets a file that `recover` has entered and that is not a frame. Says whether there was
    /// one. A pack is never such a file.
    pub(super) fn disown(&mut self, id: CheckpointId) -> bool {
        let packed = |frame: &Frame| matches!(frame.home, Home::Packed(_));
        self.frames.get(&id).is_some_and(|frame| !packed(frame)) && self.forget(id).is_some()
    }

    /// Looks up where the writer of the directory has moved packed frames since they were entered.
    pub(super) fn follow(&mut self, listing: &Listing) {
        for (id, frame) in &mut self.frames {
            let listed = listing.frames.get(id).filter(|listed| listed.bytes == frame.bytes);
            let place = listed.and_then(|listed| listed.place);
            if let (Home::Packed(from), Some(to)) = (frame.home, place) {
                frame.home = Home::Packed(to);
                self.packs.take(to);
                self.packs.release(from);
            }
        }
    }

    /// Durable frames that the manifest does not list and whose first bytes only their files have.
    pub(super) fn unread(&self) -> Vec<FrameName> {
        let unread = |(&id, frame): (&CheckpointId, &Frame)| {
            let unread = frame.awaits_listing() && frame.start.is_none();
            unread.then_some(FrameName { id, bytes: frame.bytes })
        };
        self.frames.iter().filter_map(unread).collect()
    }

    /// The first bytes of a durable frame were read from its file.
    pub(super) fn set_start(&mut self, name: FrameName, start: FrameStart) {
        if let Some(frame) = self.frames.get_mut(&name.id)
            && frame.awaits_listing()
            && frame.bytes == name.bytes
        {
            frame.start = Some(start);
        }
    }

    /// Durable frames that the manifest does not list; from now on it does. A frame that is packed
    /// has a place.
    pub(super) fn list_in_manifest(&mut self) -> Vec<(FrameName, FrameStart, Option<Place>)> {
        let packs = &self.packs;
        let list = |(&id, frame): (&CheckpointId, &mut Frame)| {
            let place = match frame.home {
                Home::Packed(place) if packs.is_synced(place) => Some(place),
                Home::Published => None,
                Home::Packed(_) | Home::Slot(_) => return None,
            };
            let start = if frame.awaits_listing() { frame.start.take() } else { None }?;
            frame.listed = true;
            Some((FrameName { id, bytes: frame.bytes }, start, place))
        };
        self.frames.iter_mut().filter_map(list).collect()
    }

    /// Whether the manifest lists the frame.
    pub(super) fn is_listed(&self, id: CheckpointId) -> bool {
        self.frames.get(&id).is_some_and(|frame| frame.listed)
    }

    fn enter(&mut self, id: CheckpointId, bytes: u64, size: u64, state: FrameState, home: Home) {
        self.puts += 1;
        let (put, readers) = (self.puts, Arc::default());
        let (suspect, listed, start) = (false, false, None);
        let frame = Frame { bytes, size, state, suspect, home, listed, start, put, readers };
        let before = self.frames.insert(id, frame);
        debug_assert!(before.is_none(), "checked by the caller");
        self.used += size;
        self.peak = self.peak.max(self.used);
    }

    /// Takes room for a new frame of `bytes` bytes; ends with `stored` or `abandon`.
    pub(super) fn reserve(
        &mut self,
        id: CheckpointId,
        bytes: u64,
    ) -> Result<FrameRoom, FrameRefusal> {
        if self.frames.contains_key(&id) {
            return Err(FrameRefusal::Duplicate);
        }
        let full = FrameRefusal::Full { capacity: self.capacity, used: self.used() };
        let size = file_size(bytes).ok_or(full)?;
        if !self.would_fit(size) {
            return Err(full);
        }
        let (slot, old_size) = match self.best_spare(size) {
            Some((old_size, slot)) => {
                self.take_spare(old_size, slot);
                (slot, Some(old_size))
            }
            None => (self.new_slot(), None),
        };
        self.enter(id, bytes, size, FrameState::Writing, Home::Slot(slot));
        let surplus = self.shrink(self.peak - self.used);
        Ok(FrameRoom { slot, old_size, size, surplus })
    }

    /// As `reserve`, for a frame whose record has `length` bytes.
    pub(super) fn reserve_packed(
        &mut self,
        id: CheckpointId,
        bytes: u64,
        length: u32,
    ) -> Result<Place, FrameRefusal> {
        if self.frames.contains_key(&id) {
            return Err(FrameRefusal::Duplicate);
        }
        if !self.would_fit(self.packs.growth(length)) {
            return Err(FrameRefusal::Full { capacity: self.capacity, used: self.used() });
        }
        let place = self.packs.reserve(length);
        self.enter(id, bytes, 0, FrameState::Writing, Home::Packed(place));
        Ok(place)
    }

    /// Whether files take more than the capacity with `size` bytes more.
    pub(super) fn exceeds(&self, size: u64) -> bool {
        self.used().checked_add(size).is_none_or(|after| after > self.capacity)
    }

    /// Whether `size` bytes fit beside what frames need: what packs have besides goes when it can,
    /// and is not a reason to refuse one.
    pub(super) fn would_fit(&self, size: u64) -> bool {
        let least = self.used() - self.packs.unused();
        least.checked_add(size).is_some_and(|after| after <= self.capacity)
    }

    /// Whether the record at `place` is that of the frame `id`.
    pub(super) fn is_at(&self, id: CheckpointId, place: Place) -> bool {
        self.frames.get(&id).is_some_and(|frame| frame.home == Home::Packed(place))
    }

    /// The frames that were copied lie where their copies are; says which. Those that have gone
    /// meanwhile leave their copies unused.
    pub(super) fn switch(&mut self, moves: &[Move]) -> Vec<(FrameName, FrameStart, Option<Place>)> {
        let mut moved = Vec::with_capacity(moves.len());
        for copied in moves {
            let Move { name, start, from, to } = *copied;
            self.packs.copied(to);
            match self.frames.get_mut(&name.id) {
                Some(frame) if frame.is_movable(from) && self.packs.is_synced(to) => {
                    (frame.home, frame.listed, frame.start) = (Home::Packed(to), true, None);
                    self.packs.moving(from.pack);
                    self.packs.release(from);
                    moved.push((name, start, Some(to)));
                }
                _ => self.packs.release(to),
            }
        }
        moved
    }

    /// The copies are not used.
    pub(super) fn cancel(&mut self, moves: &[Move]) {
        for copied in moves {
            self.packs.copied(copied.to);
            self.packs.release(copied.to);
        }
    }

    /// The smallest spare that is large enough, else the largest: what it lacks is appended.
    fn best_spare(&self, size: u64) -> Option<(u64, SlotFile)> {
        if size == 0 {
            return None;
        }
        let enough = self.spares.range((size, SlotFile(0))..).next();
        enough.or_else(|| self.spares.last()).copied()
    }

    fn take_spare(&mut self, size: u64, slot: SlotFile) {
        let taken = self.spares.remove(&(size, slot));
        debug_assert!(taken);
        self.idle -= size;
    }

    fn new_slot(&mut self) -> SlotFile {
        self.slots += 1;
        SlotFile(self.slots)
    }

    /// Gives idle files up, spares first and the largest of them first, until what is idle takes at
    /// most `most` bytes.
    fn shrink(&mut self, most: u64) -> Vec<SlotFile> {
        let mut gone = Vec::new();
        while self.idle > most {
            if let Some(&(size, slot)) = self.spares.last() {
                self.take_spare(size, slot);
                gone.push(slot);
            } else if let Some((_, size, slot)) = self.resting.pop() {
                self.idle -= size;
                gone.push(slot);
            } else {
                debug_assert!(false, "{} idle bytes belong to no file", self.idle);
                break;
            }
        }
        gone
    }

    /// Gives every idle file up: the medium is full, or the tier closes.
    pub(super) fn surrender(&mut self) -> Vec<SlotFile> {
        self.shrink(0)
    }

    /// The frame of a `reserve` is completely written, and begins with these bytes.
    pub(super) fn stored(&mut self, id: CheckpointId, start: FrameStart) {
        let frame = self.frames.get_mut(&id);
        debug_assert!(frame.as_ref().is_some_and(|frame| frame.state == FrameState::Writing));
        if let Some(frame) = frame {
            (frame.state, frame.start) = (FrameState::Stored, Some(start));
        }
    }

    /// The frame of a `reserve` could not be written, and its file is gone.
    pub(super) fn abandon(&mut self, id: CheckpointId) {
        self.forget(id);
    }

    fn forget(&mut self, id: CheckpointId) -> Option<Frame> {
        let frame = self.frames.remove(&id)?;
        self.used -= frame.size;
        if let Home::Packed(place) = frame.home {
            self.packs.release(place);
        }
        Some(frame)
    }

    /// Where the frame is, for reading `wanted` bytes from byte `skip` on.
    pub(super) fn borrow(
        &self,
        id: CheckpointId,
        skip: u64,
        wanted: u64,
    ) -> Result<BorrowedFrame, FrameRefusal> {
        let frame = self.frames.get(&id).ok_or(FrameRefusal::Unknown)?;
        match frame.state {
            FrameState::Writing => return Err(FrameRefusal::StillWritten),
            FrameState::Leaving => return Err(FrameRefusal::Unknown),
            FrameState::Stored => {}
        }
        if skip.checked_add(wanted).is_none_or(|end| end > frame.bytes) {
            return Err(FrameRefusal::TooShort { held: frame.bytes });
        }
        Ok(BorrowedFrame { file: frame.file(id), _reader: Arc::clone(&frame.readers) })
    }

    /// Begins to delete a frame. `Remove` ends with `left` or `stays`, `Rest` with `rested` or
    /// `stays`.
    pub(super) fn remove(&mut self, id: CheckpointId) -> Result<Removal, FrameRefusal> {
        let frame = self.frames.get_mut(&id).ok_or(FrameRefusal::Unknown)?;
        match frame.state {
            FrameState::Writing => return Err(FrameRefusal::StillWritten),
            FrameState::Leaving => return Err(FrameRefusal::Unknown),
            FrameState::Stored => {}
        }
        // A reader that is late keeps its file: it must not see the next frame in it.
        let read = Arc::strong_count(&frame.readers) > 1;
        match frame.home {
            // What is read in a pack stays as it is.
            Home::Packed(place) => {
                frame.state = FrameState::Leaving;
                Ok(Removal::Unpack(place))
            }
            _ if read || frame.size == 0 => {
                frame.state = FrameState::Leaving;
                Ok(Removal::Remove(frame.file(id)))
            }
            Home::Slot(slot) => {
                let size = frame.size;
                self.forget(id);
                self.add_spare(size, slot);
                Ok(Removal::Kept)
            }
            Home::Published => {
                frame.state = FrameState::Leaving;
                let name = FrameName { id, bytes: frame.bytes };
                Ok(Removal::Rest(name, self.new_slot()))
            }
        }
    }

    fn add_spare(&mut self, size: u64, slot: SlotFile) {
        self.spares.insert((size, slot));
        self.idle += size;
        debug_assert!(self.used + self.idle <= self.peak);
    }

    /// The file of a `Remove` is gone.
    pub(super) fn left(&mut self, id: CheckpointId) {
        self.forget(id);
    }

    /// The file of a `Rest` has become the slot.
    pub(super) fn rested(&mut self, id: CheckpointId, slot: SlotFile) {
        if let Some(frame) = self.forget(id) {
            self.resting.push((self.syncs, frame.size, slot));
            self.idle += frame.size;
        }
    }

    /// A delete failed: the frame is still there, and the manifest may say that it is not.
    pub(super) fn stays(&mut self, id: CheckpointId) {
        if let Some(frame) = self.frames.get_mut(&id) {
            (frame.state, frame.listed) = (FrameState::Stored, false);
        }
    }

    /// Every frame that a sync has to make durable.
    pub(super) fn pending(&self) -> Vec<UnsyncedFrame> {
        let pending = |(&id, frame): (&CheckpointId, &Frame)| match (frame.home, frame.state) {
            (Home::Slot(slot), FrameState::Stored) => Some(UnsyncedFrame {
                name: FrameName { id, bytes: frame.bytes },
                slot,
                put: frame.put,
                suspect: frame.suspect,
            }),
            _ => None,
        };
        self.frames.iter().filter_map(pending).collect()
    }

    /// Whether a frame is still the one that was synced, so that it may get its durable name.
    pub(super) fn may_publish(&self, pending: &UnsyncedFrame) -> bool {
        let frame = self.frames.get(&pending.name.id);
        frame.is_some_and(|frame| frame.put == pending.put && frame.state == FrameState::Stored)
    }

    /// A frame has its durable name.
    pub(super) fn published(&mut self, pending: &UnsyncedFrame) {
        if let Some(frame) = self.frames.get_mut(&pending.name.id) {
            frame.home = Home::Published;
        }
    }

    /// The sync of a frame failed.
    pub(super) fn suspect(&mut self, pending: &UnsyncedFrame) {
        if let Some(frame) = self.frames.get_mut(&pending.name.id)
            && frame.put == pending.put
        {
            frame.suspect = true;
        }
    }

    /// The directory is about to be synced: call `wake` with this number when it was.
    pub(super) fn begin_directory_sync(&mut self) -> u64 {
        self.syncs += 1;
        self.syncs
    }

    /// Slots that were renamed before that sync of the directory began become spares.
    pub(super) fn wake(&mut self, sync: u64) {
        for (_, size, slot) in self.resting.extract_if(.., |&mut (syncs, ..)| syncs < sync) {
            self.spares.insert((size, slot));
        }
    }

    /// Every complete frame, by id.
    pub(super) fn list(&self) -> Vec<Stored> {
        let complete = |frame: &Frame| frame.state == FrameState::Stored;
        self.frames
            .iter()
            .filter(|(_, frame)| complete(frame))
            .map(|(&id, frame)| Stored { id, bytes: frame.bytes })
            .collect()
    }
}

impl Frame {
    /// Whether it is durable, or packed, and the manifest does not list it.
    fn awaits_listing(&self) -> bool {
        let slot = matches!(self.home, Home::Slot(_));
        !slot && self.state == FrameState::Stored && !self.listed
    }

    /// Whether it is complete and lies at this place.
    fn is_movable(&self, from: Place) -> bool {
        self.home == Home::Packed(from) && self.state == FrameState::Stored
    }

    fn file(&self, id: CheckpointId) -> File {
        match self.home {
            Home::Slot(slot) => File::Slot(slot),
            Home::Published => File::Frame(FrameName { id, bytes: self.bytes }),
            Home::Packed(place) => File::Pack(place),
        }
    }
}
