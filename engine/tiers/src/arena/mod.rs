//! A memory arena: one contiguous buffer with a table of the frames in it, in main memory or in
//! that of a device.
//!
//! Invariants:
//! - The table says which byte ranges belong to whom; ranges never overlap.
//! - A range is written by one [`WriteGuard`] or read by any number of [`ReadGuard`]s, never both,
//!   and its entry cannot be forgotten while a guard is alive. This is checked when a guard is
//!   made, so a wrong placement is an error and never corruption.
//! - The locks guard the table and the memory's owner and are held for bookkeeping only, never
//!   while bytes are copied. One more is held while main memory is taken.
//! - The bytes of an entry may be those of an array that the application has given away. Its range
//!   is its own all the same, and what the range holds is nobody's.
//! - Main memory is taken when bytes are first borrowed. Where the machine has no more, the arena
//!   ends at what it has until [`Arena::may_grow`] says that there is more, and the owner agrees.
//! - Bytes with unfinished work of a device on them are borrowed in main memory only when it is
//!   done, and in a device's memory together with the fences that new work has to wait for. Where
//!   no fence could be had, they are borrowed when the device was seen to have nothing left to do.

mod copies;
mod given;
mod guard;
mod memory;
mod table;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use unspool_core::{CheckpointId, Failure, TierKind};
use unspool_cuda::{
    DeviceArena, DeviceArenaOptions, MemoryLeft, PinnedArena, PinnedOptions, memory_left,
};

use crate::error::TierError;
use crate::gpu::{Gpu, device_failed};
use crate::tier::{Description, Stored, Tier};

pub use given::{GivenArray, LeavingArray, Owner};
use guard::{GuardBytes, New};
pub use guard::{ReadGuard, WriteGuard};
use memory::{ArenaMemory, Plain};
use table::{ArenaTable, BorrowedBytes, Misuse};

/// A memory arena. See the module for its invariants. Clones name the same one.
#[derive(Clone, Debug)]
pub struct Arena(Arc<ArenaInner>);

/// How long an arena that found no memory waits before it looks again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The least for which an arena grows again: less would be gone at once.
const WORTH_IT: u64 = 64 << 20;

/// Why an arena of main memory is smaller than it may be, and since when.
#[derive(Clone, Debug)]
struct Shortage {
    why: String,
    seen: Instant,
}

#[derive(Debug)]
struct ArenaInner {
    kind: TierKind,
    reserved: u64,
    is_of_device: bool,
    /// Held while main memory is taken.
    growing: Mutex<()>,
    /// Where main memory ends: `reserved`, unless the machine had no more. It changes under the
    /// lock of `shortage`.
    end: AtomicU64,
    /// Set when `end` is less than it may be.
    shortage: Mutex<Option<Shortage>>,
    table: Mutex<ArenaTable>,
    /// `None` after the arena has ended.
    memory: Mutex<Option<Arc<ArenaMemory>>>,
}

impl Arena {
    /// Reserves `capacity` bytes of address space, page aligned. The machine gives the memory
    /// itself when a page is first written, so this is quick whatever the size.
    ///
    /// # Errors
    /// When this machine does not have that much at all.
    pub fn new(kind: TierKind, capacity: u64) -> Result<Arena, TierError> {
        Ok(Arena::of(kind, capacity, ArenaMemory::Plain(Plain::reserve(kind, capacity)?)))
    }

    /// An arena in main memory that is registered with `gpu` in the background, so that copies to
    /// and from it run at full speed. It can be used at once.
    ///
    /// # Errors
    /// When this machine does not have that much at all, or the device's driver refuses.
    pub fn pinned(
        gpu: &Arc<Gpu>,
        capacity: u64,
        options: &PinnedOptions,
    ) -> Result<Arena, TierError> {
        let pinned = PinnedArena::new(gpu.context(), capacity, options);
        let pinned = pinned.map_err(|cause| device_failed("reserve", "host memory", &cause))?;
        Ok(Arena::of(TierKind::Host, capacity, ArenaMemory::Pinned(pinned, Arc::clone(gpu))))
    }

