//! The borrows of an arena's bytes.
//!
//! The guards keep raw pointers, not references: a reference stored in a guard would have to stay
//! valid for as long as the function that drops the guard runs, while the bytes are free for the
//! next owner as soon as the drop has told the table.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use unspool_core::CheckpointId;

use crate::arena::Arena;

/// The bytes of a new entry, for writing. Dropped without [`WriteGuard::commit`] it forgets the
/// entry.
#[must_use = "dropping the guard forgets the entry"]
pub struct WriteGuard<'a> {
    arena: &'a Arena,
    id: CheckpointId,
    start: NonNull<u8>,
    len: usize,
    bytes: PhantomData<&'a mut [u8]>,
}

// SAFETY: the guard is an exclusive borrow of bytes; it may be used from another thread just like
// the `&mut [u8]` that it stands for, and the arena behind it is `Sync`.
unsafe impl Send for WriteGuard<'_> {}
// SAFETY: a shared guard only gives out `&[u8]`.
unsafe impl Sync for WriteGuard<'_> {}

impl<'a> WriteGuard<'a> {
    /// The caller has marked `[start, start + len)` as being written by `id` in the arena's table.
    pub(super) fn new(arena: &'a Arena, id: CheckpointId, start: NonNull<u8>, len: u64) -> Self {
        WriteGuard { arena, id, start, len: len as usize, bytes: PhantomData }
    }

    /// Whose entry it is.
    #[must_use]
    pub fn id(&self) -> CheckpointId {
        self.id
    }

    /// The bytes are all there: the entry can be read from now on.
    pub fn commit(self) {
        self.arena.table().commit(self.id);
        // Nothing is left to release, so the drop that would forget the entry is left out.
        std::mem::forget(self);
    }
}

impl Deref for WriteGuard<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `new` was given a range inside the mapping, which lives as long as the arena
        // that is borrowed here; its bytes are initialised (zero pages at first). The table lends
        // the range to nobody else until this guard is gone.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for WriteGuard<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes this the only borrow through the guard.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.arena.table().abandon(self.id);
    }
}

impl fmt::Debug for WriteGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteGuard").field("id", &self.id).field("len", &self.len).finish()
    }
}

/// The bytes of a complete entry, for reading. The entry stays while the guard is alive.
#[must_use = "the bytes are only borrowed while the guard is alive"]
pub struct ReadGuard<'a> {
    arena: &'a Arena,
    id: CheckpointId,
    start: NonNull<u8>,
    len: usize,
    bytes: PhantomData<&'a [u8]>,
}

// SAFETY: the guard stands for a `&[u8]`, and the arena behind it is `Sync`.
unsafe impl Send for ReadGuard<'_> {}
// SAFETY: as above.
unsafe impl Sync for ReadGuard<'_> {}

impl<'a> ReadGuard<'a> {
    /// The caller has counted a reader of `id` in the arena's table.
    pub(super) fn new(arena: &'a Arena, id: CheckpointId, start: NonNull<u8>, len: u64) -> Self {
        ReadGuard { arena, id, start, len: len as usize, bytes: PhantomData }
    }

    /// Whose entry it is.
    #[must_use]
    pub fn id(&self) -> CheckpointId {
        self.id
    }
}

impl Deref for ReadGuard<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `new` was given a range inside the mapping, which lives as long as the arena
        // that is borrowed here. The table gives the range to no writer while it counts readers.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.arena.table().end_read(self.id);
    }
}

impl fmt::Debug for ReadGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadGuard").field("id", &self.id).field("len", &self.len).finish()
    }
}
