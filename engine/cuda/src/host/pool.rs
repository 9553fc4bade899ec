//! Host memory of arenas that have ended, kept prepared for arenas that come: making pages present
//! and registering them takes longer than anything else that an arena does.
//!
//! Invariants:
//! - What is kept is used by nobody: no unfinished copy and no thread names it.
//! - What is kept is never larger than the machine's free memory, and is kept for at most a minute.
//!   It counts as free, and is given back when an arena finds too little memory to grow.
//! - Whoever takes something back or gives it back does so without the lock.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use crate::host::prepare::{FIRST, Prepared};
use crate::life;
use crate::limits;
use crate::release;

/// How long memory is kept that no arena takes: the next spool of a program usually comes at once.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// How often it is looked whether others need it.
const TICK: Duration = Duration::from_secs(1);

/// How long an arena waits for memory that another one is just giving back.
const COMING: Duration = Duration::from_millis(20);

/// The memory that is kept, the oldest first.
static POOL: Pool = Pool { kept: Mutex::new(Vec::new()), changed: Condvar::new() };

struct Pool {
    kept: Mutex<Vec<Kept>>,
    changed: Condvar,
}

/// The memory of one arena.
struct Kept {
    device: u32,
    since: Instant,
    memory: Prepared,
}

/// The size of a mapping for an arena of `capacity` bytes: at most an eighth more, which costs
/// addresses alone, so that what is kept of it also fits an arena of nearly that size.
pub(super) fn size_of_mapping(capacity: u64) -> u64 {
    let unit = (1 << capacity.checked_ilog2().unwrap_or(0).max(3)) >> 3;
    capacity.checked_next_multiple_of(unit).unwrap_or(capacity)
}

/// Keeps memory that an arena of `device` has used.
pub(super) fn keep(device: u32, memory: Prepared) {
    if !memory.is_whole() {
        return;
    }
    let left = limits::free_now();
    let mut kept = POOL.lock();
    // The first thing that is kept needs a thread that looks after it.
    if kept.is_empty() && Builder::new().name("unspool-trim".to_owned()).spawn(look_after).is_err()
    {
        return;
    }
    kept.push(Kept { device, since: Instant::now(), memory });
    let too_much = beyond(&mut kept, left);
    drop(kept);
    drop(too_much);
}

/// Memory for an arena of `capacity` bytes on `device`, if some that `fits` is kept or is just
/// being given back. Memory of much larger arenas is left to others.
pub(super) fn take(
    device: u32,
    capacity: u64,
    fits: impl Fn(&Prepared) -> bool,
) -> Option<Prepared> {
    let most = capacity.max(FIRST).saturating_mul(2);
    let suits = |kept: &Kept| {
        let memory = &kept.memory;
        let is_large = memory.mapping.len() >= capacity && memory.progress.touched() <= most;
        kept.device == device && is_large && fits(memory)
    };
    let mut found = None;
    release::wait_for(COMING, || {
        let mut kept = POOL.lock();
        let best = (0..kept.len())
            .filter(|&index| suits(&kept[index]))
            .max_by_key(|&index| kept[index].memory.progress.registered());
        found = best.map(|index| kept.remove(index).memory);
        found.is_some()
    });
    found
}

/// Bytes of main memory that are kept.
pub(crate) fn kept() -> u64 {
    bytes(&POOL.lock())
}

/// Gives back the host memory that ended arenas of this process have left for arenas to come, and
/// returns its bytes. It would be given back within a minute, or as soon as an arena needs room.
pub fn trim() -> u64 {
    let all = std::mem::take(&mut *POOL.lock());
    POOL.changed.notify_all();
    bytes(&all)
}

fn bytes(kept: &[Kept]) -> u64 {
    kept.iter().map(|kept| kept.memory.progress.touched()).sum()
}

/// Removes memory, the oldest first, until what is kept is no larger than the machine's free
/// memory, of which there are `left` bytes before that. Returns what was removed.
fn beyond(kept: &mut Vec<Kept>, left: u64) -> Vec<Kept> {
    let (mut all, mut left) = (bytes(kept), left);
    let mut count = 0;
    for oldest in kept.iter() {
        if all <= left {
            break;
        }
        let bytes = oldest.memory.progress.touched();
        (all, left) = (all - bytes, left.saturating_add(bytes));
        count += 1;
    }
    kept.drain(..count).collect()
}

/// Gives back what is kept for too long or needed by others, until nothing is kept. Runs on its own
/// thread.
fn look_after() {
    let mut kept = POOL.lock();
    while !kept.is_empty() && life::driver_lives() {
        drop(POOL.changed.wait_timeout(kept, TICK).unwrap_or_else(PoisonError::into_inner));
        // Reading files takes longer than an arena should wait for the lock.
        let left = limits::free_now();
        kept = POOL.lock();
        let old = kept.iter().take_while(|kept| kept.since.elapsed() >= KEPT_FOR).count();
        let mut gone: Vec<Kept> = kept.drain(..old).collect();
        gone.extend(beyond(&mut kept, left));
        if !gone.is_empty() {
            drop(kept);
            drop(gone);
            kept = POOL.lock();
        }
    }
}

impl Pool {
    /// A panic elsewhere does no harm: each change is complete in itself.
    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
