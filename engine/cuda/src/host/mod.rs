//! The pinned arena of the host: usable as soon as it is mapped, at full speed once its pages are
//! registered.
//!
//! Source: Maurya et al., "Towards Efficient Cache Allocation for High-Frequency Checkpointing"
//! (HiPC 2022), section IV: touch pages ahead, in the background, with huge pages, and register
//! what is touched. Where this departs from it: the paper registers the whole buffer once, at the
//! end, because a transfer across two registrations is refused. Here the arena is registered in
//! chunks as they are touched, and every copy is split at the chunks' borders.
//!
//! Invariants:
//! - A chunk is registered only once, and after its pages are present.
//! - Registered bytes are a prefix; its end is a watermark that can be read at any time.
//! - Pages are touched ahead of use and not to the end: memory that nobody uses is not taken.
//! - Only copies change bytes: touching a page leaves data that has arrived as it is.
//! - Memory is unregistered and unmapped, or used by another arena, only after everything on
//!   the device, on a background thread.

pub(crate) mod baseline;
mod copies;
pub(crate) mod mapping;
pub(crate) mod pool;
mod prepare;
mod progress;
mod staging;

use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::access::AccessedBytes;
use crate::chunks::Chunks;
use crate::context::Context;
use crate::error::{DeviceError, DeviceErrorKind};
use crate::limits::{HostLimits, MemoryLeft, check_size};
use crate::pace::Pace;
use crate::release::{self, AfterUse};
use crate::turn::{self, Turns};

pub use copies::Unregistered;
pub use progress::RegisterStats;
pub use staging::StagingRing;

use mapping::{HUGE_PAGE, Mapping};
use prepare::{Prepared, Thread};
use progress::Progress;

/// Registration is about this many times as fast as a copy to unregistered memory.
const NEAR: u64 = 6;
/// A copy does not wait for a registration that is slower than this and late by more than that.
const SLOW_BYTES_PER_NANOSECOND: u64 = 5;
const LATE: Duration = Duration::from_millis(2);

/// Settings of a pinned arena.
#[derive(Clone, PartialEq, Debug)]
pub struct PinnedOptions {
    /// Bytes of the first chunk; default 2 MiB, so that the first registrations delay other calls
    /// of the driver by only a fraction of a millisecond. Rounded up to a multiple of 2 MiB.
    pub first_chunk: u64,
    /// Chunks double up to this size in bytes; default 32 MiB.
    pub largest_chunk: u64,
    /// Threads that touch pages; default 8, or half of the cores if that is less, so that the
    /// application's threads keep the others.
    pub touch_threads: usize,
    /// How registrations are spaced; by default with gaps as long as the calls while copies run.
    pub pace: Pace,
    /// Whether processes of a node register for one GPU one at a time; default true, unless the
    /// environment has `UNSPOOL_REGISTER_TURNS=0`.
    pub take_turns: bool,
    /// The directory of the lock file for that; by default one in memory that all processes see.
    pub turn_directory: Option<PathBuf>,
    /// Whether to ask for huge pages; default true.
    pub huge_pages: bool,
    /// Whether to touch and register pages at all; default true. Without it every copy uses the
    /// method for unregistered memory: for measurements.
    pub prepare: bool,
    /// Whether memory that is prepared may come from an arena of this process which has ended, and
    /// is kept for another one; default true.
    pub keep: bool,
}

impl Default for PinnedOptions {
    fn default() -> PinnedOptions {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        PinnedOptions {
            first_chunk: 2 << 20,
            largest_chunk: 32 << 20,
            touch_threads: (cores / 2).clamp(1, 8),
            pace: Pace::default(),
            take_turns: std::env::var_os("UNSPOOL_REGISTER_TURNS").is_none_or(|value| value != "0"),
            turn_directory: None,
            huge_pages: true,
            prepare: true,
            keep: true,
        }
    }
}

impl PinnedOptions {
    fn chunks(&self, capacity: u64) -> Chunks {
        let first = self.first_chunk.clamp(1, 1 << 40).next_multiple_of(HUGE_PAGE);
        Chunks::new(capacity, first, self.largest_chunk)
    }

