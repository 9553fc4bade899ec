//! Packs of small frames: records are appended to one file after the other, through the page cache,
//! and moved together where most of a file is not in use any more.
//!
//! Invariants:
//! - Records are written one after the other: whoever holds the pack that is being filled finds all
//!   of its bytes written.
//! - A frame is moved by a copy of its record, and lies where the copy is from the moment on that
//!   the copy is as durable as the record was.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{MutexGuard, PoisonError};

use unspool_core::{CheckpointId, Failure};

use crate::disk::fault::{self, Stop};
use crate::disk::manifest::{self, Listing};
use crate::disk::medium::{Mode, read_all, write_all};
use crate::disk::names::{FrameName, PackFile};
use crate::disk::options::DiskOptions;
use crate::disk::record::{self, ALIGNMENT, Found, LONGEST, Place};
use crate::disk::recovery::read_pack;
use crate::disk::table::{self, FrameTable, Move, file_size};
use crate::disk::{Disk, Kind};
use crate::error::TierError;

/// The most packs whose frames are moved in one call, besides those of which a sync failed.
const MOVED: usize = 4;

/// What a person should know of a tier whose other frames go past the page cache.
pub(super) const NOTE: &str =
    "Small frames lie together in packs, which go through the page cache.";

/// The books of a tier with these options.
pub(super) fn table(options: &DiskOptions) -> FrameTable {
    let capacity = options.capacity.unwrap_or(u64::MAX);
    FrameTable::new(capacity, options.packed_up_to.min(LONGEST))
}

/// The record of a frame that is to be packed; `None` when it is to have a file of its own.
pub(super) fn pack(id: CheckpointId, parts: &[&[u8]], longest: u64) -> Option<Vec<u8>> {
    let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
    if bytes > longest.min(LONGEST) {
        return None;
    }
    let record = record::encode(id, parts);
    let saves = file_size(bytes).is_some_and(|size| (record.len() as u64) < size);
    saves.then_some(record)
}

/// Why a record cannot be believed.
#[derive(Debug)]
struct Damage(Place);

impl std::error::Error for Damage {}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Place { offset, length, .. } = self.0;
        write!(f, "its record, {length} bytes from byte {offset} on, is damaged")
    }
}

/// Whether a read stopped because a record is damaged.
pub(super) fn is_damage(stop: &Stop) -> bool {
    stop.cause.get_ref().is_some_and(|cause| cause.is::<Damage>())
}

/// The error of a read that found a damaged record in the pack at `path`.
pub(super) fn damaged(id: CheckpointId, path: &Path, stop: Stop) -> TierError {
    let location = format!("{}, frame {}", path.display(), id.0);
    TierError::new(Failure::Corrupt, "get", location, stop.cause.to_string()).with_advice(
        "Something else changed the file, or the medium did: bring it back from a copy.",
    )
}

impl Disk {
    /// The pack that is being filled, if it is open.
    pub(super) fn filling(&self) -> MutexGuard<'_, Option<(PackFile, File)>> {
        self.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends the record of a new frame to a pack.
    pub(super) fn put_packed(
        &self,
        id: CheckpointId,
        parts: &[&[u8]],
        mut record: Vec<u8>,
    ) -> Result<(), TierError> {
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let length = record.len() as u32;
        let grows = self.table().packs.growth(length);
        self.make_room_for(grows);
        loop {
            let mut filling = self.filling();
            let reserved = self.table().reserve_packed(id, bytes, length);
            let place =
                reserved.map_err(|refusal| self.refused("put", id, Some(bytes), refusal))?;
            record::seal(&mut record, self.tag, place.pack, place.offset);
            let Err(cause) = self.append(&mut filling, place, &record) else {
                self.table().stored(id, manifest::start_of(parts));
                return Ok(());
            };
            self.table().abandon(id);
            // A pack that cannot grow any more may be at fault: a new one is tried.
            if place.offset == 0 && !(fault::is_full(&cause) && self.make_room()) {
                self.remove_empty_packs();
                let path = self.path(table::File::Pack(place));
                return Err(fault::stopped("put", &path, bytes, cause.into(), Failure::Permanent));
            }
        }
    }

