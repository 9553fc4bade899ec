//! Growth of arenas in main memory. An arena is address space at first. It takes memory when a copy
//! needs it, and each time asks what the machine and the control groups have left at that moment.
//!
//! Nothing is reserved in advance, and processes know nothing of each other. Instead one look takes
//! a part of what is left, the smaller the more threads of the machine run, and leaves a
//! [reserve](super::Limit::reserve). Of processes that take memory at the same moment the n-th one
//! finds n of them running, so all together take at most (1 + 1/2 + ... + 1/n) / [`SHARE`] of it:
//! 0.37 with 200 processes. What was taken is part of the system's accounts before the same arena
//! looks again, because its pages are made present first. The figures are in
//! engine/decisions/0091-memory-is-taken-not-promised.md.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::bytes::Bytes;
use crate::host::pool;
use crate::limits::{self, Limit};
use crate::release;

/// The environment variable that turns the checks off, set to 0.
const VARIABLE: &str = "UNSPOOL_CHECK_FREE";

/// One look takes at most one in so many of the bytes that are left, for each thread that runs.
const SHARE: u64 = 16;
/// The threads that run where nothing says so.
const MANY: u64 = 64;
/// The least that a look takes, where there is as much: a huge page.
const STEP: u64 = 2 << 20;
/// What one look allows is taken within this time, or another look is needed.
const FRESH: Duration = Duration::from_millis(10);

/// How much host memory this process can still get, and what limits it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryLeft {
    /// Bytes left; `u64::MAX` where nothing can be read.
    pub bytes: u64,
    /// What limits it: `the machine (MemAvailable)`, or the limit of a control group by its file.
    pub limit: String,
    /// Those of the bytes that arenas leave to everything else.
    pub reserve: u64,
    /// The most that this process could have if nothing else took memory, in bytes.
    pub most: u64,
}

/// Reads how much host memory is left at this moment. What the process keeps for arenas to come
/// counts as left.
#[must_use]
pub fn memory_left() -> MemoryLeft {
    let mut left = MemoryLeft::now();
    left.bytes = left.bytes.saturating_add(pool::kept());
    left
}

/// Bytes left without giving anything back.
pub(crate) fn free_now() -> u64 {
    MemoryLeft::now().bytes
}

/// Refuses an arena of `len` bytes that this machine does not have at all, whatever else runs.
///
/// # Errors
/// With what there is.
pub fn check_size(len: u64) -> Result<(), MemoryLeft> {
    let left = MemoryLeft::now();
    if len <= left.most || is_unchecked() { Ok(()) } else { Err(left) }
}

impl MemoryLeft {
    fn now() -> MemoryLeft {
        let limits = limits::all();
        let most = limits.iter().map(|limit| limit.size).min();
        let tightest = limits.iter().min_by_key(|limit| limit.spare());
        MemoryLeft {
            bytes: tightest.map_or(u64::MAX, |limit| limit.left),
            limit: tightest.map_or_else(|| "what can be addressed".to_owned(), Limit::name),
            reserve: tightest.map_or(0, Limit::reserve),
            most: most.unwrap_or(u64::MAX),
        }
    }

    /// Bytes that arenas may still take.
    #[must_use]
    pub fn spare(&self) -> u64 {
        self.bytes.saturating_sub(self.reserve)
    }

    /// The most that one look takes when `bytes` are wanted and so many threads run; `None` when
    /// there is too little.
    fn at_once(&self, bytes: u64, running: u64) -> Option<u64> {
        let spare = self.spare();
        let most = (spare / SHARE / running.max(1) / STEP * STEP).max(STEP).min(spare);
        (spare >= bytes.min(STEP)).then_some(most)
    }

    /// Why an arena of `len` bytes is refused, for the text of an error.
    #[must_use]
    pub fn refusal(&self, len: u64) -> String {
        format!("{} were asked for, and there are {} in all", Bytes(len), Bytes(self.most))
    }

    /// What a person can do about it; `option` is the option that set the size.
    #[must_use]
    pub fn advice(&self, option: &str) -> String {
        format!(
            "Set the option `{option}` to less; slower tiers can hold the rest. Where the machine \
             is given more memory as it uses it (some virtual machines and sandboxes: MemTotal in \
             /proc/meminfo grows), set {VARIABLE}=0 to go on without this check; a machine that \
             does run out ends the process."
        )
    }

    /// Why an arena does not grow, as a part of a sentence.
    #[must_use]
    pub fn shortage(&self) -> String {
        let (left, reserve) = (Bytes(self.bytes), Bytes(self.reserve));
        format!("{} has {left} left, of which {reserve} stay free for other programs", self.limit)
    }
}

fn is_unchecked() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| value == "0")
}

/// What the last look allows besides what was taken at once, so that small steps share a look.
struct Allowance {
    bytes: AtomicU64,
    /// Nanoseconds of [`age`].
    until: AtomicU64,
}

