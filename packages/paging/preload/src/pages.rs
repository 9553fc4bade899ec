//! Allocations that become paged memory, and what is told of them.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Mutex, OnceLock};

use unspool_paging::{Paged, PagingError, PagingOptions, PagingStats};

use crate::next::{errno, fail, say};
use crate::settings::{FLOOR, Settings, VARIABLE};
use crate::table::{self, Entry, Taken};

/// The answer to an allocation.
pub(crate) enum Answer {
    /// It is paged memory, zeros at first, aligned to 2 MiB.
    Paged(*mut c_void),
    /// It is for the next library.
    Ordinary,
    /// It has to be paged and cannot be.
    Refused,
}

/// Makes paged memory for an allocation that is large enough.
#[inline]
pub(crate) fn allocate(bytes: usize) -> Answer {
    if bytes < FLOOR { Answer::Ordinary } else { allocate_large(bytes) }
}

fn allocate_large(bytes: usize) -> Answer {
    let before = errno();
    let Some(settings) = settings() else { return Answer::Ordinary };
    let answer = match settings.options(bytes) {
        Ok(None) => return Answer::Ordinary,
        Ok(Some(options)) => page(bytes, &options, settings),
        Err(error) => Err(error.to_string()),
    };
    let instead = match answer {
        Ok(place) => {
            fail(before);
            return Answer::Paged(place);
        }
        Err(why) if settings.require => {
            say_once(&format!("an allocation fails, since it cannot be paged: {why}"));
            Answer::Refused
        }
        Err(why) => {
            say_once(&format!("ordinary memory is used instead of paged: {why}"));
            Answer::Ordinary
        }
    };
    fail(before);
    instead
}

fn page(bytes: usize, options: &PagingOptions, settings: &Settings) -> Result<*mut c_void, String> {
    let text = |error: PagingError| error.to_string();
    let paged = Box::new(Paged::new(bytes, options).map_err(text)?);
    if settings.sweep {
        let all = 0..bytes;
        paged.expect(Some(&[all])).map_err(text)?;
    }
    let stats = paged.stats().map_err(text)?;
    let piece = if stats.kernel_faults { 0 } else { stats.chunk_bytes as usize };
    let place = table::put(paged, piece).map_err(|_| "1024 allocations are paged already.")?;
    ARRAYS.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
    Ok(place)
}

/// The settings of this process; `None` where there are none. They are read before `main`.
pub(crate) fn settings() -> Option<&'static Settings> {
    static SETTINGS: OnceLock<Option<Settings>> = OnceLock::new();
    let read = || {
        let words = std::env::var(VARIABLE).ok()?;
        let settings = Settings::read(words.lines().map(str::to_owned));
        settings.inspect_err(|why| say(&format!("nothing is paged: {VARIABLE}: {why}"))).ok()
    };
    SETTINGS.get_or_init(read).as_ref()
}

/// Whether the line of the statistics looks at memory that other threads may give back. What is
/// taken out of the table from then on is not dropped.
static ENDS: AtomicBool = AtomicBool::new(false);

/// Gives paged memory back, unless another thread has.
pub(crate) fn release(entry: &Entry) {
    let before = errno();
    match entry.take() {
        Some(Taken::Own(paged)) => {
            if let Ok(stats) = paged.stats() {
                ENDED.iter().zip(counts(&stats)).for_each(|(sum, more)| {
                    sum.fetch_add(more, Ordering::Relaxed);
                });
            }
            // Either this thread sees that it ends, or `tell` sees that the table has it no more.
            fence(Ordering::SeqCst);
            if ENDS.load(Ordering::Relaxed) {
                std::mem::forget(paged);
            }
        }
        // The place is kept from other memory: what still points there gets a signal.
        Some(Taken::Parents) | None => {}
    }
    fail(before);
}

/// Says what is wrong, once in a process: a program may do it a million times.
pub(crate) fn say_once(what: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    // A child may have been forked while it was held, and then says more than once.
    let said = SAID.try_lock();
    if said.map_or(true, |mut said| said.len() < 100 && said.insert(what.to_owned())) {
        say(what);
    }
}

/// Allocations that were paged in this process, and their bytes.
static ARRAYS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// What was counted for allocations that were given back.
static ENDED: [AtomicU64; COUNTS] = [const { AtomicU64::new(0) }; COUNTS];

const COUNTS: usize = 8;

fn counts(stats: &PagingStats) -> [u64; COUNTS] {
    [
        stats.faults,
        stats.wait_ns,
        stats.loads,
        stats.loads_ahead,
        stats.evictions,
        stats.refusals,
        stats.bytes_encoded,
        stats.bytes_stored,
    ]
}

/// Writes the line of the statistics at the end of a process that has paged anything.
pub(crate) fn tell() {
    let (arrays, bytes) = (ARRAYS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    if arrays == 0 || !settings().is_some_and(|settings| settings.stats) {
        return;
    }
    ENDS.store(true, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    let mut sum = ENDED.each_ref().map(|count| count.load(Ordering::Relaxed));
    let live = table::all().filter_map(|entry| entry.paged().and_then(|paged| paged.stats().ok()));
    live.for_each(|stats| sum.iter_mut().zip(counts(&stats)).for_each(|(sum, more)| *sum += more));
    let [faults, wait_ns, loads, ahead, evictions, refused, encoded, stored] = sum;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    say(&format!(
        "allocations {arrays}, MiB {:.1}, faults {faults}, waited {:.2} s, loads {loads} ({ahead} \
         ahead), evictions {evictions} ({refused} refused), encoded {:.1} MiB to {:.1} MiB (factor \
         {:.2})",
        mib(bytes),
        wait_ns as f64 * 1e-9,
        mib(encoded),
        mib(stored),
        encoded as f64 / stored.max(1) as f64,
    ));
}

/// Says that this process is a child and has paged nothing yet.
pub(crate) fn begin_again() {
    ENDS.store(false, Ordering::Relaxed);
    [&ARRAYS, &BYTES].into_iter().chain(&ENDED).for_each(|count| count.store(0, Ordering::Relaxed));
}
