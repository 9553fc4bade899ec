//! The account of promised host memory. Arenas use no memory until they are written, so the
//! system's free memory does not show what they will need. All arenas of the process share one
//! account, so that the same memory is not promised twice.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bytes::Bytes;
use crate::host::pool;
use crate::limits::HostLimits;
use crate::release;

/// The environment variable that turns the check off, set to 0.
const VARIABLE: &str = "UNSPOOL_CHECK_FREE";

/// Bytes that are promised to arenas and not yet written. Written bytes are part of the system's
/// own accounts.
#[derive(Debug, Default)]
struct Ledger(AtomicU64);

/// The account of all arenas of this process.
static PROCESS: Ledger = Ledger(AtomicU64::new(0));

/// How much host memory this process can still get, and what limits it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryLeft {
    /// Bytes left, including those that are promised and those that are kept for arenas to come;
    /// `u64::MAX` where nothing can be read.
    pub bytes: u64,
    /// What limits it: `the machine (MemAvailable)`, or the limit of a control group by its file.
    pub limit: String,
    /// Those of the bytes that are promised to arenas of this process.
    pub promised: u64,
}

/// Reads how much host memory is left at this moment.
#[must_use]
pub fn memory_left() -> MemoryLeft {
    let left = free();
    MemoryLeft { bytes: left.bytes.saturating_add(pool::kept()), ..left }
}

/// Bytes left without giving anything back.
pub(crate) fn free_now() -> u64 {
    free().bytes
}

fn free() -> MemoryLeft {
    let (bytes, limit) = HostLimits::read().tightest().unwrap_or_else(unknown);
    MemoryLeft { bytes, limit, promised: PROCESS.0.load(Ordering::Relaxed) }
}

fn unknown() -> (u64, String) {
    (u64::MAX, "what can be addressed".to_owned())
}

impl MemoryLeft {
    /// Bytes left that are not promised.
    #[must_use]
    pub fn unpromised(&self) -> u64 {
        self.bytes.saturating_sub(self.promised)
    }

    /// Why `len` bytes are refused, for the text of an error.
    #[must_use]
    pub fn refusal(&self, len: u64) -> String {
        format!(
            "{} were asked for; {} are free by {}, {} of them promised to other arenas",
            Bytes(len),
            Bytes(self.bytes),
            self.limit,
            Bytes(self.promised.min(self.bytes))
        )
    }

    /// What a person can do about it; `option` is the option that set the size.
    #[must_use]
    pub fn advice(&self, option: &str) -> String {
        format!(
            "Set the option `{option}` to at most {} bytes; slower tiers can hold the rest. Where \
             the machine is given more memory as it uses it (some virtual machines and sandboxes: \
             MemTotal in /proc/meminfo grows), set {VARIABLE}=0 to go on without this check; a \
             machine that does run out ends the process.",
            self.unpromised()
        )
    }
}

/// A promise of host memory to an arena; dropping it takes the promise back.
#[derive(Debug)]
pub struct MemoryPromise {
    ledger: &'static Ledger,
    len: u64,
    /// The end of the prefix that counts as written.
    kept: AtomicU64,
}

impl MemoryPromise {
    /// Promises the `bytes` of an arena: those before them are written already. When memory is
    /// short it takes back what is kept for arenas to come, and waits, at most 10 s, for what is on
    /// its way back to the system. With `UNSPOOL_CHECK_FREE=0` in the environment it never refuses.
    ///
    /// # Errors
    /// When the machine has less than that besides what is in use and promised.
    pub fn make(bytes: Range<u64>) -> Result<MemoryPromise, MemoryLeft> {
        let unchecked = std::env::var_os(VARIABLE).is_some_and(|value| value == "0");
        if unchecked {
            return Ok(MemoryPromise::anyway(bytes));
        }
        let mut promise = PROCESS.promise(bytes.clone(), &free());
        if promise.is_err() {
            pool::trim();
            release::wait_for(release::RETURNING, || {
                promise = PROCESS.promise(bytes.clone(), &free());
                promise.is_ok()
            });
        }
        promise
    }

    /// Promises the `bytes` of an arena whatever the machine has, so that other promises take them
    /// into account.
    #[must_use]
    pub fn anyway(bytes: Range<u64>) -> MemoryPromise {
        PROCESS.take(bytes)
    }