    /// An arena in the memory of `gpu`, which is mapped in the background. Its capacity is less
    /// than asked for when the options allow that and the device has less.
    ///
    /// # Errors
    /// When the device has less memory and the options do not allow less, or the driver refuses.
    pub fn on_device(
        gpu: &Arc<Gpu>,
        capacity: u64,
        options: &DeviceArenaOptions,
    ) -> Result<Arena, TierError> {
        let arena = DeviceArena::new(gpu.context(), capacity, options);
        let arena = arena.map_err(|cause| device_failed("reserve", "device memory", &cause))?;
        let capacity = arena.reserved();
        Ok(Arena::of(TierKind::Device, capacity, ArenaMemory::Device(arena, Arc::clone(gpu))))
    }

    fn of(kind: TierKind, capacity: u64, memory: ArenaMemory) -> Arena {
        Arena(Arc::new(ArenaInner {
            kind,
            reserved: capacity,
            is_of_device: matches!(memory, ArenaMemory::Device(..)),
            growing: Mutex::default(),
            end: AtomicU64::new(capacity),
            shortage: Mutex::default(),
            table: Mutex::new(ArenaTable::new(capacity)),
            memory: Mutex::new(Some(Arc::new(memory))),
        }))
    }

    /// What it stands for: `Device` or `Host`.
    #[must_use]
    pub fn kind(&self) -> TierKind {
        self.0.kind
    }

