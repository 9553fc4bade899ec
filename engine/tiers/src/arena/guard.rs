//! The borrows of an arena's bytes.
//!
//! The guards keep raw pointers, not references: a reference stored in a guard would have to stay
//! valid for as long as the function that drops the guard runs, while the bytes are free for the
//! next owner as soon as the drop has updated the table.
//!
//! Bytes of main memory are borrowed only when nothing on a device uses them any more. Bytes of a
//! device are borrowed at once: whoever enqueues work on them makes his stream wait first
//! ([`WriteGuard::order`], [`ReadGuard::order`]) and records a fence after it.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use unspool_core::CheckpointId;
use unspool_cuda::{DeviceError, DeviceSpan, Fence, PinnedArena, Stream};

use crate::arena::Arena;
use crate::arena::given::GivenArray;
use crate::arena::memory::ArenaMemory;
use crate::error::TierError;
use crate::gpu::Gpu;

/// What both kinds of guards hold.
struct ArenaLease {
    arena: Arena,
    /// Keeps the bytes in place, also when the arena has ended.
    memory: Arc<ArenaMemory>,
    id: CheckpointId,
    offset: u64,
    len: usize,
    place: GuardBytes,
    /// The array of the application that has the bytes, where one was given.
    given: Option<GivenArray>,
    /// What work on a device's bytes has to come after.
    after: Vec<Fence>,
    /// After the work that was enqueued by the borrower.
    fences: Vec<Fence>,
}

/// Where the bytes are.
#[derive(Clone)]
pub(super) enum GuardBytes {
    Host(NonNull<u8>),
    Device(DeviceSpan),
}

impl ArenaLease {
    fn order(&self, stream: &Stream) -> Result<(), DeviceError> {
        self.after.iter().try_for_each(|fence| stream.wait_for(fence))
    }

    fn wait(&self, limit: Duration) -> Result<(), DeviceError> {
        self.after.iter().try_for_each(|fence| fence.wait(limit))
    }

    fn leave(&mut self, stream: &Stream) -> Result<Option<Fence>, DeviceError> {
        let Some(gpu) = self.memory.gpu() else { return Ok(None) };
        let fence = gpu.fence_or_wait(stream).inspect_err(|_| self.arena.table().stick(self.id))?;
        self.fences.extend(fence.clone());
        Ok(fence)
    }

    fn device(&self) -> Option<&DeviceSpan> {
        match &self.place {
            GuardBytes::Device(span) => Some(span),
            GuardBytes::Host(_) => None,
        }
    }

    fn memory(&self) -> Arc<dyn Any + Send + Sync> {
        match &self.given {
            Some(given) => Arc::clone(given.owner()),
            None => self.memory.clone(),
        }
    }

    fn pinned(&self) -> Option<(&PinnedArena, u64)> {
        match &*self.memory {
            ArenaMemory::Pinned(pinned, _) => Some((pinned, self.offset)),
            _ => None,
        }
    }
}

/// What [`Arena`] gives to a new guard.
pub(super) struct New {
    pub(super) arena: Arena,
    pub(super) memory: Arc<ArenaMemory>,
    pub(super) id: CheckpointId,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) place: GuardBytes,
    pub(super) given: Option<GivenArray>,
    pub(super) after: Vec<Fence>,
}

impl From<New> for ArenaLease {
    fn from(new: New) -> ArenaLease {
        let New { arena, memory, id, offset, len, place, given, after } = new;
        ArenaLease {
            arena,
            memory,
            id,
            offset,
            len: len as usize,
            place,
            given,
            after,
            fences: Vec::new(),
        }
    }
}

/// The bytes of a new entry, for writing. Dropped without [`WriteGuard::commit`] it forgets the
/// entry.
#[must_use = "dropping the guard forgets the entry"]
pub struct WriteGuard {
    /// `None` once it was committed.
    loan: Option<ArenaLease>,
    /// Why nobody knows when work on the bytes is done that may be under way: nobody else may write
    /// them.
    lost: Option<DeviceError>,
    bytes: PhantomData<*mut [u8]>,
}

// SAFETY: the guard is an exclusive borrow of bytes; it may be used from another thread just like
// the `&mut [u8]` that it stands for, and its arena is `Sync`.
unsafe impl Send for WriteGuard {}
// SAFETY: a shared guard only gives out `&[u8]`.
unsafe impl Sync for WriteGuard {}

