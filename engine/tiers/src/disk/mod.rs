//! The disk tier: one file per frame in a directory, and packs of many small frames.
//!
//! Invariants:
//! - The table says which file belongs to which frame. Its lock is not held while bytes move.
//! - A file is written only while no frame, no reader and no durable name stands for it.
//! - Durable: a name `frame-*` is given to a file only after the file was synced, and a file that
//!   had such a name is written again only after the directory was synced. So whatever a crash
//!   leaves under such a name is a whole frame.
//! - A pack only grows. A record in it is checked on every read, and what the manifest of a durable
//!   tier does not list is not a frame after a crash.
//! - Durable: a sync returns when the manifest lists what it made durable, and a frame is removed
//!   after the manifest says so.
//! - Nothing is written or removed but files whose names or contents prove that they are ours.

mod cache;
mod carrier;
mod fault;
mod home;
mod manifest;
mod medium;
mod names;
mod options;
mod pack;
mod packing;
mod pieces;
mod probe;
mod record;
mod recovery;
mod staging;
mod table;
mod uring;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use unspool_core::{CheckpointId, Failure, TierKind};

use crate::error::TierError;
use crate::tier::{Description, Stored, Tier};

use carrier::Carrier;
use fault::Stop;
use home::Home;
use manifest::{Listed, Listing, Manifest, START};
use medium::{Medium, Mode, PRIVATE, System};
use names::{FrameName, PackFile, SlotFile, Tag};
use recovery::Visitor;
use table::{FrameRefusal, FrameRoom, FrameTable, Lost, Move, Removal, UnsyncedFrame};

pub use manifest::FrameStart;
pub use options::{DiskIo, DiskMode, DiskOptions};
pub use recovery::{LostFrame, Recovery};

/// Frames as files in a directory of a local file system, small ones together in one file. See the
/// module for its invariants.
///
/// Dropping it does what [`Disk::close`] does, in silence; in a forked child it does nothing.
#[derive(Debug)]
pub struct Disk {
    options: DiskOptions,
    kind: Kind,
    dir: PathBuf,
    /// In the names of its slots and packs.
    tag: Tag,
    carrier: Carrier,
    notes: Vec<String>,
    table: Mutex<FrameTable>,
    /// The manifest of a durable tier that is open. Taken before the table.
    manifest: Mutex<Option<Manifest>>,
    /// The pack that gets new records, when it is open. Held while records are written, and taken
    /// before the table.
    filling: Mutex<Option<(PackFile, File)>>,
    /// What `take_recovery` gives.
    recovery: Mutex<Recovery>,
    /// Held while a sync runs: one at a time.
    syncing: Mutex<()>,
    /// Held for reading by every call, so that closing waits for them.
    phase: RwLock<Phase>,
    /// The process that opened it.
    process: u32,
}

/// What becomes of the files of a tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// They are removed at the end.
    Ephemeral,
    /// They stay.
    Durable,
    /// They belong to somebody else.
    ReadOnly,
}

impl Kind {
    fn of(options: &DiskOptions) -> Kind {
        match (options.mode, options.durable) {
            (DiskMode::ReadOnly, _) => Kind::ReadOnly,
            (DiskMode::ReadWrite, true) => Kind::Durable,
            (DiskMode::ReadWrite, false) => Kind::Ephemeral,
        }
    }
}

/// Whether a tier takes calls.
#[derive(Debug)]
enum Phase {
    /// It does, and owns its directory by this lock, if it does.
    Open(Option<File>),
    Closed,
}

impl Disk {
    /// Opens the tier in `options.dir`, which is created when it does not exist and the directory
    /// that is to contain it does.
    ///
    /// Ephemeral: directories that dead processes left next to the new one are removed first, which
    /// may take seconds when they are large. Durable: frames of an earlier process are listed.
    ///
    /// # Errors
    /// When the directory cannot be created, written or locked, when another process uses it, when
    /// a file that is not ours has the name of the lock or of the manifest, and when `options.io`
    /// names a way that does not work there.
    pub fn open(options: DiskOptions) -> Result<Disk, TierError> {
        Disk::open_on(options, Arc::new(System))
    }

    fn open_on(options: DiskOptions, medium: Arc<dyn Medium>) -> Result<Disk, TierError> {
        match Kind::of(&options) {
            Kind::Ephemeral => Disk::ephemeral(options, medium),
            Kind::Durable => Disk::durable(options, medium),
            Kind::ReadOnly => Disk::read_only(options, medium),
        }
    }

