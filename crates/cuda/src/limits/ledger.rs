//! The account of promised host memory. Arenas use no memory until they are written, so the
//! system's free memory does not show what they will need. All arenas of the process share one
//! account, and the processes of a node see each other's, so that the same memory is not promised
//! twice.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bytes::Bytes;
use crate::host::pool;
use crate::limits::node::{self, Record};
use crate::limits::{HostLimits, Tightest};
use crate::release;

/// The environment variable that turns the check off, set to 0.
const VARIABLE: &str = "UNSPOOL_CHECK_FREE";

/// Bytes that are promised to arenas and not yet written, and those that are. Written bytes are
/// part of the system's own accounts.
#[derive(Clone, Copy, Debug)]
struct Ledger(&'static Record);

/// How much host memory this process can still get, and what limits it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryLeft {
    /// Bytes left, including those that are promised and those that are kept for arenas to come;
    /// `u64::MAX` where nothing can be read.
    pub bytes: u64,
    /// What limits it: `the machine (MemAvailable)`, or the limit of a control group by its file.
    pub limit: String,
    /// Those of the bytes that are promised to arenas of this process and of others.
    pub promised: u64,
    /// Bytes that arenas of other processes of this user have written; not part of the others.
    pub written_elsewhere: u64,
}

/// Reads how much host memory is left at this moment.
#[must_use]
pub fn memory_left() -> MemoryLeft {
    let mut left = Look::now().left;
    left.bytes = left.bytes.saturating_add(pool::kept());
    left
}

/// Bytes left without giving anything back.
pub(crate) fn free_now() -> u64 {
    Look::now().left.bytes
}

/// What is left at one moment, without giving anything back.
struct Look {
    ledger: Ledger,
    left: MemoryLeft,
    /// What all processes together may still promise.
    most: u64,
}

impl Look {
    fn now() -> Look {
        let limits = HostLimits::read();
        let group = node::number_of(limits.control_group_file.as_deref());
        let (ledger, others) = (Ledger(node::own(group)), node::others(group));
        let tightest = limits.tightest(&others).unwrap_or_else(unknown);
        let (most, elsewhere) = (tightest.most(), tightest.promised_elsewhere);
        let promised = ledger.0.promised.load(Ordering::Relaxed).saturating_add(elsewhere);
        let Tightest { bytes, name: limit, .. } = tightest;
        let left = MemoryLeft { bytes, limit, promised, written_elsewhere: others.written };
        Look { ledger, left, most }
    }
}

fn unknown() -> Tightest {
    let name = "what can be addressed".to_owned();
    Tightest { bytes: u64::MAX, name, promised_elsewhere: 0 }
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
    ledger: Ledger,
    /// In a forked child it counts for nothing.
    process: u32,
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
        let once = || {
            node::with_turn(|| {
                let Look { ledger, left, most } = Look::now();
                ledger.promise(bytes.clone(), most).ok_or(left)
            })
        };
        let mut promise = once();
        if promise.is_err() {
            pool::trim();
            release::wait_for(release::RETURNING, || {
                promise = once();
                promise.is_ok()
            });
        }
        promise
    }

    /// Promises the `bytes` of an arena whatever the machine has, so that other promises take them
    /// into account.
    #[must_use]
    pub fn anyway(bytes: Range<u64>) -> MemoryPromise {
        Look::now().ledger.take(bytes)
    }

    /// Counts the bytes below `end` as written; they are, or are about to be.
    pub fn kept_up_to(&self, end: u64) {
        let end = end.min(self.len);
        let before = self.kept.fetch_max(end, Ordering::Relaxed);
        if end > before && self.process == std::process::id() {
            let Record { promised, written, .. } = self.ledger.0;
            promised.fetch_sub(end - before, Ordering::Relaxed);
            written.fetch_add(end - before, Ordering::Relaxed);
        }
    }
}

impl Drop for MemoryPromise {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            let kept = self.kept.load(Ordering::Relaxed);
            self.ledger.0.promised.fetch_sub(self.len - kept, Ordering::Relaxed);
            self.ledger.0.written.fetch_sub(kept, Ordering::Relaxed);
        }
    }
}