impl WriteGuard {
    /// The caller has marked the bytes as being written by `new.id` in the arena's table.
    pub(super) fn new(new: New) -> Self {
        WriteGuard { loan: Some(new.into()), lost: None, bytes: PhantomData }
    }

    fn loan(&self) -> &ArenaLease {
        match &self.loan {
            Some(loan) => loan,
            None => unreachable!("only commit takes it, and that ends the guard"),
        }
    }

    /// Whose entry it is.
    #[must_use]
    pub fn id(&self) -> CheckpointId {
        self.loan().id
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.loan().len as u64
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, where they are in main memory.
    #[must_use]
    pub fn bytes(&mut self) -> Option<&mut [u8]> {
        let loan = self.loan();
        let GuardBytes::Host(start) = loan.place else { return None };
        // SAFETY: `new` was given a range inside the memory that the loan keeps; its bytes are
        // initialised (zero pages at first). The table lends the range to nobody else until this
        // guard is gone, and `&mut self` makes this the only borrow through the guard.
        Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), loan.len) })
    }

    /// The bytes, where they are a device's.
    #[must_use]
    pub fn device(&self) -> Option<&DeviceSpan> {
        self.loan().device()
    }

    /// The arena and the offset in it, where a device copies to and from it at full speed.
    #[must_use]
    pub fn pinned(&self) -> Option<(&PinnedArena, u64)> {
        self.loan().pinned()
    }

    /// The device that the memory belongs to, if it does.
    #[must_use]
    pub fn gpu(&self) -> Option<&Arc<Gpu>> {
        self.loan().memory.gpu()
    }

    /// What keeps the bytes in place after the guard is gone, for those who show them to others.
    #[must_use]
    pub fn memory(&self) -> Arc<dyn Any + Send + Sync> {
        self.loan().memory()
    }

    /// Makes `stream` wait for earlier work on the bytes. The host does not wait.
    ///
    /// # Errors
    /// When the driver refuses, and when nobody knows when work of this guard is done: what is
    /// enqueued afterwards could be overtaken by it.
    pub fn order(&self, stream: &Stream) -> Result<(), DeviceError> {
        self.lost.clone().map_or_else(|| self.loan().order(stream), Err)
    }

    /// Waits until earlier work on the bytes is done, at most `limit` for each piece of it.
    ///
    /// # Errors
    /// When such work failed, and when the limit has passed.
    pub fn wait(&self, limit: Duration) -> Result<(), DeviceError> {
        self.loan().wait(limit)
    }

    /// Work on the bytes was enqueued on `stream`: whoever gets them next comes after it. Returns a
    /// fence after that work, unless it is done.
    ///
    /// # Errors
    /// When it cannot be known when that work will be done. Others get the bytes only once the
    /// device was seen to have nothing left to do.
    pub fn leave(&mut self, stream: &Stream) -> Result<Option<Fence>, DeviceError> {
        let left = self.loan.as_mut().map_or(Ok(None), |loan| loan.leave(stream));
        left.inspect_err(|cause| self.lost = Some(cause.clone()))
    }

    /// Work on the bytes was enqueued before `fence`.
    pub fn leave_fence(&mut self, fence: Fence) {
        if let Some(loan) = &mut self.loan {
            loan.fences.push(fence);
        }
    }

    /// Work on the bytes may be under way, and when it is done cannot be known: others get them
    /// only once the device was seen to have nothing left to do.
    pub fn stick(&mut self) {
        let loan = self.loan();
        loan.arena.table().stick(loan.id);
    }

    /// As [`stick`](Self::stick), because of `cause`: [`order`](Self::order) fails from now on.
    pub fn lose(&mut self, cause: &DeviceError) {
        self.stick();
        self.lost = Some(cause.clone());
    }

    /// Whether work on the bytes may be under way of which nobody knows when it is done.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// The bytes are all there, or will be when the fences that were left are done: the entry can
    /// be read from now on.
    pub fn commit(mut self) {
        if let Some(ArenaLease { arena, id, fences, given, .. }) = self.loan.take() {
            drop(given);
            arena.table().commit(id, fences);
        }
    }
}