    fn ephemeral(options: DiskOptions, medium: Arc<dyn Medium>) -> Result<Disk, TierError> {
        let (home, tag) = home::ephemeral(&options.dir)?;
        let choice = probe::choose(options.io, &home.dir, &tag.probe(), medium);
        let choice = choice.inspect_err(|_| {
            // The first error says more than one about what is left of the directory.
            let _ = home::remove(&home.dir, tag);
        })?;
        let table = packing::table(&options);
        Ok(Disk::of(options, home, tag, choice, table))
    }

    fn durable(options: DiskOptions, medium: Arc<dyn Medium>) -> Result<Disk, TierError> {
        let mut home = home::durable(&options.dir, options.permissions)?;
        let mut table = packing::table(&options);
        let dir = home.dir.clone();
        let failed = |path: &Path, cause| fault::error("open", path, cause, Failure::Permanent);
        let visitor = Visitor::Writer;
        let salvage = |found: &mut Listing| recovery::salvage(&dir, visitor, &*medium, found);
        let packs = || Ok(recovery::packs_in(&dir)?.into_iter().map(|(_, pack)| pack).collect());
        let (manifest, listing) =
            Manifest::open(&dir, &*medium, options.permissions, packs, salvage)
                .map_err(|cause| failed(&dir.join(names::MANIFEST), cause))?;
        let tag = listing.tag.unwrap_or_else(Tag::new);
        let listing = || listing.clone();
        let found = recovery::recover(&dir, (visitor, tag), &*medium, &mut table, listing);
        let (recovery, notes) = found.map_err(|cause| failed(&dir, cause))?;
        home.notes.extend(notes);
        let choice = probe::choose(options.io, &dir, &tag.probe(), medium)?;
        let disk = Disk::of(options, home, tag, choice, table);
        *disk.manifest() = Some(manifest);
        *disk.recovery() = recovery;
        disk.remove_empty_packs();
        Ok(disk)
    }

    fn read_only(options: DiskOptions, medium: Arc<dyn Medium>) -> Result<Disk, TierError> {
        let mut home = home::read_only(&options.dir)?;
        let mut table = packing::table(&options);
        let dir = home.dir.clone();
        let visitor = Visitor::Reader;
        // Where there is none, frames are found all the same.
        let listing = || {
            let mut listing = Listing::read(&dir, &*medium).ok().flatten().unwrap_or_default();
            let _ = recovery::salvage(&dir, visitor, &*medium, &mut listing);
            listing
        };
        let tag = listing().tag.unwrap_or_else(Tag::new);
        let found = recovery::recover(&dir, (visitor, tag), &*medium, &mut table, listing);
        let found = found.map_err(|cause| fault::error("open", &dir, cause, Failure::Permanent));
        let (recovery, notes) = found?;
        home.notes.extend(notes);
        let choice = probe::buffered(medium, "as whether anything else works cannot be tried");
        let disk = Disk::of(options, home, tag, choice, table);
        *disk.recovery() = recovery;
        Ok(disk)
    }

    fn of(
        options: DiskOptions,
        home: Home,
        tag: Tag,
        choice: probe::Choice,
        table: FrameTable,
    ) -> Disk {
        let Home { dir, lock, mut notes } = home;
        notes.insert(0, choice.note);
        if choice.carrier.manner.direct && options.packed_up_to > 0 {
            notes.insert(1, packing::NOTE.to_owned());
        }
        Disk {
            kind: Kind::of(&options),
            options,
            dir,
            tag,
            carrier: choice.carrier,
            notes,
            table: Mutex::new(table),
            manifest: Mutex::default(),
            filling: Mutex::default(),
            recovery: Mutex::default(),
            syncing: Mutex::default(),
            phase: RwLock::new(Phase::Open(lock)),
            process: std::process::id(),
        }
    }