    /// Memory of an arena that has ended, where there is some such as this one would make.
    fn kept(&self, context: &Context, capacity: u64) -> Option<Prepared> {
        let fits = |kept: &Prepared| kept.chunks == self.chunks(kept.mapping.len());
        let may = self.keep && self.prepare;
        may.then(|| pool::take(context.ordinal(), capacity, fits)).flatten()
    }

    /// New memory.
    fn new_memory(&self, context: &Context, capacity: u64) -> Result<Prepared, DeviceError> {
        // What is kept of an arena fits the next one, of about the same size.
        let len = if self.keep { pool::size_of_mapping(capacity) } else { capacity };
        let mapping = Mapping::new(len, self.huge_pages)
            .or_else(|_| Mapping::new(capacity, self.huge_pages))?;
        if let Some(node) = mapping::node_of(&context.device().pci) {
            mapping.prefer(node);
        }
        let (chunks, registrar) = (self.chunks(mapping.len()), context.without_watch()?);
        Ok(Prepared::new(mapping, chunks, Box::new(registrar)))
    }

    fn turns(&self, context: &Context) -> Turns {
        if !self.take_turns {
            return Turns::none();
        }
        let directory = self.turn_directory.clone();
        let directory = directory.unwrap_or_else(turn::directory_of_the_node);
        Turns::of(&directory, &turn::of_gpu(&context.device().pci))
    }
}

/// Host memory that the device copies to and from at full speed once it is registered.
pub struct PinnedArena {
    context: Context,
    capacity: u64,
    /// Taken when it is dropped.
    prepared: ManuallyDrop<Arc<Prepared>>,
    thread: Option<Thread>,
    closed: AtomicBool,
    keep: bool,
}

impl PinnedArena {
    /// Maps `capacity` bytes, or takes those of an arena that has ended, and starts to prepare
    /// them; returns within a millisecond, whatever the size.
    ///
    /// # Errors
    /// When the machine does not have that much at all, or refuses the address space or a thread.
    pub fn new(
        context: &Context,
        capacity: u64,
        options: &PinnedOptions,
    ) -> Result<PinnedArena, DeviceError> {
        check_size(capacity).map_err(|left| refused(capacity, &left))?;
        let kept = options.kept(context, capacity);
        let mut prepared = kept.map_or_else(|| options.new_memory(context, capacity), Ok)?;
        prepared.begin(capacity, options.turns(context), options.pace);
        context.saw(|| AccessedBytes::host(prepared.mapping.at(0, capacity), capacity).arena());
        let mut arena = PinnedArena {
            context: context.clone(),
            capacity,
            prepared: ManuallyDrop::new(Arc::new(prepared)),
            thread: None,
            closed: AtomicBool::new(false),
            keep: options.keep && options.prepare,
        };
        if options.prepare {
            arena.thread = Some(arena.prepared.start(options.touch_threads)?);
        }
        Ok(arena)
    }

    /// Its size in bytes.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Its context.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Bytes from the start whose pages are present.
    #[must_use]
    pub fn touched(&self) -> u64 {
        self.prepared.progress.touched().min(self.capacity)
    }

    /// Bytes from the start that are registered: copies to and from them run at full speed.
    #[must_use]
    pub fn registered(&self) -> u64 {
        self.prepared.progress.registered().min(self.capacity)
    }

    /// Duration and number of the registrations so far.
    #[must_use]
    pub fn stats(&self) -> RegisterStats {
        self.prepared.progress.state().stats
    }

    /// Why preparation ended early, if it did: copies still work, at a lower speed.
    #[must_use]
    pub fn failure(&self) -> Option<DeviceError> {
        self.prepared.progress.state().failure.clone()
    }

    /// Whether the system takes the advice to use huge pages.
    #[must_use]
    pub fn has_huge_pages(&self) -> bool {
        self.prepared.mapping.is_huge()
    }

    /// Whether processes of the node take turns: false if that is turned off, or the lock file
    /// could not be opened.
    #[must_use]
    pub fn takes_turns(&self) -> bool {
        self.prepared.turns.are_taken()
    }

