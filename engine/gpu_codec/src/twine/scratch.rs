//! Memory of launches besides their data: counters, words of tiles, tables. Sets of it have sizes
//! that are powers of two and are reused once the launch that used them last is known to be done,
//! so that launches on several streams share none.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Places;
use super::words::{BINS, Entry, INLINE, Job, STEP_BYTES, TALLY_BYTES};
use unspool_cuda::DeviceError;
use unspool_cuda::Fence;
use unspool_cuda::Stream;
use unspool_cuda::copy;
use unspool_cuda::{DeviceMemory, PinnedMemory};

const LEAST_TILES: u64 = 1024;
const LEAST_JOBS: u64 = 64;
const TICKET_BYTES: u64 = 64;

/// Number of epochs, which distinguish the words of one launch from those of older ones.
const EPOCHS: u32 = 1 << 27;

/// Maximum number of sets in use, enough to keep a device busy: a launch beyond them waits, on the
/// device, for an earlier one.
const ENOUGH: usize = 16;

/// Number of sets that are polled before another one is made.
const LIKELY: usize = 2;

/// Idle sets.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<Set>>);

/// The memory of one call.
#[derive(Debug)]
pub(super) struct Set {
    memory: DeviceMemory,
    tiles: u64,
    jobs: u64,
    /// Pinned memory in which tables are written before they are copied to the device.
    staging: Option<PinnedMemory>,
    /// Memory for sums of squares, all 0 between calls.
    squares: Option<DeviceMemory>,
    pub(super) ticket: u32,
    pub(super) epoch: u32,
    /// A fence after the last launch that used it.
    after: Option<Fence>,
}

impl Pool {
    /// A set for `tiles` tiles and `jobs` jobs, whose last launch comes before everything that is
    /// enqueued on `stream` later. A new one is cleared on `stream`.
    pub(super) fn take(&self, stream: &Stream, tiles: u64, jobs: u64) -> Result<Set, DeviceError> {
        let mut sets = std::mem::take(&mut *self.sets());
        // The driver is not called under the lock. The sets that have waited longest are the
        // likeliest to be idle; polling all of them costs more than a launch while few are in use.
        let fits = |set: &Set| set.tiles >= tiles && set.jobs >= jobs;
        let asked = if sets.len() >= ENOUGH { sets.len() } else { LIKELY };
        let mut fitting = (0..sets.len()).filter(|&index| fits(&sets[index])).take(asked);
        let idle = fitting.find(|&index| sets[index].is_idle());
        // The host writes the tables and does not wait for a set.
        let is_enough = sets.len() >= ENOUGH && jobs <= INLINE as u64;
        let found = idle.or_else(|| sets.iter().position(fits).filter(|_| is_enough));
        let found = found.map(|index| sets.remove(index));
        self.sets().append(&mut sets);
        let mut set = match found {
            Some(set) => set,
            None => Set::new(stream, tiles, jobs)?,
        };
        if let Some(after) = set.after.as_ref().filter(|after| !after.is_done()) {
            stream.wait_for(after)?;
        }
        set.next_epoch(stream)?;
        Ok(set)
    }

    /// Returns a set whose last launch is before `after`.
    pub(super) fn put(&self, mut set: Set, after: &Fence) {
        set.after = Some(after.clone());
        self.sets().push(set);
    }

    fn sets(&self) -> MutexGuard<'_, Vec<Set>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Set {
    fn new(stream: &Stream, tiles: u64, jobs: u64) -> Result<Set, DeviceError> {
        let tiles = tiles.next_power_of_two().max(LEAST_TILES);
        let jobs = jobs.next_power_of_two().max(LEAST_JOBS);
        let memory = DeviceMemory::new(stream.context(), bytes(tiles, jobs))?;
        copy::fill(stream, &memory.span(), 0)?;
        Ok(Set {
            memory,
            tiles,
            jobs,
            staging: None,
            squares: None,
            ticket: 0,
            epoch: 0,
            after: None,
        })
    }

    fn is_idle(&self) -> bool {
        self.after.as_ref().is_none_or(Fence::is_done)
    }

    /// Begins an epoch, and leaves another one for the second launch of a call.
    fn next_epoch(&mut self, stream: &Stream) -> Result<(), DeviceError> {
        self.epoch += 2;
        if self.epoch + 1 >= EPOCHS {
            copy::fill(stream, &self.memory.span(), 0)?;
            (self.ticket, self.epoch) = (0, 1);
        }
        Ok(())
    }

    /// The addresses of its parts.
    pub(super) fn places(&self) -> Places {
        let ticket = self.memory.span().address();
        let totals = ticket + TICKET_BYTES;
        let counts = totals + 8 * self.jobs;
        let sums = counts + 8 * self.jobs;
        let steps = sums + TALLY_BYTES * self.jobs;
        let status = steps + (STEP_BYTES + TABLE_BYTES) * self.jobs;
        Places { ticket, totals, counts, sums, steps, status, tables: None }
    }

    /// Copies the tables to the device and returns their addresses.
    pub(super) fn tables(
        &mut self,
        stream: &Stream,
        jobs: &[Job],
        entries: &[Entry],
    ) -> Result<(u64, u64), DeviceError> {
        let (first, second) = (as_bytes(jobs), as_bytes(entries));
        let len = (first.len() + second.len()) as u64;
        let places = self.places();
        let offset = places.steps + STEP_BYTES * self.jobs - places.ticket;
        let to = self.memory.span().slice(offset, len)?;
        let staging = match self.staging.take() {
            Some(staging) => staging,
            None => PinnedMemory::new(stream.context(), TABLE_BYTES * self.jobs)?,
        };
        let staging = self.staging.insert(staging);
        // SAFETY: the set is idle, so the last copy from it is done.
        let bytes = unsafe { staging.bytes_mut() };
        bytes[..first.len()].copy_from_slice(first);
        bytes[first.len()..first.len() + second.len()].copy_from_slice(second);
        copy::pinned_to_device(stream, &to, staging, 0)?;
        Ok((to.address(), to.address() + first.len() as u64))
    }

    /// Address of the sums of the squares of `jobs` jobs. New ones are cleared on `stream`.
    pub(super) fn squares(&mut self, stream: &Stream, jobs: u64) -> Result<u64, DeviceError> {
        if jobs == 0 {
            return Ok(0);
        }
        let bytes = 8 * BINS * jobs.next_power_of_two();
        let kept = self.squares.take().filter(|memory| memory.span().len() >= bytes);
        let memory = match kept {
            Some(memory) => memory,
            None => {
                let memory = DeviceMemory::new(stream.context(), bytes)?;
                copy::fill(stream, &memory.span(), 0)?;
                memory
            }
        };
        Ok(self.squares.insert(memory).span().address())
    }
}

const TABLE_BYTES: u64 = (size_of::<Job>() + size_of::<Entry>()) as u64;

fn bytes(tiles: u64, jobs: u64) -> u64 {
    TICKET_BYTES + (8 + 8 + TALLY_BYTES + STEP_BYTES + TABLE_BYTES) * jobs + 8 * tiles
}

/// The values as bytes.
fn as_bytes<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: `Job` and `Entry`, the only types that are used here, are words without padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}