    /// Counts the bytes below `end` as written; they are, or are about to be.
    pub fn kept_up_to(&self, end: u64) {
        let end = end.min(self.len);
        let before = self.kept.fetch_max(end, Ordering::Relaxed);
        self.ledger.0.fetch_sub(end.saturating_sub(before), Ordering::Relaxed);
    }
}

impl Drop for MemoryPromise {
    fn drop(&mut self) {
        let left = self.len - self.kept.load(Ordering::Relaxed);
        self.ledger.0.fetch_sub(left, Ordering::Relaxed);
    }
}

impl Ledger {
    fn promise(
        &'static self,
        Range { start, end }: Range<u64>,
        left: &MemoryLeft,
    ) -> Result<MemoryPromise, MemoryLeft> {
        // One atomic step, so that a refused request is never counted against another one.
        let with = |promised: u64| promised.checked_add(end - start);
        let fits = |promised: u64| with(promised).filter(|&all| all <= left.bytes);
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(MemoryPromise { ledger: self, len: end, kept: AtomicU64::new(start) }),
            Err(promised) => Err(MemoryLeft { promised, ..left.clone() }),
        }
    }

    fn take(&'static self, Range { start, end }: Range<u64>) -> MemoryPromise {
        // Not counted on overflow, so that the sum stays right when promises are taken back.
        let with = |promised: u64| promised.checked_add(end - start);
        let counted = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with);
        let len = counted.map_or(start, |_| end);
        MemoryPromise { ledger: self, len, kept: AtomicU64::new(start) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A separate ledger, because other tests make promises concurrently.
    fn ledger() -> &'static Ledger {
        Box::leak(Box::default())
    }

    fn machine(bytes: u64) -> MemoryLeft {
        MemoryLeft { bytes, limit: "a test".to_owned(), promised: 0 }
    }

    #[test]
    fn more_than_there_is_is_refused_with_the_numbers_the_option_and_a_way_on() {
        let refused = ledger().promise(0..4 << 30, &machine(3 << 30)).unwrap_err();
        let text = refused.refusal(4 << 30);
        assert!(text.contains("4 GiB were asked for; 3 GiB are free by a test, 0 bytes"), "{text}");
        let advice = refused.advice("host");
        for part in ["`host` to at most 3221225472 bytes", "MemTotal", "UNSPOOL_CHECK_FREE=0"] {
            assert!(advice.contains(part), "{part} is not in: {advice}");
        }
    }

    #[test]
    fn what_was_promised_and_not_yet_written_is_not_promised_again() {
        let (ledger, machine) = (ledger(), machine(1 << 50));
        let first = ledger.promise(0..3 << 48, &machine).unwrap();
        let refused = ledger.promise(0..1 << 49, &machine).unwrap_err();
        assert_eq!((refused.promised, refused.unpromised()), (3 << 48, 1 << 48));
        first.kept_up_to(1 << 49);
        first.kept_up_to(1 << 48);
        drop(ledger.promise(0..1 << 49, &machine).unwrap());
        drop(first);
        assert_eq!(ledger.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn bytes_that_are_written_already_are_not_promised() {
        let ledger = ledger();
        let again = ledger.promise(6 << 30..8 << 30, &machine(2 << 30)).unwrap();
        again.kept_up_to(7 << 30);
        assert_eq!(ledger.0.load(Ordering::Relaxed), 1 << 30);
        drop(again);
        assert_eq!(ledger.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_promise_that_is_made_anyway_counts_for_others() {
        let ledger = ledger();
        let first = ledger.take(0..10 << 30);
        assert!(ledger.promise(0..1, &machine(1 << 30)).is_err());
        drop(ledger.take(0..u64::MAX));
        assert_eq!(ledger.0.load(Ordering::Relaxed), 10 << 30);
        drop(first);
        assert!(ledger.promise(0..1, &machine(1 << 30)).is_ok());
    }

    #[test]
    fn this_machine_says_how_much_is_left_and_who_says_so() {
        let left = memory_left();
        assert!(left.bytes > 1 << 20 && !left.limit.is_empty(), "{left:?}");
        assert_ne!((left.bytes, left.limit), unknown());
    }
}