    /// Prepares the first `upto` bytes, which will be used: without this, preparation goes ahead of
    /// what is used by as much again. Returns at once.
    pub fn prepare(&self, upto: u64) {
        self.prepared.aim_for(upto);
    }

    /// No bytes from `end` on will be used, as far as is known: none are prepared ahead of use.
    pub fn want(&self, end: u64) {
        self.prepared.want(end);
    }

    /// Takes the memory of the first `end` bytes, which are about to be written.
    ///
    /// # Errors
    /// When the machine has too little memory left. What was taken until then stays.
    pub fn grow(&self, end: u64) -> Result<(), MemoryLeft> {
        // The threads that touch pages begin at once.
        self.prepared.used_up_to(end);
        self.prepared.growth.reach(end, Arc::as_ref(&self.prepared))
    }

    /// Takes the memory of all bytes, and makes it present.
    ///
    /// # Errors
    /// As [`grow`](Self::grow).
    pub fn fill(&self) -> Result<(), MemoryLeft> {
        self.prepare(self.capacity);
        self.prepared.growth.fill(Arc::as_ref(&self.prepared))
    }

    /// Bytes from the start whose memory was taken.
    #[must_use]
    pub fn grown(&self) -> u64 {
        self.prepared.growth.reached().max(self.touched())
    }

    /// Prepares the first `upto` bytes and waits until they are registered, at most `limit`.
    ///
    /// # Errors
    /// When registering failed, the arena was closed, or the limit has passed.
    pub fn wait_registered(&self, upto: u64, limit: Duration) -> Result<(), DeviceError> {
        self.prepare(upto);
        let progress = &self.prepared.progress;
        progress.wait_until("registered", || progress.registered(), upto, limit)
    }

    /// Waits for a registration that is nearly complete before `len` bytes are copied, where that
    /// is faster than the copy by another method. Returns whether the bytes are registered.
    fn await_registered(&self, upto: u64, len: u64) -> bool {
        let registered = self.prepared.progress.registered();
        if upto <= registered {
            return true;
        }
        let chunks = &self.prepared.chunks;
        let upto = chunks.range(chunks.index_of(upto - 1)).end;
        let ahead = upto.saturating_sub(registered);
        if self.thread.is_none() || ahead > len.saturating_mul(NEAR) {
            return false;
        }
        self.prepared.progress.want(upto);
        let limit = Duration::from_nanos(ahead / SLOW_BYTES_PER_NANOSECOND) + LATE;
        self.wait_registered(upto, limit).is_ok()
    }

    /// Prepares the first `upto` bytes and waits until their pages are present, at most `limit`.
    ///
    /// # Errors
    /// When the system has no memory, the arena was closed, or the limit has passed.
    pub fn wait_touched(&self, upto: u64, limit: Duration) -> Result<(), DeviceError> {
        self.prepare(upto);
        let progress = &self.prepared.progress;
        progress.wait_until("touched", || progress.touched(), upto, limit)
    }

    /// Reports a copy on the links until the value is dropped; while there is none, registrations
    /// need no gaps. Copies of this arena do so themselves until they are enqueued; the code that
    /// enqueues them keeps its own value until their event is done.
    pub fn busy(&self) -> LinkBusy {
        self.prepared.progress.link_busy();
        LinkBusy(Arc::clone(&self.prepared.progress))
    }

    /// The bytes of `[offset, offset + len)`.
    ///
    /// # Errors
    /// When they are outside, and after [`close`](Self::close).
    ///
    /// # Safety
    /// No unfinished copy and no mutable reference writes to them while the slice lives.
    pub unsafe fn bytes(&self, offset: u64, len: u64) -> Result<&[u8], DeviceError> {
        self.check(offset, len)?;
        let place = self.prepared.mapping.at(offset, len);
        self.context.saw_host("reading bytes of the host arena", place, len, false);
        // SAFETY: inside the mapping, which lives as long as the arena; the caller guarantees the
        // rest.
        Ok(unsafe { std::slice::from_raw_parts(place, len as usize) })
    }