    /// Its size in bytes. That of a device's memory becomes less when another process takes memory
    /// while the arena is mapped, and that of main memory when the machine has no more; what it
    /// holds already stays.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        if !self.0.is_of_device {
            return self.0.end.load(Ordering::Acquire);
        }
        self.memory().map_or(self.0.reserved, |memory| memory.capacity(self.0.reserved))
    }

    /// Why main memory ends before the size that it was made with, as a sentence; `None` when it
    /// does not.
    #[must_use]
    pub fn shortage(&self) -> Option<String> {
        self.shortage_now().as_ref().map(|shortage| shortage.why.clone())
    }

    /// Whether main memory that ended early may go on to the size that it was made with: the
    /// machine has memory again. It is looked for once a second. The owner says by
    /// [`grow_again`](Self::grow_again) that it knows.
    #[must_use]
    pub fn may_grow(&self) -> bool {
        let mut shortage = self.shortage_now();
        let Some(shortage) = shortage.as_mut() else { return false };
        if shortage.seen.elapsed() < LOOK_AGAIN {
            return false;
        }
        shortage.seen = Instant::now();
        let missing = self.0.reserved.saturating_sub(self.capacity());
        memory_left().spare() >= missing.min(WORTH_IT)
    }

    /// Main memory has the size again that it was made with; it is taken as before.
    pub fn grow_again(&self) {
        let mut shortage = self.shortage_now();
        *shortage = None;
        self.0.end.store(self.0.reserved, Ordering::Release);
    }

    /// The size in bytes that it was made with.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.0.reserved
    }

    /// The device that its memory belongs to, if it does.
    #[must_use]
    pub fn gpu(&self) -> Option<Arc<Gpu>> {
        self.memory().and_then(|memory| memory.gpu().cloned())
    }

    /// Whether its memory is a device's.
    #[must_use]
    pub fn is_of_device(&self) -> bool {
        self.0.is_of_device
    }

    /// Takes all of its main memory now, and makes it present. Without this it is taken when it is
    /// first used, and pinned memory is prepared ahead of that by as much again.
    ///
    /// # Errors
    /// When the machine has less left. The arena keeps what it got, and ends there.
    pub fn prepare(&self) -> Result<(), TierError> {
        let Some(memory) = self.memory() else { return Ok(()) };
        match self.take(&memory, self.0.reserved, ArenaMemory::fill) {
            true => Ok(()),
            false => Err(self.short("prepare", format!("{} memory", self.0.kind), self.0.reserved)),
        }
    }

    /// Says that no more than the first `bytes` will be used, as far as is known: pinned memory
    /// after them is not made ready ahead of use.
    pub fn want(&self, bytes: u64) {
        if let Some(memory) = self.memory() {
            memory.want(bytes);
        }
    }

    /// Says that the first `bytes` will be used: pinned memory is made ready for it in the
    /// background. Returns at once.
    pub fn expect(&self, bytes: u64) {
        if let Some(memory) = self.memory() {
            memory.expect(bytes.min(self.capacity()));
        }
    }

    /// Bytes from the start that a device copies to and from at full speed: all, unless it is
    /// pinned memory, which is registered ahead of its use.
    #[must_use]
    pub fn ready(&self) -> u64 {
        self.memory().map_or(0, |memory| memory.ready(memory.capacity(self.0.reserved)))
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
    pub fn create(&self, id: CheckpointId, offset: u64, len: u64) -> Result<WriteGuard, TierError> {
        self.borrow_for_writing("create", id, offset, len)
    }

    /// Makes an entry for `id` whose bytes are those of an array of this device that was given
    /// away, in place of those from `offset` on. Commit the guard when a fence was left after what
    /// writes the array. When the entry goes, the array waits for [`let_go`](Self::let_go).
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn adopt(
        &self,
        id: CheckpointId,
        offset: u64,
        given: GivenArray,
    ) -> Result<WriteGuard, TierError> {
        let (len, capacity) = (given.span().len(), self.capacity());
        let fits = offset.checked_add(len).is_some_and(|end| end <= capacity);
        let borrowed = match fits {
            true => self.table().create_given(id, offset, given),
            false => Err(Misuse::OutOfRange { offset, len, capacity }),
        };
        let borrowed =
            borrowed.map_err(|misuse| self.error("adopt", id, misuse).with_progress(len, 0))?;
        self.lease("adopt", id, borrowed).map(WriteGuard::new).inspect_err(|_| {
            self.table().abandon(id, Vec::new());
        })
    }

    /// Gives back the arrays whose entries are gone, in stream order and without a wait. What
    /// cannot be given back so yet stays until the next call.
    ///
    /// May run code of the application: call it without any lock.
    pub fn let_go(&self) {
        let leaving = self.table().take_leaving();
        if leaving.is_empty() {
            return;
        }
        let late: Vec<LeavingArray> =
            leaving.into_iter().filter_map(LeavingArray::let_go).collect();
        self.table().keep_leaving(late);
    }

    /// As [`let_go`](Self::let_go), for the last time: waits for what is unfinished, at most
    /// `limit` for each piece of it, and leaks what is not done then.
    pub fn let_go_within(&self, limit: Duration) {
        let leaving = self.table().take_leaving();
        leaving.into_iter().for_each(|array| array.let_go_within(limit));
    }

    /// Keeps an array that no entry has, for [`let_go`](Self::let_go).
    pub fn leave(&self, array: LeavingArray) {
        self.table().keep_leaving(vec![array]);
    }

    /// Borrows the bytes of `id` for reading. Any number of guards may read at the same time.
    ///
    /// # Errors
    /// When `id` has no entry, or one that is still being written.
    pub fn read(&self, id: CheckpointId) -> Result<ReadGuard, TierError> {
        self.borrow_for_reading("read", id)
    }

    /// Removes the entry of `id`: its room may be given to another.
    ///
    /// # Errors
    /// When `id` has no entry, and while a guard for it is alive.
    pub fn forget(&self, id: CheckpointId) -> Result<(), TierError> {
        self.table().forget(id).map_err(|misuse| self.error("forget", id, misuse))
    }

    fn borrow_for_writing(
        &self,
        operation: &'static str,
        id: CheckpointId,
        offset: u64,
        len: u64,
    ) -> Result<WriteGuard, TierError> {
        let borrowed = self.once_idle(|table| table.create(id, offset, len));
        let borrowed =
            borrowed.map_err(|misuse| self.error(operation, id, misuse).with_progress(len, 0))?;
        self.lease(operation, id, borrowed).map(WriteGuard::new).inspect_err(|_| {
            self.table().abandon(id, Vec::new());
        })
    }

    fn borrow_for_reading(
        &self,
        operation: &'static str,
        id: CheckpointId,
    ) -> Result<ReadGuard, TierError> {
        let borrowed = self.table().begin_read(id);
        let borrowed = borrowed.map_err(|misuse| self.error(operation, id, misuse))?;
        self.lease(operation, id, borrowed).map(ReadGuard::new).inspect_err(|_| {
            self.table().end_read(id, Vec::new());
        })
    }

    /// The bytes of an entry, ready to be used: those of main memory when nothing on a device
    /// uses them any more.
    fn lease(
        &self,
        operation: &'static str,
        id: CheckpointId,
        borrowed: BorrowedBytes,
    ) -> Result<New, TierError> {
        let BorrowedBytes { offset, len, mut after, given } = borrowed;
        let gone = || self.error(operation, id, Misuse::Unknown);
        let memory = self.memory().ok_or_else(gone)?;
        if let Some(given) = given {
            let (place, given) = (GuardBytes::Device(given.span().clone()), Some(given));
            return Ok(New { arena: self.clone(), memory, id, offset, len, place, given, after });
        }
        let failed = |cause| device_failed(operation, self.location(id), &cause);
        let end = offset + len;
        if !self.is_there(&memory, end) && !self.take(&memory, end, |memory| memory.grow(end)) {
            return Err(self.short(operation, self.location(id), len));
        }
        memory.prepare(offset + len).map_err(failed)?;
        let place = match memory.span(offset, len).map_err(failed)? {
            Some(span) => GuardBytes::Device(span),
            None => {
                let limit = memory.gpu().map(|gpu| gpu.limit()).unwrap_or_default();
                after.drain(..).try_for_each(|fence| fence.wait(limit)).map_err(failed)?;
                memory.saw_host(offset, len, operation);
                GuardBytes::Host(memory.host(offset, len).ok_or_else(gone)?)
            }
        };
        let given = None;
        Ok(New { arena: self.clone(), memory, id, offset, len, place, given, after })
    }

    /// Ends the arena: its entries are gone, its memory goes back to the system, and nothing can be
    /// put into it any more. For an owner that keeps it only for its figures. Memory of a device,
    /// and memory that it copies from or to, goes back when what was enqueued is done.
    ///
    /// # Errors
    /// While a guard is alive; nothing has changed then.
    pub fn retire(&self) -> Result<(), TierError> {
        self.table().retire().map_err(|(id, misuse)| self.error("retire", id, misuse))?;
        drop(self.0.memory.lock().unwrap_or_else(PoisonError::into_inner).take());
        Ok(())
    }

    /// Calls the table. Where bytes are in the way of which it was not known when work on them is
    /// done, waits until the device has nothing left to do, within its limit, frees them, and
    /// calls again: a driver that could not say so once may say it later.
    fn once_idle<T>(
        &self,
        call: impl Fn(&mut ArenaTable) -> Result<T, Misuse>,
    ) -> Result<T, Misuse> {
        let (first, seen) = {
            let mut table = self.table();
            (call(&mut table), table.stuck_so_far())
        };
        let (Err(Misuse::Stuck), Some(gpu)) = (&first, self.gpu()) else { return first };
        if gpu.context().synchronize_within(gpu.limit()).is_err() {
            return first;
        }
        let mut table = self.table();
        table.unstick(seen);
        call(&mut table)
    }

    /// Whether the memory of the bytes below `end` was taken, and is part of the arena.
    fn is_there(&self, memory: &ArenaMemory, end: u64) -> bool {
        let _still = self.shortage_now();
        memory.grown().is_none_or(|grown| end <= grown.min(self.0.end.load(Ordering::Acquire)))
    }

    /// Takes the memory of the bytes below `end` by `grow`. Returns false when the arena has ended
    /// before them, or does so now.
    fn take(
        &self,
        memory: &ArenaMemory,
        end: u64,
        grow: impl FnOnce(&ArenaMemory) -> Result<(), MemoryLeft>,
    ) -> bool {
        let _growing = self.0.growing.lock().unwrap_or_else(PoisonError::into_inner);
        if end > self.capacity() {
            return self.0.is_of_device;
        }
        let Err(left) = grow(memory) else { return true };
        let mut shortage = self.shortage_now();
        let grown = memory.grown().unwrap_or(end);
        self.0.end.store(grown.min(self.0.reserved), Ordering::Release);
        *shortage = Some(Shortage { why: left.shortage(), seen: Instant::now() });
        false
    }

    /// The error for bytes that the machine had no memory for.
    fn short(&self, operation: &'static str, location: String, len: u64) -> TierError {
        let why = self.shortage().unwrap_or_default();
        let error = TierError::new(Failure::NoSpace, operation, location, why);
        error.with_progress(len, 0).with_advice(
            "Free memory, or give checkpoints room elsewhere: discard some, or add a slower tier.",
        )
    }

    fn shortage_now(&self) -> MutexGuard<'_, Option<Shortage>> {
        self.0.shortage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self) -> Option<Arc<ArenaMemory>> {
        self.0.memory.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The table, also after a panic elsewhere: each of its methods either completes or changes
    /// nothing, so it is never seen half changed.
    fn table(&self) -> MutexGuard<'_, ArenaTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, operation: &'static str, id: CheckpointId, misuse: Misuse) -> TierError {
        TierError::new(misuse.failure(), operation, self.location(id), misuse.to_string())
    }

    fn location(&self, id: CheckpointId) -> String {
        format!("{} memory, frame {}", self.0.kind, id.0)
    }
}

