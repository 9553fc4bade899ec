//! The disk tier: one file per frame in a directory.
//!
//! Invariants:
//! - The table says which file belongs to which frame. Its lock is not held while bytes move.
//! - A file is written only while no frame, no reader and no durable name stands for it.
//! - Durable: a name `frame-*` is given to a file only after the file was synced, and a file that
//!   had such a name is written again only after the directory was synced. So whatever a crash
//!   leaves under such a name is a whole frame.

mod cache;
mod carrier;
mod fault;
mod home;
mod medium;
mod names;
mod options;
mod pieces;
mod probe;
mod staging;
mod table;
mod uring;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use unspool_core::{CheckpointId, Failure, TierKind};

use crate::error::TierError;
use crate::tier::{Description, Stored, Tier};

use carrier::Carrier;
use fault::Stop;
use home::Home;
use medium::{Medium, Mode, System};
use names::{FrameName, Slot};
use table::{Pending, Refusal, Removal, Room, Table};

pub use options::{DiskIo, DiskOptions};

/// Frames as files in a directory of a local file system. See the module for its invariants.
///
/// Dropping it does what [`Disk::close`] does, in silence; in a forked child it does nothing.
#[derive(Debug)]
pub struct Disk {
    options: DiskOptions,
    home: Home,
    carrier: Carrier,
    notes: Vec<String>,
    table: Mutex<Table>,
    /// Held while a sync runs: one at a time.
    syncing: Mutex<()>,
    /// Whether the tier is open; held for reading by every call, so that closing waits for them.
    open: RwLock<bool>,
    /// The process that opened it.
    process: u32,
}

impl Disk {
    /// Opens the tier in `options.dir`, which is created when it does not exist.
    ///
    /// Ephemeral: directories that dead processes left next to the new one are removed first, which
    /// may take seconds when they are large. Durable: frames of an earlier process are listed.
    ///
    /// # Errors
    /// When the directory cannot be created, written or locked, when another process uses it, and
    /// when `options.io` names a way that does not work there.
    pub fn open(options: DiskOptions) -> Result<Disk, TierError> {
        Disk::open_on(options, Arc::new(System))
    }

    fn open_on(options: DiskOptions, medium: Arc<dyn Medium>) -> Result<Disk, TierError> {
        let mut home = match options.durable {
            true => Home::durable(&options.dir)?,
            false => Home::ephemeral(&options.dir)?,
        };
        let mut table = Table::new(options.capacity.unwrap_or(u64::MAX));
        let mut notes = std::mem::take(&mut home.notes);
        if options.durable {
            let failed = |cause| fault::error("open", &home.dir, cause, Failure::Permanent);
            notes.extend(adopt(&home, &*medium, &mut table).map_err(failed)?);
        }
        let choice = probe::choose(options.io, &home.dir, medium).inspect_err(|_| {
            if !options.durable {
                // The first error says more than one about what it leaves behind.
                let _ = home.remove();
            }
        })?;
        notes.insert(0, choice.note);
        Ok(Disk {
            options,
            home,
            carrier: choice.carrier,
            notes,
            table: Mutex::new(table),
            syncing: Mutex::default(),
            open: RwLock::new(true),
            process: std::process::id(),
        })
    }

