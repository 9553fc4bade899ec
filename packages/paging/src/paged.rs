//! The public object: memory of which a part is in main memory at a time.

use std::io;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex};

use crate::coder::Coder;
use crate::decide::Decider;
use crate::error::{PagingError, PagingErrorKind};
use crate::handlers::Handlers;
use crate::options::PagingOptions;
use crate::pager::{Pager, Scratch};
use crate::stats::{Counters, OrderSource, PagingStats};
use crate::store::ChunkStore;
use crate::sys::{Access, EventFd, Mapping, Uffd, page_bytes};
use crate::table::{Copies, Table};

/// Bytes that may be more than fit in memory, zeros at first. Programs read and write them at
/// their address, from any thread; what is not in memory comes when it is touched, or before.
///
/// A thread that touches bytes that cannot be had back (a disk that fails, a checksum that
/// differs) ends by SIGBUS, and the process where the kernel cannot do that (before Linux 6.6): a
/// wrong value is never handed out. Bytes that cannot be put aside stay in memory, beyond the
/// limit.
///
/// A forked child does not have the memory: it may not touch it, and calls are errors there.
/// Devices and `O_DIRECT` write to memory by themselves: give them a part that is
/// [pinned](Self::pin).
#[derive(Debug)]
pub struct Paged {
    bytes: usize,
    body: Body,
}

#[derive(Debug)]
enum Body {
    /// All of it fits: ordinary memory.
    Resident(Mapping),
    /// A part of it is in memory.
    Paged(Handlers),
}

/// Chunks that stay in memory until they are given to [`Paged::unpin`].
#[derive(Debug)]
#[must_use = "what is pinned stays in memory until it is given to `unpin`"]
pub struct Pinned(Range<u32>);

impl Paged {
    /// Memory for `bytes` bytes.
    ///
    /// # Errors
    /// `Invalid` for options that do not fit; `Refused` when the kernel does not let this process
    /// answer page faults; `NoMemory`.
    pub fn new(bytes: usize, options: &PagingOptions) -> Result<Paged, PagingError> {
        let coder = Coder::new(&options.coding, &options.dtype)?;
        let (chunk_bytes, threads) = (options.chunk_bytes(), options.threads()?);
        let len = bytes.max(1).checked_next_multiple_of(page_bytes());
        let len = len
            .filter(|&len| len <= isize::MAX as usize / 2)
            .ok_or_else(|| no_memory("so many bytes"))?;
        let memory = Mapping::new(len).map_err(no_memory)?;
        if bytes as u64 <= options.resident {
            memory.prefer_huge_pages();
            return Ok(Paged { bytes, body: Body::Resident(memory) });
        }
        let chunk_bytes = chunk_bytes?;
        let chunks = u32::try_from(len.div_ceil(chunk_bytes));
        let chunks =
            chunks.map_err(|_| PagingError::invalid("Too many chunks: give larger ones."))?;
        let uffd = Uffd::open(options.user_mode_only).map_err(refused)?;
        memory.keep_from_children().map_err(refused)?;
        uffd.register(memory.start() as usize, len).map_err(refused)?;
        let room = (options.resident / chunk_bytes as u64) as usize;
        let decider = Decider::new(chunks, room, 0x9E37_79B9_7F4A_7C15);
        let copies = match options.host {
            _ if coder.is_lossy() => Copies::All,
            None => Copies::Passing,
            Some(_) => Copies::None,
        };
        let pager = Pager {
            memory,
            uffd,
            chunk_bytes,
            coder,
            store: ChunkStore::new(options.host.unwrap_or(u64::MAX), options.disk.clone()),
            table: Mutex::new(Table::new(chunks, chunk_bytes, copies, decider)),
            settled: Condvar::new(),
            work: EventFd::new().map_err(refused)?,
            ends: AtomicBool::new(false),
            counters: Counters::default(),
            zeros: vec![0; chunk_bytes],
        };
        let handlers = Handlers::begin(Arc::new(pager), threads)?;
        Ok(Paged { bytes, body: Body::Paged(handlers) })
    }