    /// The address of byte `offset`, for owners that track the use of each byte themselves.
    ///
    /// # Errors
    /// When `[offset, offset + len)` is outside, and after [`close`](Self::close).
    pub fn address(&self, offset: u64, len: u64) -> Result<NonNull<u8>, DeviceError> {
        self.check(offset, len)?;
        Ok(NonNull::new(self.prepared.mapping.at(offset, len)).unwrap_or(NonNull::dangling()))
    }

    /// The bytes of `[offset, offset + len)`, mutable.
    ///
    /// # Errors
    /// When they are outside, and after [`close`](Self::close).
    ///
    /// # Safety
    /// No unfinished copy and no other reference uses them while the slice lives.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn bytes_mut(&self, offset: u64, len: u64) -> Result<&mut [u8], DeviceError> {
        self.check(offset, len)?;
        let place = self.prepared.mapping.at(offset, len);
        self.context.saw_host("writing bytes of the host arena", place, len, true);
        // SAFETY: as above.
        Ok(unsafe { std::slice::from_raw_parts_mut(place, len as usize) })
    }

    /// Refuses all further copies: for owners that share the arena and cannot drop it yet.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.prepared.progress.stop();
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        if self.closed.load(Ordering::Acquire) {
            let message = "the host arena is closed";
            return Err(DeviceError::new(DeviceErrorKind::Closed, message));
        }
        crate::span::in_range(offset, len, self.capacity(), "the host arena")?;
        if len > 0 {
            self.prepared.used_up_to(offset + len);
        }
        Ok(())
    }
}

impl Drop for PinnedArena {
    fn drop(&mut self) {
        self.close();
        let after = AfterUse::Everything(self.context.clone());
        // SAFETY: nothing uses the field after this.
        let prepared = unsafe { ManuallyDrop::take(&mut self.prepared) };
        let (thread, keep) = (self.thread.take(), self.keep.then(|| self.context.ordinal()));
        release::in_background(after, move || {
            if let Some(thread) = thread {
                thread.join();
            }
            // The thread had the only other one.
            let prepared = Arc::into_inner(prepared);
            if let (Some(ordinal), Some(prepared)) = (keep, prepared) {
                pool::keep(ordinal, prepared);
            }
        });
    }
}

impl std::fmt::Debug for PinnedArena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PinnedArena")
            .field("capacity", &self.capacity())
            .field("touched", &self.touched())
            .field("registered", &self.registered())
            .finish_non_exhaustive()
    }
}

/// The error for memory that the machine does not have: without it the system would end the process
/// once the pages are touched.
fn refused(asked: u64, left: &MemoryLeft) -> DeviceError {
    let locked = HostLimits::read().locked();
    let message = format!("host RAM: {} (RLIMIT_MEMLOCK {locked})", left.refusal(asked));
    DeviceError::new(DeviceErrorKind::PinLimit, message).with_advice(left.advice("host_memory"))
}

/// A copy in progress; see [`PinnedArena::busy`].
#[must_use]
pub struct LinkBusy(Arc<Progress>);

impl std::fmt::Debug for LinkBusy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LinkBusy")
    }
}

impl Drop for LinkBusy {
    fn drop(&mut self) {
        self.0.link_idle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_larger_than_the_machine_is_refused_with_both_sizes() {
        let limit = "a test".to_owned();
        let left = MemoryLeft { bytes: 1 << 30, limit, reserve: 0, most: 3 << 30 };
        let error = refused(4 << 30, &left);
        assert_eq!(error.kind(), DeviceErrorKind::PinLimit);
        for part in
            ["host RAM: 4 GiB were asked for", "3 GiB in all", "RLIMIT_MEMLOCK", "`host_memory`"]
        {
            assert!(error.to_string().contains(part), "{part} is not in: {error}");
        }
    }

    #[test]
    fn borders_of_chunks_lie_on_huge_pages() {
        let options = PinnedOptions { first_chunk: 3 << 20, ..PinnedOptions::default() };
        let chunks = options.chunks(1 << 30);
        for index in 0..chunks.count() {
            assert!(chunks.range(index).start.is_multiple_of(HUGE_PAGE));
        }
    }
}
