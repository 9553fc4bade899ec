//! What paging has done, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that several threads add to.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn at_least(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }
}

/// What the threads of one array count.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) faults: Count,
    pub(crate) write_faults: Count,
    pub(crate) late: Count,
    pub(crate) loads: Count,
    pub(crate) evictions: Count,
    pub(crate) dropped_clean: Count,
    pub(crate) bytes_encoded: Count,
    pub(crate) bytes_stored: Count,
    pub(crate) bytes_decoded: Count,
    pub(crate) lossy_most: Count,
    pub(crate) wait_ns: Count,
    pub(crate) refusals: Count,
    pub(crate) lost: Count,
}

/// What paging has done for one array since it was made. Bytes are those of the array unless they
/// are said to be stored ones; times are sums over all threads of the program.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PagingStats {
    /// Bytes of the array.
    pub bytes: u64,
    /// The most of them that may be in memory at a time; all, where nothing is paged.
    pub resident_limit: u64,
    /// Bytes of a chunk; 0 where nothing is paged.
    pub chunk_bytes: u64,
    /// Whether system calls may be given memory that is not there.
    pub kernel_faults: bool,
    /// Times that a thread waited for bytes, or to be let write for the first time.
    pub faults: u64,
    /// Of these: a thread wrote to a chunk for the first time since it was loaded.
    pub write_faults: u64,
    /// Of these: the chunk was being loaded ahead, but was not there yet.
    pub late: u64,
    /// Nanoseconds from taking in a fault to its answer.
    pub wait_ns: u64,
    /// Chunks that were loaded.
    pub loads: u64,
    /// Of these: ahead of the program.
    pub loads_ahead: u64,
    /// Of these: the program has come to them.
    pub ahead_hits: u64,
    /// Chunks that were evicted.
    pub evictions: u64,
    /// Of these: had not changed, and were not encoded again.
    pub dropped_clean: u64,
    /// Evictions that failed: the chunk stayed, and memory may be over its limit.
    pub refusals: u64,
    /// Chunks whose bytes could not be had back.
    pub lost: u64,
    /// Bytes that were encoded.
    pub bytes_encoded: u64,
    /// Stored bytes that were made of them.
    pub bytes_stored: u64,
    /// Bytes that were decoded.
    pub bytes_decoded: u64,
    /// The most often that one chunk was encoded with a loss: no value is farther from the one that
    /// was written than so many times the bound.
    pub lossy_most: u64,
    /// Stored bytes in main memory now.
    pub stored_in_memory: u64,
    /// Stored bytes on the disk now.
    pub stored_on_disk: u64,
    /// The order that it goes by now.
    pub order: OrderSource,
    /// Why the last eviction failed; empty when none did.
    pub last_refusal: String,
}

/// Where the order that is gone by comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OrderSource {
    /// There is none, or the program does not keep it.
    #[default]
    None,
    /// The program said so.
    Given,
    /// A sweep that was found out.
    Detected,
}