    /// Ends the tier: later calls fail. Ephemeral: everything that it has on the disk is removed.
    /// Durable: everything that was put is made durable. Calls that are under way end before.
    /// Closing a closed tier does nothing. A closed tier has no file of its directory open.
    ///
    /// Removing files takes as long as the file system needs, with many large ones seconds.
    ///
    /// # Errors
    /// When the medium fails, and in a process that did not open the tier.
    pub fn close(&self) -> Result<(), TierError> {
        self.own("close")?;
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        let Phase::Open(lock) = std::mem::replace(&mut *phase, Phase::Closed) else {
            return Ok(());
        };
        let ended = match self.kind {
            Kind::Durable => {
                let synced = self.make_durable(&self.worth_moving());
                let surplus = self.table().surrender();
                self.drop_slots(&surplus);
                *self.manifest() = None;
                synced
            }
            Kind::Ephemeral => home::remove(&self.dir, self.tag)
                .map_err(|cause| fault::error("close", &self.dir, cause, Failure::Permanent)),
            Kind::ReadOnly => Ok(()),
        };
        *self.filling() = None;
        if let Some(lock) = lock {
            // A forked child may have a copy of the file, which would keep the lock. Where files
            // have no locks, nothing is to be let go of.
            let _ = lock.unlock();
        }
        ended
    }

    /// What the manifest says of the frames of an earlier process. Given once.
    pub fn take_recovery(&self) -> Recovery {
        std::mem::take(&mut *self.recovery())
    }

    /// Forgets a file that is named like a frame and is not one, which is found out by reading it.
    /// It stays where it is, and takes no room of this tier. Says its path, if there is one. The
    /// record of a packed frame is ours by its checksum and is not such a file.
    pub fn disown(&self, id: CheckpointId) -> Option<PathBuf> {
        let file = self.file(id)?;
        self.table().disown(id).then_some(file)
    }

    /// Removes what there is of a frame that an earlier process made durable and that cannot be
    /// had any more, so that later openings do not miss it. Opened for reading, the tier forgets it
    /// and leaves it where it is.
    ///
    /// # Errors
    /// When its file cannot be removed, or the manifest not be written; and in a process that did
    /// not open the tier.
    pub fn forget(&self, id: CheckpointId) -> Result<(), TierError> {
        let _open = self.enter("delete")?;
        let Some(lost) = self.table().lost(id) else { return self.remove_frame(id) };
        if self.kind == Kind::ReadOnly {
            self.table().forget_lost(id);
            return Ok(());
        }
        let failed = |path: &Path, cause| fault::error("delete", path, cause, Failure::Permanent);
        if let Some(manifest) = self.manifest().as_mut() {
            manifest.remove(id, None);
            let written = manifest.write(&*self.carrier.medium);
            written.map_err(|cause| failed(&self.dir.join(names::MANIFEST), cause))?;
        }
        if let Lost::File(name) = lost {
            let path = self.path(table::File::Frame(name));
            match self.carrier.medium.remove(&path) {
                Err(cause) if !fault::is_absent(&cause) => return Err(failed(&path, cause)),
                _ => {}
            }
        }
        self.table().forget_lost(id);
        Ok(())
    }

    /// The file of a frame, which others may be in as well.
    #[must_use]
    pub fn file(&self, id: CheckpointId) -> Option<PathBuf> {
        let found = self.table().borrow(id, 0, 0).ok()?;
        Some(self.path(found.file))
    }