impl Ledger {
    /// Promises these bytes, if no more than `most` are promised then.
    fn promise(self, Range { start, end }: Range<u64>, most: u64) -> Option<MemoryPromise> {
        // One atomic step, so that a refused request is never counted against another one.
        let fits = |promised: u64| promised.checked_add(end - start).filter(|&all| all <= most);
        let promised = &self.0.promised;
        promised.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(self.counted(start, end))
    }

    fn take(self, Range { start, end }: Range<u64>) -> MemoryPromise {
        // Not counted on overflow, so that the sum stays right when promises are taken back.
        let with = |promised: u64| promised.checked_add(end - start);
        let counted = self.0.promised.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with);
        self.counted(start, counted.map_or(start, |_| end))
    }

    fn counted(self, start: u64, len: u64) -> MemoryPromise {
        self.0.written.fetch_add(start, Ordering::Relaxed);
        let process = std::process::id();
        MemoryPromise { ledger: self, process, len, kept: AtomicU64::new(start) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A separate ledger, because other tests make promises concurrently.
    fn ledger() -> Ledger {
        Ledger(Box::leak(Box::new(Record::of(0))))
    }

    fn counts(ledger: Ledger) -> (u64, u64) {
        (ledger.0.promised.load(Ordering::Relaxed), ledger.0.written.load(Ordering::Relaxed))
    }

    #[test]
    fn more_than_there_is_is_refused_with_the_numbers_the_option_and_a_way_on() {
        let left = MemoryLeft {
            bytes: 3 << 30,
            limit: "a test".to_owned(),
            promised: 0,
            written_elsewhere: 0,
        };
        let text = left.refusal(4 << 30);
        assert!(text.contains("4 GiB were asked for; 3 GiB are free by a test, 0 bytes"), "{text}");
        let advice = left.advice("host");
        for part in ["`host` to at most 3221225472 bytes", "MemTotal", "UNSPOOL_CHECK_FREE=0"] {
            assert!(advice.contains(part), "{part} is not in: {advice}");
        }
        let some = MemoryLeft { promised: 1 << 30, ..left };
        assert_eq!(some.unpromised(), 2 << 30);
    }

    #[test]
    fn what_was_promised_and_not_yet_written_is_not_promised_again() {
        let (ledger, most) = (ledger(), 1 << 50);
        let first = ledger.promise(0..3 << 48, most).unwrap();
        assert!(ledger.promise(0..1 << 49, most).is_none());
        first.kept_up_to(1 << 49);
        first.kept_up_to(1 << 48);
        assert_eq!(counts(ledger), (1 << 48, 1 << 49));
        drop(ledger.promise(0..1 << 49, most).unwrap());
        drop(first);
        assert_eq!(counts(ledger), (0, 0));
    }

    #[test]
    fn bytes_that_are_written_already_are_not_promised() {
        let ledger = ledger();
        let again = ledger.promise(6 << 30..8 << 30, 2 << 30).unwrap();
        again.kept_up_to(7 << 30);
        assert_eq!(counts(ledger), (1 << 30, 7 << 30));
        drop(again);
        assert_eq!(counts(ledger), (0, 0));
    }

    #[test]
    fn a_promise_that_is_made_anyway_counts_for_others() {
        let ledger = ledger();
        let first = ledger.take(0..10 << 30);
        assert!(ledger.promise(0..1, 1 << 30).is_none());
        drop(ledger.take(0..u64::MAX));
        assert_eq!(counts(ledger), (10 << 30, 0));
        drop(first);
        assert!(ledger.promise(0..1, 1 << 30).is_some());
    }

    #[test]
    fn this_machine_says_how_much_is_left_and_who_says_so() {
        let left = memory_left();
        assert!(left.bytes > 1 << 20 && !left.limit.is_empty(), "{left:?}");
        assert_ne!(left.limit, unknown().name);
    }
}
