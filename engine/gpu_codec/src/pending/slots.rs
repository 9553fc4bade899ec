//! Slots for results: mapped pinned memory that the device writes and the host reads, each with a
//! record in device memory for the next checkpoint. They are allocated in chunks and reused, so
//! that a launch rarely allocates.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Pending;
use super::result::{HEAD_WORDS, JOB_WORDS, Words};
use unspool_cuda::Context;
use unspool_cuda::DeviceError;
use unspool_cuda::Fence;
use unspool_cuda::Stream;
use unspool_cuda::Unrecorded;
use unspool_cuda::copy;
use unspool_cuda::{DeviceMemory, PinnedMemory};

/// Bytes of a record.
const RECORD_BYTES: u64 = 32;

/// The last bytes of a record.
const COUNTER_BYTES: u64 = 8;

/// Words of the smallest slot: room for ten jobs.
const SMALLEST: usize = 64;
/// Words of a chunk, unless one slot needs more.
const CHUNK_WORDS: usize = 8192;

/// The slots of one context.
#[derive(Debug)]
pub struct Slots {
    context: Context,
    next: AtomicU64,
    state: Mutex<SlotsState>,
}

#[derive(Debug, Default)]
struct SlotsState {
    free: Vec<Spot>,
    /// Slots that have no user any more but that the device may still write.
    unfinished: Vec<SlotLease>,
}

/// Memory for slots of one size.
#[derive(Debug)]
struct Chunk {
    pinned: PinnedMemory,
    records: DeviceMemory,
    /// Words of a slot.
    words: usize,
}

/// One slot of a chunk.
#[derive(Clone, Debug)]
struct Spot {
    chunk: Arc<Chunk>,
    index: usize,
    /// Whether the counters in its record are known to be 0 between launches.
    cleared: bool,
}

/// A slot in use: the sequence number that will show that it is done, and the slot of the
/// checkpoint before.
#[derive(Debug)]
struct SlotLease {
    spot: Spot,
    sequence: u64,
    before: Option<Arc<LaunchedSlot>>,
}

impl Chunk {
    fn new(context: &Context, words: usize) -> Result<Chunk, DeviceError> {
        let count = (CHUNK_WORDS / words).max(1);
        let mut pinned = PinnedMemory::new(context, (count * words * 8) as u64)?;
        // SAFETY: nothing was enqueued on it yet.
        unsafe { pinned.bytes_mut() }.fill(0);
        let records = DeviceMemory::new(context, count as u64 * RECORD_BYTES)?;
        Ok(Chunk { pinned, records, words })
    }

    fn count(&self) -> usize {
        self.pinned.len() as usize / (8 * self.words)
    }
}

impl Spot {
    fn first(&self) -> *mut u64 {
        let offset = (self.index * self.chunk.words * 8) as u64;
        let len = (self.chunk.words * 8) as u64;
        self.chunk.pinned.at(offset, len).map_or(std::ptr::null_mut(), <*mut u8>::cast)
    }

    fn word(&self, index: usize, order: Ordering) -> u64 {
        debug_assert!(index < self.chunk.words);
        // SAFETY: a word of the chunk, aligned to 8 bytes; the device writes whole words.
        unsafe { AtomicU64::from_ptr(self.first().add(index)) }.load(order)
    }

    fn record(&self) -> u64 {
        self.chunk.records.span().address() + self.index as u64 * RECORD_BYTES
    }
}

impl SlotLease {
    /// Whether the device has written the whole result.
    fn is_done(&self) -> bool {
        self.spot.word(0, Ordering::Acquire) == self.sequence
    }
}

impl Slots {
    /// An empty set of slots.
    #[must_use]
    pub fn new(context: &Context) -> Arc<Slots> {
        let (next, state) = (AtomicU64::new(1), Mutex::default());
        Arc::new(Slots { context: context.clone(), next, state })
    }

    /// A slot for a checkpoint of `jobs` jobs.
    pub(crate) fn begin(self: &Arc<Slots>, jobs: usize) -> Result<Slot, DeviceError> {
        let words = (HEAD_WORDS + JOB_WORDS * jobs).next_power_of_two().max(SMALLEST);
        self.report_done();
        let kept = self.take(words);
        let spot = kept.map_or_else(|| self.make(words), Ok)?;
        let sequence = self.next.fetch_add(1, Ordering::Relaxed);
        let lease = SlotLease { spot, sequence, before: None };
        Ok(Slot { lease: Some(lease), jobs, slots: Arc::clone(self) })
    }

    fn take(&self, words: usize) -> Option<Spot> {
        let mut state = self.state();
        let index = state.free.iter().rposition(|spot| spot.chunk.words == words)?;
        Some(state.free.swap_remove(index))
    }

    /// Allocates a chunk; all its slots but the returned one are free.
    fn make(&self, words: usize) -> Result<Spot, DeviceError> {
        let chunk = Arc::new(Chunk::new(&self.context, words)?);
        let others = (1..chunk.count()).map(|index| Spot {
            chunk: Arc::clone(&chunk),
            index,
            cleared: false,
        });
        self.state().free.extend(others);
        Ok(Spot { chunk, index: 0, cleared: false })
    }