    /// Makes every frame durable that was put before. Frames of `sparse` packs are moved.
    fn make_durable(&self, sparse: &[PackFile]) -> Result<(), TierError> {
        let _turn = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut failed = None;
        let pending = self.table().pending();
        for frame in &pending {
            match self.sync_frame(frame) {
                Ok(()) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let moves = sparse.iter().flat_map(|&pack| self.copy_out(pack).unwrap_or_default());
        let moves: Vec<Move> = moves.collect();
        failed = failed.or(self.sync_packs().err());
        let sync = self.table().begin_directory_sync();
        let synced = self.carrier.medium.sync_dir(&self.dir);
        if let Err(cause) = synced {
            self.table().cancel(&moves);
            return Err(fault::error("sync", &self.dir, cause, Failure::Permanent));
        }
        self.table().wake(sync);
        self.list_in_manifest(&moves).map_err(|cause| {
            let path = self.dir.join(names::MANIFEST);
            fault::error("sync", &path, cause, Failure::Permanent)
        })?;
        self.table().packs.settled();
        self.remove_empty_packs();
        failed.or_else(|| self.suspect_pack()).map_or(Ok(()), Err)
    }

    /// Lists durable frames in the manifest, and where frames were moved, and makes that durable.
    fn list_in_manifest(&self, moves: &[Move]) -> io::Result<()> {
        let unread = self.table().unread();
        for name in unread {
            // A frame whose file cannot be read is listed when it can.
            if let Ok(start) = self.read_start(name) {
                self.table().set_start(name, start);
            }
        }
        let medium = &*self.carrier.medium;
        let mut guard = self.manifest();
        let Some(manifest) = guard.as_mut() else { return Ok(()) };
        // With the manifest held: the removal of one of these frames is written after this.
        let mut table = self.table();
        let mut listed = table.list_in_manifest();
        listed.extend(table.switch(moves));
        drop(table);
        for (name, start, place) in listed {
            manifest.list(name.id, Listed { bytes: name.bytes, start, place });
        }
        manifest.write(medium)?;
        let Some((file, bytes)) = manifest.unsynced() else { return Ok(()) };
        drop(guard);
        let synced = medium.sync_file(&file);
        if let Some(manifest) = self.manifest().as_mut() {
            match synced {
                Ok(()) => manifest.synced(bytes),
                Err(_) => manifest.suspect(),
            }
        }
        synced
    }

    /// The first bytes of a durable frame.
    fn read_start(&self, name: FrameName) -> Result<FrameStart, Stop> {
        let file =
            self.carrier.medium.open(&self.path(table::File::Frame(name)), self.reading())?;
        let mut start = [0; START];
        let held = START.min(usize::try_from(name.bytes).unwrap_or(START));
        self.carrier.read(&file, 0, &mut [&mut start[..held]])?;
        Ok(start)
    }

    /// Writes into the manifest that a frame is about to be removed: a listed one, and one whose
    /// bytes stay in a pack, where they would prove it to whoever opens the directory after a crash
    /// in the middle of a record. What cannot be written now is written by the next sync: the
    /// removal itself may be what makes room for it.
    fn delist(&self, id: CheckpointId, stays_in: Option<PackFile>) {
        if stays_in.is_none() && !self.table().is_listed(id) {
            return;
        }
        if let Some(manifest) = self.manifest().as_mut() {
            manifest.remove(id, stays_in);
            let _ = manifest.write(&*self.carrier.medium);
        }
    }

    /// Syncs the file of a frame and gives it its durable name.
    fn sync_frame(&self, frame: &UnsyncedFrame) -> Result<(), TierError> {
        let path = self.path(table::File::Slot(frame.slot));
        if frame.suspect {
            let reason = "an earlier sync of this frame failed: what is on the medium is unknown";
            let location = path.display().to_string();
            return Err(TierError::new(Failure::Io, "sync", location, reason)
                .with_advice("Delete the frame and put it again."));
        }
        let medium = &self.carrier.medium;
        let synced = medium.open(&path, Mode::WRITE).and_then(|file| medium.sync_file(&file));
        // Under the lock: the frame may have been deleted meanwhile, and its file be a new one's.
        let mut table = self.table();
        if !table.may_publish(frame) {
            return Ok(());
        }
        let target = self.path(table::File::Frame(frame.name));
        if fs::symlink_metadata(&target).is_ok() {
            let cause = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(fault::error("sync", &target, cause, Failure::Permanent));
        }
        let renamed = synced.and_then(|()| medium.rename(&path, &target));
        match renamed {
            Ok(()) => table.published(frame),
            Err(_) => table.suspect(frame),
        }
        renamed.map_err(|cause| fault::error("sync", &path, cause, Failure::Missing))
    }

    /// Writes a new frame into its room and says how it went.
    fn fill(&self, room: &FrameRoom, parts: &[&[u8]]) -> Result<(), Stop> {
        let medium = &self.carrier.medium;
        let create = room.old_size.is_none().then_some(self.permissions());
        let mode = Mode { direct: self.carrier.manner.direct, write: true, create };
        let file = medium.open(&self.path(table::File::Slot(room.slot)), mode)?;
        if room.old_size.is_some_and(|old| old > room.size) {
            medium.set_len(&file, room.size)?;
        }
        let written = self.carrier.write(&file, parts);
        match written {
            Err(stop) if fault::is_full(&stop.cause) && self.make_room() => {
                self.carrier.write(&file, parts)
            }
            result => result,
        }
    }

    /// Removes a frame, after the manifest says so.
    fn remove_frame(&self, id: CheckpointId) -> Result<(), TierError> {
        let removal = self.table().remove(id);
        let removal = removal.map_err(|refusal| self.refused("delete", id, None, refusal))?;
        if self.kind == Kind::ReadOnly {
            self.table().left(id);
            return Ok(());
        }
        let stays_in = match removal {
            Removal::Unpack(place) => Some(place.pack),
            _ => None,
        };
        self.delist(id, stays_in);
        let medium = &self.carrier.medium;
        let (path, done) = match removal {
            Removal::Kept => return Ok(()),
            Removal::Unpack(place) => {
                self.table().left(id);
                self.left_pack(place.pack);
                return Ok(());
            }
            Removal::Remove(file) => {
                let path = self.path(file);
                let done = medium.remove(&path);
                (path, done)
            }
            Removal::Rest(name, slot) => {
                let path = self.path(table::File::Frame(name));
                let done = medium.rename(&path, &self.path(table::File::Slot(slot)));
                (path, done)
            }
        };
        match (&done, removal) {
            (Ok(()), Removal::Rest(_, slot)) => self.table().rested(id, slot),
            (Ok(()), _) => self.table().left(id),
            (Err(cause), _) if fault::is_absent(cause) => self.table().left(id),
            (Err(_), _) => self.table().stays(id),
        }
        done.map_err(|cause| fault::error("delete", &path, cause, Failure::Missing))
    }

    /// Those of new files.
    fn permissions(&self) -> u32 {
        if self.kind == Kind::Ephemeral { PRIVATE } else { self.options.permissions }
    }

    /// Removes every file that is kept for reuse; says whether there was any.
    fn make_room(&self) -> bool {
        let idle = self.table().surrender();
        self.drop_slots(&idle);
        !idle.is_empty()
    }

    /// Removes slots that belong to nobody. What cannot be removed now is removed with the
    /// directory or by the next opener, and is never used again.
    fn drop_slots(&self, slots: &[SlotFile]) {
        for &slot in slots {
            let _ = self.carrier.medium.remove(&self.path(table::File::Slot(slot)));
        }
    }

    fn path(&self, file: table::File) -> PathBuf {
        self.dir.join(match file {
            table::File::Slot(slot) => self.tag.slot(slot),
            table::File::Frame(name) => name.to_string(),
            table::File::Pack(place) => self.tag.pack(place.pack),
        })
    }

    /// How the file of a frame is opened for reading.
    fn reading(&self) -> Mode {
        Mode { direct: self.carrier.manner.direct, ..Mode::READ }
    }

    fn recovery(&self) -> MutexGuard<'_, Recovery> {
        self.recovery.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn manifest(&self) -> MutexGuard<'_, Option<Manifest>> {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table, also after a panic elsewhere: each of its methods either completes or changes
    /// nothing.
    fn table(&self) -> MutexGuard<'_, FrameTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails in a process that did not open the tier: a forked child has a copy of the table that
    /// knows nothing of what the parent does to the files.
    fn own(&self, operation: &'static str) -> Result<(), TierError> {
        let process = std::process::id();
        if process == self.process {
            return Ok(());
        }
        let location = self.dir.display().to_string();
        let reason = format!("process {process} uses a tier that process {} opened", self.process);
        Err(TierError::new(Failure::Permanent, operation, location, reason)
            .with_advice("Open a spool of its own in every process, after the fork."))
    }

    /// Every call begins here and keeps the guard until it ends.
    fn enter(&self, operation: &'static str) -> Result<RwLockReadGuard<'_, Phase>, TierError> {
        self.own(operation)?;
        let phase = self.phase.read().unwrap_or_else(PoisonError::into_inner);
        if matches!(*phase, Phase::Open(_)) {
            return Ok(phase);
        }
        let location = self.dir.display().to_string();
        Err(TierError::new(Failure::Permanent, operation, location, "the tier is closed")
            .with_advice("Open it again."))
    }

    /// Reads from the file of one frame.
    fn read_file(&self, path: &Path, skip: u64, parts: &mut [&mut [u8]]) -> Result<(), Stop> {
        let file = self.carrier.medium.open(path, self.reading())?;
        if parts.iter().all(|part| part.is_empty()) {
            return Ok(());
        }
        self.carrier.read(&file, skip, parts)?;
        self.check_name(path, &file)
    }

    /// Whether a file that was read by somebody who does not own it still has its name: its owner
    /// may have removed the frame and begun to write another one into it.
    fn check_name(&self, path: &Path, file: &File) -> Result<(), Stop> {
        if self.kind != Kind::ReadOnly || home::is_same(&fs::symlink_metadata(path)?, file) {
            return Ok(());
        }
        Err(io::Error::from(io::ErrorKind::NotFound).into())
    }

    fn refused(
        &self,
        operation: &'static str,
        id: CheckpointId,
        asked: Option<u64>,
        refusal: FrameRefusal,
    ) -> TierError {
        let location = format!("{}, frame {}", self.dir.display(), id.0);
        let error = TierError::new(refusal.failure(), operation, location, refusal.to_string())
            .with_advice(refusal.advice());
        match asked {
            Some(asked) => error.with_progress(asked, 0),
            None => error,
        }
    }
}

impl Tier for Disk {
    fn describe(&self) -> Description {
        Description {
            kind: TierKind::Disk,
            location: self.dir.display().to_string(),
            capacity: self.options.capacity.unwrap_or(u64::MAX),
            used: self.table().used(),
            alignment: table::BLOCK,
            durable: self.kind != Kind::Ephemeral,
            notes: self.notes.clone(),
        }
    }

    fn locate(&self, id: CheckpointId) -> String {
        self.file(id).unwrap_or_else(|| self.dir.clone()).display().to_string()
    }

    fn put(&self, id: CheckpointId, _offset: u64, parts: &[&[u8]]) -> Result<(), TierError> {
        let _open = self.enter("put")?;
        if self.kind == Kind::ReadOnly {
            let location = self.dir.display().to_string();
            let reason = "the directory was opened for reading";
            return Err(TierError::new(Failure::Permanent, "put", location, reason)
                .with_advice("Open it for writing, or choose another directory."));
        }
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if let Some(record) = packing::pack(id, parts, self.options.packed_up_to) {
            return self.put_packed(id, parts, record);
        }
        self.make_room_for(table::file_size(bytes).unwrap_or(u64::MAX));
        let room = self.table().reserve(id, bytes);
        let room = room.map_err(|refusal| self.refused("put", id, Some(bytes), refusal))?;
        self.drop_slots(&room.surplus);
        let filled = self.fill(&room, parts);
        if filled.is_ok() {
            self.table().stored(id, manifest::start_of(parts));
        } else {
            self.drop_slots(&[room.slot]);
            self.table().abandon(id);
        }
        let path = self.path(table::File::Slot(room.slot));
        filled.map_err(|stop| fault::stopped("put", &path, bytes, stop, Failure::Permanent))
    }

    fn get(&self, id: CheckpointId, skip: u64, parts: &mut [&mut [u8]]) -> Result<(), TierError> {
        let _open = self.enter("get")?;
        let wanted: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let mut last = None;
        loop {
            let found = self.table().borrow(id, skip, wanted);
            let found = found.map_err(|refusal| self.refused("get", id, Some(wanted), refusal))?;
            let path = self.path(found.file);
            let read = match found.file {
                table::File::Pack(place) => self.read_packed(id, &path, place, skip, parts),
                _ => self.read_file(&path, skip, parts),
            };
            match read {
                // Since the table was asked, a sync may have given the file its durable name, or
                // the frame may have been moved.
                Err(stop) if fault::is_absent(&stop.cause) && last != Some(found.file) => {
                    last = Some(found.file);
                    self.follow(found.file);
                }
                Err(stop) if packing::is_damage(&stop) => {
                    return Err(packing::damaged(id, &path, stop));
                }
                read => {
                    return read.map_err(|stop| {
                        fault::stopped("get", &path, wanted, stop, Failure::Missing)
                    });
                }
            }
        }
    }

    fn delete(&self, id: CheckpointId) -> Result<(), TierError> {
        let _open = self.enter("delete")?;
        self.remove_frame(id)
    }

    fn list(&self) -> Result<Vec<Stored>, TierError> {
        let _open = self.enter("list")?;
        Ok(self.table().list())
    }

    fn sync(&self) -> Result<(), TierError> {
        let _open = self.enter("sync")?;
        if self.kind != Kind::Durable {
            return Ok(());
        }
        self.make_durable(&self.worth_moving())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // In a forked child `close` refuses; the lock stays with the parent, as closing a copy of
        // its descriptor does not let go of it.
        let _ = self.close();
    }
}

#[cfg(test)]
mod tests;