    /// Writes records to where they belong, in a new pack or after those that are there. After an
    /// error nothing more is written to that pack.
    fn append(
        &self,
        filling: &mut Option<(PackFile, File)>,
        place: Place,
        records: &[u8],
    ) -> io::Result<()> {
        let written = self.open_pack(filling, place).and_then(|file| {
            write_all(&*self.carrier.medium, file, u64::from(place.offset), records)
        });
        if written.is_err() {
            *filling = None;
            self.table().packs.seal(place.pack);
        }
        written
    }

    fn open_pack<'a>(
        &self,
        filling: &'a mut Option<(PackFile, File)>,
        place: Place,
    ) -> io::Result<&'a File> {
        if filling.as_ref().is_none_or(|(pack, _)| *pack != place.pack) {
            let path = self.path(table::File::Pack(place));
            let created = self.carrier.medium.open(&path, Mode::create(self.permissions()));
            let file = created.inspect_err(|_| {
                // What is there is not ours to remove.
                self.table().packs.disown(place.pack);
            })?;
            *filling = Some((place.pack, file));
        }
        match filling {
            Some((_, file)) => Ok(file),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Reads a frame from its pack. Its record is checked as a whole.
    pub(super) fn read_packed(
        &self,
        id: CheckpointId,
        path: &Path,
        place: Place,
        skip: u64,
        parts: &mut [&mut [u8]],
    ) -> Result<(), Stop> {
        let medium = &*self.carrier.medium;
        let file = medium.open(path, Mode::READ)?;
        let mut record = vec![0; place.length as usize];
        let held = read_all(medium, &file, u64::from(place.offset), &mut record)?;
        let found = record::check(&record[..held], self.tag, place.pack, place.offset);
        let frame = found.filter(|found| found.id == id).and_then(|_| record::decode(&record));
        // The table has compared the length of the frame with what is wanted.
        let mut rest = frame.as_deref().and_then(|frame| frame.get(skip as usize..));
        for part in parts {
            let split = rest.and_then(|rest| rest.split_at_checked(part.len()));
            let Some((mine, later)) = split else {
                return Err(io::Error::other(Damage(place)).into());
            };
            part.copy_from_slice(mine);
            rest = Some(later);
        }
        if rest.is_some() { Ok(()) } else { Err(io::Error::other(Damage(place)).into()) }
    }

    /// For a reader: looks up where the writer of the directory has moved frames.
    pub(super) fn follow(&self, file: table::File) {
        if self.kind == Kind::ReadOnly
            && matches!(file, table::File::Pack(_))
            && let Ok(Some(listing)) = Listing::read(&self.dir, &*self.carrier.medium)
        {
            self.table().follow(&listing);
        }
    }

    /// Syncs the packs that have grown. A failure is that of the frames in them.
    pub(super) fn sync_packs(&self) -> Result<(), TierError> {
        // While no record is being written.
        let unsynced = {
            let _filling = self.filling();
            self.table().packs.unsynced()
        };
        let mut failed = Ok(());
        for (pack, len) in unsynced {
            let path = self.dir.join(self.tag.pack(pack));
            let medium = &*self.carrier.medium;
            let synced = medium.open(&path, Mode::WRITE).and_then(|file| medium.sync_file(&file));
            // One whose last frame was deleted meanwhile has gone.
            let known = self.table().packs.synced(pack, len, synced.is_ok());
            if let Err(cause) = synced
                && known
            {
                failed = Err(fault::error("sync", &path, cause, Failure::Missing));
            }
        }
        failed
    }

    /// The error of a sync that leaves frames in a pack which an earlier sync has failed for.
    pub(super) fn suspect_pack(&self) -> Option<TierError> {
        let path = self.dir.join(self.tag.pack(self.table().packs.suspect()?));
        let reason = "an earlier sync of this pack failed, and its frames could not all be moved";
        let location = path.display().to_string();
        let error = TierError::new(Failure::Io, "sync", location, reason);
        Some(error.with_advice("Free space, or delete the frames in it and put them again."))
    }

    /// Packs whose frames the next sync is to move.
    pub(super) fn worth_moving(&self) -> Vec<PackFile> {
        self.table().packs.worth_moving(MOVED)
    }

    /// A frame of the pack was deleted.
    pub(super) fn left_pack(&self, pack: PackFile) {
        if self.kind == Kind::Ephemeral && self.table().packs.is_sparse(pack) {
            self.compact(&[pack]);
        }
        self.remove_empty_packs();
    }

    /// Moves frames together where `size` more bytes go beyond the capacity because of what packs
    /// have that is not in use.
    pub(super) fn make_room_for(&self, size: u64) {
        let packs = {
            let table = self.table();
            let exceeds = table.exceeds(size) && table.would_fit(size);
            if exceeds { table.packs.wasteful(MOVED) } else { Vec::new() }
        };
        match self.kind {
            _ if packs.is_empty() => {}
            // What it cannot do now is done by a later call.
            Kind::Durable => drop(self.make_durable(&packs)),
            Kind::Ephemeral => self.compact(&packs),
            Kind::ReadOnly => {}
        }
    }

    /// Moves the frames of packs of an ephemeral tier. Where that fails they stay.
    fn compact(&self, packs: &[PackFile]) {
        for &pack in packs {
            let moves = self.copy_out(pack).unwrap_or_default();
            let mut table = self.table();
            // Nothing of it is to survive a crash.
            if let Some(last) = moves.last() {
                table.packs.synced(last.to.pack, last.to.end(), true);
            }
            drop(table.switch(&moves));
            table.packs.settled();
        }
        self.remove_empty_packs();
    }

    /// Copies the frames of a pack to the one that is being filled, or to a new one; says which.
    ///
    /// # Errors
    /// When the pack cannot be read or the copies cannot be written: nothing has changed then.
    pub(super) fn copy_out(&self, pack: PackFile) -> io::Result<Vec<Move>> {
        let mut filling = self.filling();
        let copied = self.copy_records(&mut filling, pack);
        if copied.is_err() {
            self.table().packs.leave(pack);
        }
        copied
    }

    fn copy_records(
        &self,
        filling: &mut Option<(PackFile, File)>,
        pack: PackFile,
    ) -> io::Result<Vec<Move>> {
        let (_, bytes) = read_pack(&*self.carrier.medium, &self.dir.join(self.tag.pack(pack)))?;
        let mut found = record::scan(&bytes, self.tag, pack);
        let length = |found: &[Found]| found.iter().map(|found| found.place.length).sum::<u32>();
        let to = {
            let mut table = self.table();
            found.retain(|found| table.is_at(found.id, found.place));
            if table.packs.live(pack) > u64::from(length(&found)) {
                table.packs.leave(pack);
            }
            if found.is_empty() {
                return Ok(Vec::new());
            }
            table.packs.seal(pack);
            table.packs.reserve_copies(length(&found))
        };
        let mut copies = Vec::with_capacity(to.length as usize);
        let mut moves = Vec::with_capacity(found.len());
        for Found { id, bytes: frame, place: from } in found {
            let record = &bytes[from.offset as usize..][..from.length as usize];
            let offset = to.offset + copies.len() as u32;
            debug_assert!((offset as usize).is_multiple_of(ALIGNMENT));
            let at = copies.len();
            copies.extend_from_slice(record);
            record::seal(&mut copies[at..], self.tag, to.pack, offset);
            let frame_bytes = record::decode(record).unwrap_or_default();
            let start = manifest::start_of(&[&frame_bytes]);
            let name = FrameName { id, bytes: frame };
            let to = Place { offset, length: from.length, ..to };
            moves.push(Move { name, start, from, to });
        }
        let written = self.append(filling, to, &copies);
        if let Err(cause) = written {
            let mut table = self.table();
            table.packs.copied(to);
            table.packs.release(to);
            return Err(cause);
        }
        Ok(moves)
    }

    /// Removes packs with nothing in use. What cannot be removed now is tried again.
    pub(super) fn remove_empty_packs(&self) {
        let empty = self.table().packs.empty();
        for pack in empty {
            match self.carrier.medium.remove(&self.dir.join(self.tag.pack(pack))) {
                Err(cause) if !fault::is_absent(&cause) => {}
                _ => self.table().packs.gone(pack),
            }
        }
    }
}