impl WriteGuard {
    /// As [`commit`](Self::commit), for an entry whose place and size are known only now: it is the
    /// `len` bytes of the arena from `offset` on. They may begin before the bytes of the guard,
    /// where no entry is any more: whoever wrote there came after the save that gave them up. What
    /// the entry leaves of the guard's bytes may be given to others at once, after the fences.
    ///
    /// # Errors
    /// When the bytes are another entry's, are out of range, or may still be in use by work that
    /// failed. The entry is forgotten then.
    pub fn commit_at(mut self, offset: u64, len: u64) -> Result<(), TierError> {
        let ArenaLease { arena, id, fences, .. } = self.loan();
        let committed = arena.once_idle(|table| table.commit_at(*id, offset, len, fences));
        committed.map_err(|misuse| arena.error("commit", *id, misuse).with_progress(len, 0))?;
        self.loan = None;
        Ok(())
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        if let Some(ArenaLease { arena, id, fences, given, .. }) = self.loan.take() {
            drop(given);
            arena.table().abandon(id, fences);
        }
    }
}

impl fmt::Debug for WriteGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteGuard").field("id", &self.id()).field("len", &self.len()).finish()
    }
}

/// The bytes of a complete entry, for reading. The entry stays while the guard is alive.
#[must_use = "the bytes are only borrowed while the guard is alive"]
pub struct ReadGuard {
    loan: ArenaLease,
    bytes: PhantomData<*const [u8]>,
}

// SAFETY: the guard stands for a `&[u8]`, and its arena is `Sync`.
unsafe impl Send for ReadGuard {}
// SAFETY: as above.
unsafe impl Sync for ReadGuard {}

impl ReadGuard {
    /// The caller has counted a reader of `new.id` in the arena's table.
    pub(super) fn new(new: New) -> Self {
        ReadGuard { loan: new.into(), bytes: PhantomData }
    }

    /// Whose entry it is.
    #[must_use]
    pub fn id(&self) -> CheckpointId {
        self.loan.id
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.loan.len as u64
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, where they are in main memory.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        let GuardBytes::Host(start) = self.loan.place else { return None };
        // SAFETY: `new` was given a range inside the memory that the loan keeps. The table gives
        // the range to no writer while it counts readers.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), self.loan.len) })
    }

    /// The bytes, where they are a device's.
    #[must_use]
    pub fn device(&self) -> Option<&DeviceSpan> {
        self.loan.device()
    }

    /// The arena and the offset in it, where a device copies to and from it at full speed.
    #[must_use]
    pub fn pinned(&self) -> Option<(&PinnedArena, u64)> {
        self.loan.pinned()
    }

    /// The device that the memory belongs to, if it does.
    #[must_use]
    pub fn gpu(&self) -> Option<&Arc<Gpu>> {
        self.loan.memory.gpu()
    }

    /// What keeps the bytes in place after the guard is gone, for those who show them to others.
    #[must_use]
    pub fn memory(&self) -> Arc<dyn Any + Send + Sync> {
        self.loan.memory()
    }

    /// Makes `stream` wait for the work that writes the bytes. The host does not wait.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn order(&self, stream: &Stream) -> Result<(), DeviceError> {
        self.loan.order(stream)
    }

    /// Waits until earlier work on the bytes is done, at most `limit` for each piece of it.
    ///
    /// # Errors
    /// When such work failed, and when the limit has passed.
    pub fn wait(&self, limit: Duration) -> Result<(), DeviceError> {
        self.loan.wait(limit)
    }

    /// Work that reads the bytes was enqueued on `stream`: whoever gets them next comes after it.
    /// Returns a fence after that work, unless it is done.
    ///
    /// # Errors
    /// When it cannot be known when that work will be done. Others get the bytes only once the
    /// device was seen to have nothing left to do.
    pub fn leave(&mut self, stream: &Stream) -> Result<Option<Fence>, DeviceError> {
        self.loan.leave(stream)
    }

    /// Work that reads the bytes was enqueued before `fence`.
    pub fn leave_fence(&mut self, fence: Fence) {
        self.loan.fences.push(fence);
    }

    /// Work on the bytes may be under way, and when it is done cannot be known: others get them
    /// only once the device was seen to have nothing left to do.
    pub fn stick(&mut self) {
        self.loan.arena.table().stick(self.loan.id);
    }
}

impl Drop for ReadGuard {
    fn drop(&mut self) {
        let fences = std::mem::take(&mut self.loan.fences);
        // Whoever lets go of the array next is the last to have it.
        self.loan.given = None;
        self.loan.arena.table().end_read(self.loan.id, fences);
    }
}

impl fmt::Debug for ReadGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadGuard").field("id", &self.id()).field("len", &self.len()).finish()
    }
}
