//! A memory arena: one contiguous buffer with a table of the frames in it.
//!
//! Invariants:
//! - The table says which byte ranges belong to whom; ranges never overlap.
//! - A range is written by one [`WriteGuard`] or read by any number of [`ReadGuard`]s, never both,
//!   and its entry cannot be forgotten while a guard is alive. This is checked when a guard is
//!   made, so a wrong placement is an error and never corruption.
//! - The one lock guards the table and is held for bookkeeping only, never while bytes are copied.

mod guard;
mod limit;
mod memory;
mod table;

use std::sync::{Mutex, MutexGuard, PoisonError};

use unspool_core::{CheckpointId, TierKind};

use crate::error::TierError;
use crate::tier::{Description, Stored, Tier};

pub use guard::{ReadGuard, WriteGuard};
use memory::Memory;
use table::{Misuse, Table};

/// A memory arena. See the module for its invariants.
#[derive(Debug)]
pub struct Arena {
    kind: TierKind,
    memory: Memory,
    table: Mutex<Table>,
}

impl Arena {
    /// Reserves `capacity` bytes of address space, page aligned. The machine gives the memory
    /// itself when a page is first written, so this is quick whatever the size.
    ///
    /// # Errors
    /// When this machine cannot hold that much besides what is in use already.
    pub fn new(kind: TierKind, capacity: u64) -> Result<Arena, TierError> {
        let memory = Memory::reserve(kind, capacity)?;
        Ok(Arena { kind, memory, table: Mutex::new(Table::new(capacity)) })
    }

    /// What it stands for: `Device` or `Host`.
    #[must_use]
    pub fn kind(&self) -> TierKind {
        self.kind
    }

    /// Its size in bytes.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.memory.len()
    }

    /// Bytes that belong to entries, complete or being written.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.table().used()
    }

    /// Makes an entry for `id` at `[offset, offset + len)` and lends its bytes for writing. Their
    /// content is unspecified at first. The entry can be read once the guard was committed; a
    /// guard that is dropped without that forgets the entry.
    ///
    /// # Errors
    /// When `id` has an entry, when the range overlaps another entry, and when it is out of range.
    pub fn create(
        &self,
        id: CheckpointId,
        offset: u64,
        len: u64,
    ) -> Result<WriteGuard<'_>, TierError> {
        self.lend_for_writing("create", id, offset, len)
    }

    /// Lends the bytes of `id` for reading. Any number of guards may read at the same time.
    ///
    /// # Errors
    /// When `id` has no entry, or one that is still being written.
    pub fn read(&self, id: CheckpointId) -> Result<ReadGuard<'_>, TierError> {
        self.lend_for_reading("read", id)
    }

    /// Removes the entry of `id`: its room may be given to another.
    ///
    /// # Errors
    /// When `id` has no entry, and while a guard for it is alive.
    pub fn forget(&self, id: CheckpointId) -> Result<(), TierError> {
        self.table().forget(id).map_err(|misuse| self.error("forget", id, misuse))
    }

    fn lend_for_writing(
        &self,
        operation: &'static str,
        id: CheckpointId,
        offset: u64,
        len: u64,
    ) -> Result<WriteGuard<'_>, TierError> {
        let created = self.table().create(id, offset, len);
        created.map_err(|misuse| self.error(operation, id, misuse).with_progress(len, 0))?;
        Ok(WriteGuard::new(self, id, self.memory.at(offset, len), len))
    }

    fn lend_for_reading(
        &self,
        operation: &'static str,
        id: CheckpointId,
    ) -> Result<ReadGuard<'_>, TierError> {
        let begun = self.table().begin_read(id);
        let (offset, len) = begun.map_err(|misuse| self.error(operation, id, misuse))?;
        Ok(ReadGuard::new(self, id, self.memory.at(offset, len), len))
    }

    /// Ends the arena: its entries are gone, its memory goes back to the system, and nothing can be
    /// put into it any more. For an owner that keeps it only for its figures.
    ///
    /// # Errors
    /// While a guard is alive; nothing has changed then.
    pub fn retire(&self) -> Result<(), TierError> {
        let mut table = self.table();
        table.retire().map_err(|(id, misuse)| self.error("retire", id, misuse))?;
        // SAFETY: no guard is alive, and the table, which is still locked, lends nothing any more.
        unsafe { self.memory.give_back() };
        Ok(())
    }

    /// The table, also after a panic elsewhere: each of its methods either completes or changes
    /// nothing, so it is never seen half changed.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, operation: &'static str, id: CheckpointId, misuse: Misuse) -> TierError {
        let location = format!("{} memory, frame {}", self.kind, id.0);
        TierError::new(misuse.failure(), operation, location, misuse.to_string())
    }
}

impl Tier for Arena {
    fn describe(&self) -> Description {
        Description {
            kind: self.kind,
            location: "memory".to_owned(),
            capacity: self.capacity(),
            used: self.used(),
            alignment: memory::PAGE,
            durable: false,
            notes: self.memory.notes().to_vec(),
        }
    }

    fn put(&self, id: CheckpointId, offset: u64, parts: &[&[u8]]) -> Result<(), TierError> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        let mut guard = self.lend_for_writing("put", id, offset, len)?;
        let mut rest: &mut [u8] = &mut guard;
        for part in parts {
            let (head, tail) = rest.split_at_mut(part.len());
            head.copy_from_slice(part);
            rest = tail;
        }
        guard.commit();
        Ok(())
    }

    fn get(&self, id: CheckpointId, skip: u64, parts: &mut [&mut [u8]]) -> Result<(), TierError> {
        let guard = self.lend_for_reading("get", id)?;
        let wanted: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let held = guard.len() as u64;
        if skip.checked_add(wanted).is_none_or(|end| end > held) {
            let misuse = Misuse::TooShort { held, skip, wanted };
            return Err(self.error("get", id, misuse).with_progress(wanted, 0));
        }
        let mut rest = &guard[skip as usize..];
        for part in parts {
            let (head, tail) = rest.split_at(part.len());
            part.copy_from_slice(head);
            rest = tail;
        }
        Ok(())
    }

    fn delete(&self, id: CheckpointId) -> Result<(), TierError> {
        self.table().forget(id).map_err(|misuse| self.error("delete", id, misuse))
    }

    fn list(&self) -> Result<Vec<Stored>, TierError> {
        Ok(self.table().list())
    }

    fn sync(&self) -> Result<(), TierError> {
        Ok(())
    }

    fn memory(&self) -> Option<&Arena> {
        Some(self)
    }
}

#[cfg(test)]
mod tests;