static ALLOWANCE: Allowance = Allowance { bytes: AtomicU64::new(0), until: AtomicU64::new(0) };

/// Nanoseconds since the first call.
fn age() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl Allowance {
    fn take(&self, bytes: u64) -> bool {
        let less = |rest: u64| rest.checked_sub(bytes);
        age() < self.until.load(Ordering::Relaxed)
            && self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn renew(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        let fresh = u64::try_from(FRESH.as_nanos()).unwrap_or(u64::MAX);
        self.until.store(age().saturating_add(fresh), Ordering::Relaxed);
    }
}

/// How many of `bytes` bytes may be taken now: at least one. The caller makes them present at once.
///
/// # Errors
/// When too little is left.
pub(crate) fn ask(bytes: u64) -> Result<u64, MemoryLeft> {
    if bytes == 0 || ALLOWANCE.take(bytes) {
        Ok(bytes)
    } else {
        look(bytes).map(|given| given.bytes)
    }
}

/// The threads of the machine that run or could.
fn running() -> u64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    running_in(&text).unwrap_or(MANY)
}

/// That number in `/proc/loadavg`: `0.20 0.18 0.12 1/80 11206`.
fn running_in(text: &str) -> Option<u64> {
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

/// What a look gives.
struct Given {
    bytes: u64,
    /// So little is left that each look gives a huge page.
    is_little: bool,
}

fn look(bytes: u64) -> Result<Given, MemoryLeft> {
    if is_unchecked() {
        return Ok(Given { bytes, is_little: false });
    }
    let left = MemoryLeft::now();
    let Some(most) = left.at_once(bytes, running()) else { return Err(left) };
    let now = bytes.min(most);
    ALLOWANCE.renew(most - now);
    Ok(Given { bytes: now, is_little: most <= STEP })
}

/// As [`look`]; when too little is left, what the process keeps for arenas to come is given back
/// first, and what is on its way back to the system is waited for, at most 10 s.
fn look_again(bytes: u64) -> Result<Given, MemoryLeft> {
    let mut asked = look(bytes);
    if asked.is_err() && pool::trim() + crate::life::releasing() > 0 {
        release::wait_for(release::RETURNING, || {
            asked = look(bytes);
            asked.is_ok()
        });
    }
    asked
}

/// The pages of an arena.
pub trait Pages {
    /// Bytes of the arena.
    fn capacity(&self) -> u64;

    /// Bytes from the start that somebody else has made present.
    fn present(&self) -> u64;

    /// Makes the pages of the range present, without changing a byte.
    ///
    /// # Errors
    /// When the system has none.
    fn touch(&self, range: Range<u64>) -> io::Result<()>;
}

/// How far an arena has grown.
#[derive(Debug, Default)]
pub struct Growth {
    /// Bytes from the start that were taken.
    reached: AtomicU64,
    /// Those of them whose pages are known to be present. Held while the arena grows.
    present: Mutex<u64>,
}

impl Growth {
    /// Bytes from the start that were taken.
    #[must_use]
    pub fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    /// Grows until the bytes below `end` are taken. Those of the last look, if they are many, are
    /// present when they are written, which is to be soon.
    ///
    /// # Errors
    /// When too little memory is left. What was taken until then stays: [`reached`](Self::reached).
    pub fn reach(&self, end: u64, pages: &impl Pages) -> Result<(), MemoryLeft> {
        if end <= self.reached() {
            return Ok(());
        }
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        self.grow(end, pages, &mut present)
    }

    /// Grows to the end, and makes all pages present.
    ///
    /// # Errors
    /// As [`reach`](Self::reach).
    pub fn fill(&self, pages: &impl Pages) -> Result<(), MemoryLeft> {
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        self.grow(pages.capacity(), pages, &mut present)?;
        touch(pages, &mut present, pages.capacity())
    }

    fn grow(&self, end: u64, pages: &impl Pages, present: &mut u64) -> Result<(), MemoryLeft> {
        let whole = end.checked_next_multiple_of(STEP).unwrap_or(end);
        let end = whole.min(pages.capacity());
        *present = pages.present().max(*present);
        let mut reached = self.reached.fetch_max(*present, Ordering::AcqRel).max(*present);
        while reached < end {
            if ALLOWANCE.take(end - reached) {
                reached = end;
            } else {
                touch(pages, present, reached)?;
                let given = look_again(end - reached)?;
                reached += given.bytes;
                // Many may look at this moment, and the next thing that they see is this.
                if given.is_little {
                    touch(pages, present, reached)?;
                }
            }
            self.reached.store(reached, Ordering::Release);
        }
        Ok(())
    }
}

/// Makes the pages from `present` to `end` present.
fn touch(pages: &impl Pages, present: &mut u64, end: u64) -> Result<(), MemoryLeft> {
    if *present < end {
        pages.touch(*present..end).map_err(|_| MemoryLeft::now())?;
        *present = end;
    }
    Ok(())
}

#[cfg(test)]
#[path = "growth_tests.rs"]
mod tests;