impl Drop for ArenaInner {
    /// Arrays that nobody has let go of go as at the end of a spool, without a wait.
    fn drop(&mut self) {
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        table.remove_all();
        table.take_leaving().into_iter().for_each(|array| array.let_go_within(Duration::ZERO));
    }
}

impl Tier for Arena {
    fn describe(&self) -> Description {
        let memory = self.memory();
        let ended = "memory that was given back".to_owned();
        Description {
            kind: self.0.kind,
            location: memory.as_ref().map_or(ended, |memory| memory.location()),
            capacity: self.capacity(),
            used: self.used(),
            alignment: memory.as_ref().map_or(1, |memory| memory.alignment()),
            durable: false,
            notes: memory.map(|memory| memory.notes()).unwrap_or_default(),
        }
    }

    fn put(&self, id: CheckpointId, offset: u64, parts: &[&[u8]]) -> Result<(), TierError> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        let mut guard = self.borrow_for_writing("put", id, offset, len)?;
        let written = copies::write(&mut guard, parts);
        written.map_err(|cause| device_failed("put", self.location(id), &cause))?;
        guard.commit();
        Ok(())
    }

    fn get(&self, id: CheckpointId, skip: u64, parts: &mut [&mut [u8]]) -> Result<(), TierError> {
        let guard = self.borrow_for_reading("get", id)?;
        let wanted: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let held = guard.len();
        if skip.checked_add(wanted).is_none_or(|end| end > held) {
            let misuse = Misuse::TooShort { held, skip, wanted };
            return Err(self.error("get", id, misuse).with_progress(wanted, 0));
        }
        let read = copies::read(&guard, skip, parts);
        read.map_err(|cause| device_failed("get", self.location(id), &cause))
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
}

#[cfg(test)]
mod tests;