    /// Ends the tier: later calls fail. Ephemeral: everything that it has on the disk is removed.
    /// Durable: everything that was put is made durable. Calls that are under way end before.
    /// Closing a closed tier does nothing.
    ///
    /// Removing files takes as long as the file system needs, with many large ones seconds.
    ///
    /// # Errors
    /// When the medium fails, and in a process that did not open the tier.
    pub fn close(&self) -> Result<(), TierError> {
        self.own("close")?;
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *open, false) {
            return Ok(());
        }
        if self.options.durable {
            let synced = self.make_durable();
            let surplus = self.table().surrender();
            self.drop_slots(&surplus);
            self.home.leave();
            return synced;
        }
        self.home
            .remove()
            .map_err(|cause| fault::error("close", &self.home.dir, cause, Failure::Permanent))
    }

    /// Makes every frame durable that was put before.
    fn make_durable(&self) -> Result<(), TierError> {
        let _turn = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut failed = None;
        let pending = self.table().pending();
        for frame in &pending {
            match self.sync_frame(frame) {
                Ok(()) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let sync = self.table().begin_directory_sync();
        let medium = &self.carrier.medium;
        medium
            .sync_dir(&self.home.dir)
            .map_err(|cause| fault::error("sync", &self.home.dir, cause, Failure::Permanent))?;
        self.table().wake(sync);
        failed.map_or(Ok(()), Err)
    }

    /// Syncs the file of a frame and gives it its durable name.
    fn sync_frame(&self, frame: &Pending) -> Result<(), TierError> {
        let path = self.path(frame.slot);
        if frame.suspect {
            let reason = "an earlier sync of this frame failed: what is on the medium is unknown";
            let location = path.display().to_string();
            return Err(TierError::new(Failure::Io, "sync", location, reason)
                .with_advice("Delete the frame and put it again."));
        }
        let medium = &self.carrier.medium;
        let mode = Mode { direct: false, write: true, create: false };
        let synced = medium.open(&path, mode).and_then(|file| medium.sync_file(&file));
        // Under the lock: the frame may have been deleted meanwhile, and its file be a new one's.
        let mut table = self.table();
        if !table.may_publish(frame) {
            return Ok(());
        }
        let renamed = synced.and_then(|()| medium.rename(&path, &self.path(frame.name)));
        match renamed {
            Ok(()) => table.published(frame),
            Err(_) => table.suspect(frame),
        }
        renamed.map_err(|cause| fault::error("sync", &path, cause, Failure::Missing))
    }

    /// Writes a new frame into its room and says how it went.
    fn fill(&self, room: &Room, parts: &[&[u8]]) -> Result<(), Stop> {
        let medium = &self.carrier.medium;
        let create = room.old_size.is_none();
        let mode = Mode { direct: self.carrier.manner.direct, write: true, create };
        let file = medium.open(&self.path(room.slot), mode)?;
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

    /// Removes every file that is kept for reuse; says whether there was any.
    fn make_room(&self) -> bool {
        let idle = self.table().surrender();
        self.drop_slots(&idle);
        !idle.is_empty()
    }

    /// Removes slots that belong to nobody. What cannot be removed now is removed with the
    /// directory or by the next opener, and is never used again.
    fn drop_slots(&self, slots: &[Slot]) {
        for &slot in slots {
            let _ = self.carrier.medium.remove(&self.path(slot));
        }
    }

    fn path(&self, name: impl ToString) -> PathBuf {
        self.home.dir.join(name.to_string())
    }

    /// The table, also after a panic elsewhere: each of its methods either completes or changes
    /// nothing.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails in a process that did not open the tier: a forked child has a copy of the table that
    /// knows nothing of what the parent does to the files.
    fn own(&self, operation: &'static str) -> Result<(), TierError> {
        let process = std::process::id();
        if process == self.process {
            return Ok(());
        }
        let location = self.home.dir.display().to_string();
        let reason = format!("process {process} uses a tier that process {} opened", self.process);
        Err(TierError::new(Failure::Permanent, operation, location, reason)
            .with_advice("Open a spool of its own in every process, after the fork."))
    }

    /// Every call begins here and keeps the guard until it ends.
    fn enter(&self, operation: &'static str) -> Result<RwLockReadGuard<'_, bool>, TierError> {
        self.own(operation)?;
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        if *open {
            return Ok(open);
        }
        let location = self.home.dir.display().to_string();
        Err(TierError::new(Failure::Permanent, operation, location, "the tier is closed")
            .with_advice("Open it again."))
    }

    fn refused(
        &self,
        operation: &'static str,
        id: CheckpointId,
        asked: Option<u64>,
        refusal: Refusal,
    ) -> TierError {
        let location = format!("{}, frame {}", self.home.dir.display(), id.0);
        let error = TierError::new(refusal.failure(), operation, location, refusal.to_string())
            .with_advice(refusal.advice());
        match asked {
            Some(asked) => error.with_progress(asked, 0),
            None => error,
        }
    }
}

/// Lists the frames that an earlier process made durable and removes what it left unfinished.
fn adopt(home: &Home, medium: &dyn Medium, table: &mut Table) -> io::Result<Vec<String>> {
    let mut notes = Vec::new();
    for entry in fs::read_dir(&home.dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if names::is_slot(name) {
            medium.remove(&entry.path())?;
        } else if let Some(frame) = FrameName::parse(name) {
            let size = entry.metadata()?.len();
            if size < frame.bytes || !table.adopt(frame) {
                notes.push(format!(
                    "{name} ({size} bytes) is cut off, or another file is named for the same id: \
                     it is left alone."
                ));
            }
        }
    }
    Ok(notes)
}

impl Tier for Disk {
    fn describe(&self) -> Description {
        Description {
            kind: TierKind::Disk,
            location: self.home.dir.display().to_string(),
            capacity: self.options.capacity.unwrap_or(u64::MAX),
            used: self.table().used(),
            alignment: table::BLOCK,
            durable: self.options.durable,
            notes: self.notes.clone(),
        }
    }

    fn put(&self, id: CheckpointId, _offset: u64, parts: &[&[u8]]) -> Result<(), TierError> {
        let _open = self.enter("put")?;
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let room = self.table().reserve(id, bytes);
        let room = room.map_err(|refusal| self.refused("put", id, Some(bytes), refusal))?;
        self.drop_slots(&room.surplus);
        let filled = self.fill(&room, parts);
        if filled.is_ok() {
            self.table().stored(id);
        } else {
            self.drop_slots(&[room.slot]);
            self.table().abandon(id);
        }
        let path = self.path(room.slot);
        filled.map_err(|stop| fault::stopped("put", &path, bytes, stop, Failure::Permanent))
    }

    fn get(&self, id: CheckpointId, skip: u64, parts: &mut [&mut [u8]]) -> Result<(), TierError> {
        let _open = self.enter("get")?;
        let wanted: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let mode = Mode { direct: self.carrier.manner.direct, write: false, create: false };
        let mut last = None;
        loop {
            let lent = self.table().lend(id, skip, wanted);
            let lent = lent.map_err(|refusal| self.refused("get", id, Some(wanted), refusal))?;
            let path = self.path(lent.file);
            let read = match self.carrier.medium.open(&path, mode) {
                // A sync may have given the file its durable name since the table was asked.
                Err(cause) if fault::is_absent(&cause) && last != Some(lent.file) => {
                    last = Some(lent.file);
                    continue;
                }
                Ok(_) if wanted == 0 => Ok(()),
                Ok(file) => self.carrier.read(&file, skip, parts),
                Err(cause) => Err(cause.into()),
            };
            return read
                .map_err(|stop| fault::stopped("get", &path, wanted, stop, Failure::Missing));
        }
    }

    fn delete(&self, id: CheckpointId) -> Result<(), TierError> {
        let _open = self.enter("delete")?;
        let removal = self.table().remove(id);
        let removal = removal.map_err(|refusal| self.refused("delete", id, None, refusal))?;
        let medium = &self.carrier.medium;
        let (path, done) = match removal {
            Removal::Kept => return Ok(()),
            Removal::Remove(file) => {
                let path = self.path(file);
                let done = medium.remove(&path);
                (path, done)
            }
            Removal::Rest(name, slot) => {
                let path = self.path(name);
                let done = medium.rename(&path, &self.path(slot));
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

    fn list(&self) -> Result<Vec<Stored>, TierError> {
        let _open = self.enter("list")?;
        Ok(self.table().list())
    }

    fn sync(&self) -> Result<(), TierError> {
        let _open = self.enter("sync")?;
        if self.options.durable { self.make_durable() } else { Ok(()) }
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