    /// Frees the slots that the device has finished meanwhile.
    fn report_done(&self) {
        let mut done = Vec::new();
        let mut state = self.state();
        let mut index = 0;
        while index < state.unfinished.len() {
            if state.unfinished[index].is_done() {
                done.push(state.unfinished.swap_remove(index));
            } else {
                index += 1;
            }
        }
        state.free.extend(done.iter().map(|lease| lease.spot.clone()));
        drop(state);
        // Dropped without the lock: this also returns the slots that they kept.
        drop(done);
    }

    fn take_back(&self, lease: SlotLease) -> Option<Arc<LaunchedSlot>> {
        let mut state = self.state();
        if lease.is_done() {
            state.free.push(lease.spot);
            return lease.before;
        }
        state.unfinished.push(lease);
        None
    }

    fn state(&self) -> MutexGuard<'_, SlotsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A slot of a launch that is being prepared.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Present until it is launched or dropped.
    lease: Option<SlotLease>,
    jobs: usize,
    slots: Arc<Slots>,
}

impl Slot {
    fn lease(&self) -> &SlotLease {
        self.lease.as_ref().expect("a lease until it is launched")
    }

    /// The address of the result, which the device writes: the layout is in [`super::result`].
    pub(crate) fn address(&self) -> u64 {
        self.lease().spot.first().addr() as u64
    }

    /// The address of the record in device memory.
    pub(crate) fn record(&self) -> u64 {
        self.lease().spot.record()
    }

    /// The address of two 32-bit counters in device memory that are 0 after what is on `stream`;
    /// the kernel resets them to 0.
    pub(crate) fn counters(&mut self, stream: &Stream) -> Result<u64, DeviceError> {
        let Some(lease) = &mut self.lease else { return Ok(0) };
        let offset = (lease.spot.index as u64 + 1) * RECORD_BYTES - COUNTER_BYTES;
        let span = lease.spot.chunk.records.span().slice(offset, COUNTER_BYTES)?;
        if !lease.spot.cleared {
            copy::fill(stream, &span, 0)?;
            lease.spot.cleared = true;
        }
        Ok(span.address())
    }

    /// The number that the device writes into the first word after all others.
    pub(crate) fn sequence(&self) -> u64 {
        self.lease().sequence
    }

    /// Keeps the record of `before` allocated until this slot is done.
    pub(super) fn keep(&mut self, before: &Arc<LaunchedSlot>) {
        if let Some(lease) = &mut self.lease {
            lease.before = Some(Arc::clone(before));
        }
    }

    /// The result of a launch before `fence` that writes nothing at or beyond `limit`.
    pub(crate) fn launched(mut self, fence: Fence, limit: u64) -> Pending {
        let lease = Mutex::new(self.lease.take());
        let place = LaunchedSlot { lease, jobs: self.jobs, slots: Arc::clone(&self.slots) };
        Pending::new(Arc::new(place), fence, limit)
    }

    /// The result of a launch that is enqueued on `stream`: [`launched`](Self::launched) with the
    /// fence after it.
    ///
    /// # Errors
    /// When the fence cannot be recorded; the slot is given up.
    pub(crate) fn launched_before(
        self,
        fence: Unrecorded,
        stream: &Stream,
        limit: u64,
    ) -> Result<Pending, DeviceError> {
        match fence.record(stream) {
            Ok(fence) => Ok(self.launched(fence, limit)),
            Err(error) => {
                self.abandon();
                Err(error)
            }
        }
    }

    /// Gives up a slot that may have been launched: its memory stays allocated until the device is
    /// known to have written it.
    pub(crate) fn abandon(mut self) {
        if let Some(lease) = self.lease.take() {
            self.slots.take_back(lease);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            // Never launched.
            self.slots.state().free.push(lease.spot);
        }
    }
}

/// A slot that was launched, and its record.
#[derive(Debug)]
pub(crate) struct LaunchedSlot {
    /// Present until the drop.
    lease: Mutex<Option<SlotLease>>,
    jobs: usize,
    slots: Arc<Slots>,
}

impl LaunchedSlot {
    /// The words after the first one, once the device has written them.
    pub(super) fn words(&self) -> Option<Words> {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        let lease = lease.as_ref().filter(|lease| lease.is_done())?;
        let end = HEAD_WORDS + JOB_WORDS * self.jobs;
        Some((1..end).map(|index| lease.spot.word(index, Ordering::Relaxed)).collect())
    }

    /// The address of the record.
    pub(super) fn record(&self) -> u64 {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        lease.as_ref().map_or(0, |lease| lease.spot.record())
    }

    /// Releases the record of the checkpoint before.
    pub(super) fn release_before(&self) {
        let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        let before = lease.as_mut().and_then(|lease| lease.before.take());
        drop(lease);
        drop(before);
    }

    fn end(&mut self) -> Option<Arc<LaunchedSlot>> {
        let lease = self.lease.get_mut().unwrap_or_else(PoisonError::into_inner).take()?;
        self.slots.take_back(lease)
    }
}

impl Drop for LaunchedSlot {
    fn drop(&mut self) {
        // A loop and not a recursion: the chain may be long, and nested drops use stack.
        let mut before = self.end();
        while let Some(mut place) = before.and_then(Arc::into_inner) {
            before = place.end();
        }
    }
}