    fn memory(&self) -> &Mapping {
        match &self.body {
            Body::Resident(memory) => memory,
            Body::Paged(handlers) => &handlers.pager().memory,
        }
    }

    /// The first byte, aligned to 2 MiB. Valid as long as this lives, in this process.
    #[must_use]
    pub fn start(&self) -> *mut u8 {
        self.memory().start()
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether a part of it may be out of memory.
    #[must_use]
    pub fn is_paged(&self) -> bool {
        matches!(self.body, Body::Paged(_))
    }

    /// The pager, in the process that has one.
    fn pager(&self) -> Result<Option<&Pager>, PagingError> {
        match &self.body {
            Body::Resident(_) => Ok(None),
            Body::Paged(handlers) if handlers.is_own_process() => Ok(Some(handlers.pager())),
            Body::Paged(_) => Err(PagingError::new(
                PagingErrorKind::Forked,
                "This process is a child of the one that made the array, and does not have its \
                 memory. Make the array after the fork, or copy what the child needs before it.",
            )),
        }
    }

    /// Takes the order in which the program will go through parts (ranges of bytes) from now on,
    /// again and again; none forgets what was given. It is advice: a program that goes elsewhere is
    /// served as well.
    ///
    /// # Errors
    /// `Invalid` for an order without bytes, with some beyond the end, or of more than 2^24 chunks
    /// besides those of one sweep; `Forked`.
    pub fn expect(&self, order: Option<&[Range<usize>]>) -> Result<(), PagingError> {
        let Some(pager) = self.pager()? else { return Ok(()) };
        let entries = order.map(|parts| self.entries(parts, pager.chunk_bytes)).transpose()?;
        if !pager.table().decider.expect(entries) {
            return Err(PagingError::invalid("The order has no bytes of the array: name some."));
        }
        pager.work.raise();
        Ok(())
    }

    /// The chunks of these parts, each once where it is met several times in a row.
    fn entries(&self, parts: &[Range<usize>], chunk: usize) -> Result<Vec<u32>, PagingError> {
        /// The most chunks, besides those of one sweep.
        const MOST: usize = 1 << 24;
        let most = MOST + self.bytes / chunk;
        let mut entries: Vec<u32> = Vec::new();
        for part in parts.iter().filter(|part| !part.is_empty()) {
            if part.end > self.bytes {
                return Err(self.beyond(part));
            }
            let (first, last) = ((part.start / chunk) as u32, ((part.end - 1) / chunk) as u32);
            if entries.len() + (last - first) as usize > most {
                let message = format!(
                    "The order has more than {most} chunks. It is gone through again and again: \
                     give one round of it."
                );
                return Err(PagingError::invalid(message));
            }
            let goes_on = entries.last() == Some(&first);
            entries.extend((first..=last).skip(usize::from(goes_on)));
        }
        Ok(entries)
    }

    fn beyond(&self, part: &Range<usize>) -> PagingError {
        let message = format!(
            "Bytes {} to {} are beyond the end of an array of {}.",
            part.start, part.end, self.bytes
        );
        PagingError::invalid(message)
    }

    /// Brings a range of bytes into memory and keeps it there, whole, for system calls, devices and
    /// threads that may not wait; `writes`: also to be written to without a fault.
    ///
    /// # Errors
    /// `Invalid` for bytes beyond the end, or more than may be pinned at a time (all but one chunk
    /// of what may be in memory); `Io` and `Corrupt` when they cannot be had; `Timeout`, `Forked`,
    /// `NoMemory`. Nothing is pinned then.
    pub fn pin(&self, part: Range<usize>, writes: bool) -> Result<Pinned, PagingError> {
        if part.end > self.bytes {
            return Err(self.beyond(&part));
        }
        let none = Pinned(0..0);
        let Some(pager) = self.pager()?.filter(|_| !part.is_empty()) else { return Ok(none) };
        let chunk = pager.chunk_bytes;
        let chunks = (part.start / chunk) as u32..part.end.div_ceil(chunk) as u32;
        let access = if writes { Access::Write } else { Access::Read };
        let mut scratch = Scratch::new(chunk).ok_or_else(|| no_memory("the work"))?;
        let mut pinned = Pinned(chunks.start..chunks.start);
        for index in chunks {
            if let Err(error) = pager.pin(index, access, &mut scratch) {
                self.unpin(pinned);
                return Err(error);
            }
            pinned.0.end = index + 1;
        }
        Ok(pinned)
    }

    /// Ends a pin of this array.
    pub fn unpin(&self, pinned: Pinned) {
        if let Ok(Some(pager)) = self.pager() {
            pinned.0.for_each(|chunk| pager.unpin(chunk));
        }
    }

    /// Bytes of it that are in main memory now, as the kernel says.
    ///
    /// # Errors
    /// `NoMemory` when the kernel has none to answer.
    pub fn resident_bytes(&self) -> Result<u64, PagingError> {
        self.pager()?;
        self.memory().resident_bytes().map_err(no_memory)
    }

    /// What was done so far.
    ///
    /// # Errors
    /// `Forked`.
    pub fn stats(&self) -> Result<PagingStats, PagingError> {
        let bytes = self.bytes as u64;
        let Some(pager) = self.pager()? else {
            return Ok(PagingStats { bytes, resident_limit: bytes, ..PagingStats::default() });
        };
        let (stored_in_memory, stored_on_disk) = pager.store.bytes();
        let table = pager.table();
        let (loads_ahead, ahead_hits) = table.decider.prefetches();
        let order = match table.decider.order() {
            None => OrderSource::None,
            Some(true) => OrderSource::Given,
            Some(false) => OrderSource::Detected,
        };
        let counters = &pager.counters;
        Ok(PagingStats {
            bytes,
            resident_limit: (table.decider.room() * pager.chunk_bytes) as u64,
            chunk_bytes: pager.chunk_bytes as u64,
            kernel_faults: pager.uffd.has_kernel_faults(),
            faults: counters.faults.get(),
            write_faults: counters.write_faults.get(),
            late: counters.late.get(),
            wait_ns: counters.wait_ns.get(),
            loads: counters.loads.get(),
            loads_ahead,
            ahead_hits,
            evictions: counters.evictions.get(),
            dropped_clean: counters.dropped_clean.get(),
            refusals: counters.refusals.get(),
            lost: counters.lost.get(),
            bytes_encoded: counters.bytes_encoded.get(),
            bytes_stored: counters.bytes_stored.get(),
            bytes_decoded: counters.bytes_decoded.get(),
            lossy_most: counters.lossy_most.get(),
            stored_in_memory,
            stored_on_disk,
            order,
            last_refusal: table.last_refusal.clone(),
        })
    }
}

fn no_memory(cause: impl std::fmt::Display) -> PagingError {
    let message = format!("There is no memory for {cause}. Make the array smaller.");
    PagingError::new(PagingErrorKind::NoMemory, message)
}

fn refused(cause: io::Error) -> PagingError {
    let needs = match cause.raw_os_error() {
        Some(libc::EMFILE) => {
            "Each array needs two file descriptors or more: allow the process more of them \
             (`ulimit -n`, RLIMIT_NOFILE), or make fewer arrays at a time."
        }
        _ => {
            "It needs Linux 5.11 or later with CONFIG_USERFAULTFD, and a container needs a profile \
             that allows the system call. Without it, give a `resident` as large as the array."
        }
    };
    let message = format!(
        "The kernel does not let this process answer page faults (userfaultfd: {cause}). {needs}"
    );
    PagingError::new(PagingErrorKind::Refused, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_without_file_descriptors_names_their_limit_and_not_the_kernel() {
        let told = |errno| refused(io::Error::from_raw_os_error(errno)).to_string();
        assert!(told(libc::EMFILE).contains("ulimit -n") && !told(libc::EMFILE).contains("5.11"));
        assert!(told(libc::EPERM).contains("5.11") && !told(libc::EPERM).contains("ulimit"));
    }
}
