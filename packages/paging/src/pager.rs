//! The doer: answers faults, loads chunks and evicts them, as the decider says.
//!
//! What holds, so that no write is lost and nobody waits for ever:
//! - Bytes in the array change only by the program, and by this file under a state of the table
//!   that one thread owns: `Coming` (filled by an ioctl that shows a page whole or not at all) and
//!   `Going` (write protected before it is read, taken away after it was put aside). A thread
//!   that writes meanwhile waits in a fault of its own.
//! - Every fault that is read is either answered, or noted in the state of the chunk (`wanted`) and
//!   answered by the thread that owns it. A fault that is out of date is answered by waking: the
//!   thread tries again, and faults again if it has to.
//! - The threads here touch the array only while they own a chunk in `Going`, all of whose pages
//!   are there. They run no code of the application, take no lock of its, wait for no other
//!   thread's fault, and do not use the codecs' shared threads, which may be waiting for a page.
//! - The lock of the table is held for bookkeeping and for ioctls on pages that are there.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::coder::{Coder, PIECE};
use crate::decide::{Ahead, Claim, Wire};
use crate::error::{PagingError, PagingErrorKind};
use crate::stats::Counters;
use crate::store::{ChunkStore, Kept};
use crate::sys::{Access, EventFd, Fault, Mapping, Uffd, page_bytes};
use crate::table::{Chunk, Origin, Table};

/// How long a load waits for evictions of other threads before it goes over the limit.
const EVICTION: Duration = Duration::from_secs(10);

/// How long a call waits for a chunk that other threads move.
const MOVE: Duration = Duration::from_secs(60);

/// An array that is paged, with all that its threads share.
#[derive(Debug)]
pub(crate) struct Pager {
    pub(crate) memory: Mapping,
    pub(crate) uffd: Uffd,
    pub(crate) chunk_bytes: usize,
    pub(crate) coder: Coder,
    pub(crate) store: ChunkStore,
    pub(crate) table: Mutex<Table>,
    /// Something that was coming or going is there or gone.
    pub(crate) settled: Condvar,
    /// Raised when there may be something to do ahead, and at the end.
    pub(crate) work: EventFd,
    pub(crate) ends: AtomicBool,
    pub(crate) counters: Counters,
    pub(crate) zeros: Vec<u8>,
}

/// The page that a chunk is left without, and its bytes.
type LeftOut = Option<(Wire, Box<[u8]>)>;

/// The memory that a thread works in.
#[derive(Debug)]
pub(crate) struct Scratch {
    piece: Vec<u8>,
    encoded: Vec<u8>,
}

impl Scratch {
    /// Memory for chunks of so many bytes, if there is any.
    pub(crate) fn new(chunk_bytes: usize) -> Option<Scratch> {
        let (mut piece, mut encoded) = (Vec::new(), Vec::new());
        piece.try_reserve_exact(PIECE).ok()?;
        // A codec may need more for a piece than the piece has.
        encoded.try_reserve_exact(chunk_bytes + chunk_bytes / 4 + 3 * PIECE).ok()?;
        piece.resize(PIECE, 0);
        Some(Scratch { piece, encoded })
    }
}

impl Pager {
    /// The table, also after a panic elsewhere: what that thread owned stays as it is.
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, table: MutexGuard<'a, Table>) -> MutexGuard<'a, Table> {
        let waited = self.settled.wait_timeout(table, Duration::from_millis(100));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Where a chunk begins, and its length.
    pub(crate) fn place(&self, chunk: u32) -> (usize, usize) {
        let offset = chunk as usize * self.chunk_bytes;
        (offset, self.chunk_bytes.min(self.memory.len() - offset))
    }

    fn address(&self, offset: usize) -> usize {
        self.memory.start() as usize + offset
    }

    /// Answers one fault.
    pub(crate) fn answer(&self, fault: Fault, scratch: &mut Scratch) {
        let begin = Instant::now();
        self.counters.faults.add(1);
        let offset = fault.address - self.memory.start() as usize;
        let chunk = (offset / self.chunk_bytes) as u32;
        let mut table = self.table();
        table.decider.touched(chunk);
        match table.chunk(chunk) {
            Chunk::Coming { wanted } => {
                self.counters.late.add(u64::from(!*wanted));
                *wanted = true;
            }
            Chunk::Going { wanted } => *wanted = true,
            Chunk::Clean { .. } | Chunk::Dirty => {
                self.counters.write_faults.add(u64::from(fault.access == Access::Write));
                self.settle(table, chunk, fault.access);
            }
            Chunk::Lost => {
                drop(table);
                self.make_unusable(chunk);
            }
            Chunk::Zero | Chunk::Stored(_) => {
                drop(table);
                if let Err(error) = self.demand(chunk, fault.access, scratch) {
                    self.lose(chunk, &error);
                }
            }
        }
        self.counters.wait_ns.add(begin.elapsed().as_nanos() as u64);
        self.work.raise();
    }

    /// Makes a chunk in memory whole, and writable for who wants to write.
    fn settle(&self, mut table: MutexGuard<'_, Table>, chunk: u32, access: Access) {
        let (offset, len) = self.place(chunk);
        let writes = access == Access::Write;
        let mut old = None;
        let mut done = Ok(());
        if let Chunk::Clean { wire, .. } = table.chunk(chunk) {
            if let Some((wire, page)) = wire.take() {
                done = self.uffd.fill(self.address(offset + page_of(wire, len)), &page, !writes);
            }
            if writes {
                done = done.and(self.uffd.protect(self.address(offset), len, false));
                if let Chunk::Clean { mut origin, .. } = table.changes(chunk, Chunk::Dirty) {
                    old = origin.take();
                }
            }
        }
        done = done.and(self.uffd.wake(self.address(offset), len));
        drop(table);
        if let Some(kept) = old {
            self.store.forget(kept);
        }
        if let Err(error) = done {
            self.end_process(chunk, &format!("the kernel refuses to show its pages: {error}"));
        }
    }

    /// Brings a chunk that is out into memory for a thread that waits, and makes room for it. What
    /// other threads move meanwhile is left to them.
    fn demand(&self, chunk: u32, access: Access, scratch: &mut Scratch) -> Result<(), PagingError> {
        let begin = Instant::now();
        let mut refused = 0;
        let mut table = self.table();
        while is_out(table.chunk(chunk)) {
            match table.decider.claim(chunk) {
                Claim::Seated => return self.load(table, chunk, Some(access), None, scratch),
                Claim::Evict(victim) => {
                    drop(table);
                    refused += u32::from(!self.evict(victim, scratch));
                    table = self.table();
                }
                Claim::Wait if begin.elapsed() < EVICTION => table = self.wait(table),
                Claim::Wait | Claim::Full => refused = u32::MAX,
            }
            if refused > 1 && is_out(table.chunk(chunk)) {
                table.decider.seat(chunk);
                return self.load(table, chunk, Some(access), None, scratch);
            }
        }
        // Another thread had the same fault: whoever it was woken by, it tries again.
        if let Chunk::Coming { wanted } | Chunk::Going { wanted } = table.chunk(chunk) {
            *wanted = true;
        } else {
            self.settle(table, chunk, access);
        }
        Ok(())
    }

    /// Fills a chunk that has a seat: for a thread that waits (`access`), or ahead of it.
    fn load(
        &self,
        mut table: MutexGuard<'_, Table>,
        chunk: u32,
        access: Option<Access>,
        wire: Option<Wire>,
        scratch: &mut Scratch,
    ) -> Result<(), PagingError> {
        let source = table.replace(chunk, Chunk::Coming { wanted: false });
        drop(table);
        let writes = access == Some(Access::Write);
        let wire = wire.filter(|_| self.place(chunk).1 > page_bytes());
        let shown = self.show(chunk, &source, writes, wire, scratch);
        let mut table = self.table();
        let Chunk::Coming { wanted } = *table.chunk(chunk) else { return Ok(()) };
        let wire = match shown {
            Ok(wire) => wire,
            Err(error) => {
                *table.chunk(chunk) = source;
                table.decider.failed(chunk);
                self.settled.notify_all();
                drop(table);
                // Nobody else answers who came meanwhile.
                if wanted {
                    self.lose(chunk, &error);
                }
                return Err(error);
            }
        };
        self.counters.loads.add(1);
        table.decider.loaded(chunk);
        let old = if writes {
            *table.chunk(chunk) = Chunk::Dirty;
            Origin::of(source).take()
        } else {
            let (origin, old) = table.origin(chunk, source);
            table.shown(chunk, origin, wire);
            old
        };
        self.settled.notify_all();
        if wanted {
            // All are woken: also who faulted on the wire, or came while the ioctl was at work.
            self.settle(table, chunk, Access::Read);
        } else {
            drop(table);
        }
        if let Some(kept) = old {
            self.store.forget(kept);
        }
        Ok(())
    }

    /// Puts the bytes of a chunk in its place, but for the page of the wire, which it gives.
    fn show(
        &self,
        chunk: u32,
        source: &Chunk,
        writes: bool,
        wire: Option<Wire>,
        scratch: &mut Scratch,
    ) -> Result<LeftOut, PagingError> {
        let (offset, len) = self.place(chunk);
        let mut left_out = None;
        let shown = match source {
            // A piece is shown as soon as it is decoded, and nobody may write before all are.
            Chunk::Stored(kept) => {
                let shown = self.read(kept, len, scratch, |at, piece| {
                    self.show_part(chunk, (at, piece), wire, true, &mut left_out)
                });
                shown.and_then(|()| if writes { self.open(offset, len) } else { Ok(()) })
            }
            Chunk::Zero => {
                self.show_part(chunk, (0, &self.zeros[..len]), wire, !writes, &mut left_out)
            }
            _ => Err(PagingError::new(PagingErrorKind::Corrupt, "Its bytes are lost.")),
        };
        match shown {
            Ok(()) => Ok(left_out),
            Err(error) if writes && matches!(source, Chunk::Zero) => {
                // The pages that are there may have been written to.
                self.end_process(chunk, &format!("the kernel shows a part of it: {error}"));
                Err(error)
            }
            Err(error) => {
                let _ = self.memory.give_back(offset, len);
                Err(error)
            }
        }
    }

    /// Lets threads write to a chunk that is shown.
    fn open(&self, offset: usize, len: usize) -> Result<(), PagingError> {
        let opened = self.uffd.protect(self.address(offset), len, false);
        opened.map_err(|error| unshown(&error))
    }

    /// Shows some bytes of a chunk, given with their place in it, but for the page of the wire.
    fn show_part(
        &self,
        chunk: u32,
        (at, bytes): (usize, &[u8]),
        wire: Option<Wire>,
        protect: bool,
        left_out: &mut LeftOut,
    ) -> Result<(), PagingError> {
        let (offset, len) = self.place(chunk);
        let place = self.address(offset + at);
        let page = page_bytes();
        let filled = match wire {
            Some(Wire::First) if at == 0 => {
                let (missing, rest) = bytes.split_at(page);
                *left_out = Some((Wire::First, missing.into()));
                self.uffd.fill(place + page, rest, protect)
            }
            Some(Wire::Last) if at + bytes.len() == len => {
                let (rest, missing) = bytes.split_at(bytes.len() - page);
                *left_out = Some((Wire::Last, missing.into()));
                self.uffd.fill(place, rest, protect)
            }
            _ => self.uffd.fill(place, bytes, protect),
        };
        filled.map_err(|error| unshown(&error))
    }

    /// Decodes a chunk of `len` bytes, a piece at a time.
    fn read(
        &self,
        kept: &Kept,
        len: usize,
        scratch: &mut Scratch,
        mut each: impl FnMut(usize, &[u8]) -> Result<(), PagingError>,
    ) -> Result<(), PagingError> {
        self.counters.bytes_decoded.add(len as u64);
        let Scratch { piece, encoded } = scratch;
        self.store.get(kept, encoded, |bytes| self.coder.decode(bytes, len, piece, &mut each))
    }

    /// Takes a chunk that the decider has chosen out of memory; false when it had to stay.
    fn evict(&self, chunk: u32, scratch: &mut Scratch) -> bool {
        let (offset, len) = self.place(chunk);
        let mut table = self.table();
        let old = table.changes(chunk, Chunk::Going { wanted: false });
        drop(table);
        let result = match old {
            Chunk::Clean { origin: Origin::Dropped, wire } => {
                self.complete(chunk, wire).and_then(|()| self.put_aside(chunk, scratch))
            }
            Chunk::Clean { mut origin, .. } => {
                self.counters.dropped_clean.add(1);
                Ok(origin.take())
            }
            _ => self.put_aside(chunk, scratch),
        };
        let gone = result.and_then(|kept| match self.memory.give_back(offset, len) {
            Ok(()) => Ok(kept),
            Err(error) => {
                kept.into_iter().for_each(|kept| self.store.forget(kept));
                Err(unshown(&error))
            }
        });
        let mut table = self.table();
        let wanted = matches!(table.chunk(chunk), Chunk::Going { wanted: true });
        let evicted = gone.is_ok();
        match gone {
            Ok(kept) => {
                self.counters.evictions.add(1);
                *table.chunk(chunk) = kept.map_or(Chunk::Zero, Chunk::Stored);
                table.decider.evicted(chunk);
            }
            Err(error) => {
                self.counters.refusals.add(1);
                table.last_refusal = error.to_string();
                *table.chunk(chunk) = Chunk::Clean { origin: Origin::Dropped, wire: None };
                table.decider.stays(chunk);
                self.settled.notify_all();
                self.settle(table, chunk, Access::Write);
                return false;
            }
        }
        self.settled.notify_all();
        drop(table);
        if wanted && let Err(error) = self.demand(chunk, Access::Read, scratch) {
            self.lose(chunk, &error);
        }
        evicted
    }

    /// Fills the page that a chunk was left without, before all of it is read.
    fn complete(&self, chunk: u32, wire: Option<(Wire, Box<[u8]>)>) -> Result<(), PagingError> {
        let Some((wire, page)) = wire else { return Ok(()) };
        let (offset, len) = self.place(chunk);
        let filled = self.uffd.fill(self.address(offset + page_of(wire, len)), &page, true);
        if let Err(error) = filled {
            // Its bytes are nowhere else.
            self.end_process(chunk, &format!("the kernel refuses to show a page: {error}"));
        }
        Ok(())
    }

    /// Encodes a chunk that is `Going` and stores it; `None`: it is all zeros.
    fn put_aside(&self, chunk: u32, scratch: &mut Scratch) -> Result<Option<Kept>, PagingError> {
        let (offset, len) = self.place(chunk);
        let protected = self.uffd.protect(self.address(offset), len, true);
        protected.map_err(|error| unshown(&error))?;
        // SAFETY: all pages of the chunk are there, since only the owner of its state takes them
        // away, and they are write protected: whoever writes waits until this has ended.
        let bytes = unsafe { std::slice::from_raw_parts(self.memory.start().add(offset), len) };
        if bytes == &self.zeros[..len] {
            return Ok(None);
        }
        let encoded = self.coder.encode(bytes, &mut scratch.encoded);
        encoded.map_err(|error| PagingError::new(PagingErrorKind::Invalid, error.to_string()))?;
        let kept = self.store.put(&scratch.encoded)?;
        self.counters.bytes_encoded.add(len as u64);
        self.counters.bytes_stored.add(scratch.encoded.len() as u64);
        if self.coder.is_lossy() {
            let count = &mut self.table().lossy[chunk as usize];
            *count += 1;
            self.counters.lossy_most.at_least(u64::from(*count));
        }
        Ok(Some(kept))
    }

    /// Does one thing ahead of the program; false when there is none.
    pub(crate) fn work_ahead(&self, scratch: &mut Scratch) -> bool {
        let mut table = self.table();
        let Some(next) = table.decider.ahead() else { return false };
        // There may be more, for another thread.
        self.work.raise();
        match next {
            Ahead::Evict(chunk) => {
                drop(table);
                self.evict(chunk, scratch);
            }
            // A load that failed is tried again, and answered for, when the program comes to it.
            Ahead::Load(chunk, wire) if is_out(table.chunk(chunk)) => {
                drop(self.load(table, chunk, None, wire, scratch));
            }
            Ahead::Load(chunk, _) => table.decider.failed(chunk),
        }
        true
    }

    /// Keeps a chunk in memory, whole, until [`unpin`](Self::unpin), and writable if so.
    pub(crate) fn pin(
        &self,
        chunk: u32,
        access: Access,
        scratch: &mut Scratch,
    ) -> Result<(), PagingError> {
        if !self.table().decider.pin(chunk) {
            return Err(PagingError::invalid(
                "So much of the array cannot be pinned at a time: it would leave no room in \
                 memory for the rest. Pin less, or give a larger `resident`.",
            ));
        }
        let brought = self.bring(chunk, access, scratch);
        if brought.is_err() {
            self.unpin(chunk);
        }
        brought
    }

    fn bring(&self, chunk: u32, access: Access, scratch: &mut Scratch) -> Result<(), PagingError> {
        let begin = Instant::now();
        loop {
            let mut table = self.table();
            match table.chunk(chunk) {
                Chunk::Clean { .. } | Chunk::Dirty => {
                    self.settle(table, chunk, access);
                    return Ok(());
                }
                Chunk::Zero | Chunk::Stored(_) => {
                    drop(table);
                    self.demand(chunk, access, scratch)?;
                }
                Chunk::Lost => {
                    let message = "These bytes of the array are lost.";
                    return Err(PagingError::new(PagingErrorKind::Corrupt, message));
                }
                _ if begin.elapsed() > MOVE => {
                    let message = "A chunk of the array has been on its way for a minute.";
                    return Err(PagingError::new(PagingErrorKind::Timeout, message));
                }
                _ => drop(self.wait(table)),
            }
        }
    }

    pub(crate) fn unpin(&self, chunk: u32) {
        self.table().decider.unpin(chunk);
        self.work.raise();
    }

    /// Whether more is in memory than may be, since it cannot be put aside.
    pub(crate) fn is_stuck(&self) -> bool {
        self.table().decider.is_stuck()
    }

    /// Whether this is the end.
    pub(crate) fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }

    /// Gives up a chunk that a thread waits for: no wrong value is handed out, so the thread ends
    /// by SIGBUS, and where the kernel cannot do that the process does.
    fn lose(&self, chunk: u32, error: &PagingError) {
        let mut table = self.table();
        if is_out(table.chunk(chunk)) {
            *table.chunk(chunk) = Chunk::Lost;
            self.counters.lost.add(1);
            self.say(chunk, &error.to_string(), "The thread that needs them ends by SIGBUS.");
        }
        drop(table);
        self.settled.notify_all();
        self.make_unusable(chunk);
    }

    fn make_unusable(&self, chunk: u32) {
        let (offset, len) = self.place(chunk);
        match self.uffd.poison(self.address(offset), len) {
            Err(error) if error.raw_os_error() != Some(libc::EEXIST) => {
                self.end_process(chunk, "the kernel has no UFFDIO_POISON (Linux 6.6)");
            }
            _ => drop(self.uffd.wake(self.address(offset), len)),
        }
    }

    fn end_process(&self, chunk: u32, why: &str) {
        self.say(chunk, why, "The process ends, since it would wait for ever.");
        std::process::abort();
    }

    /// Says on the error output what no call can say: a page fault has no answer but bytes.
    fn say(&self, chunk: u32, why: &str, then: &str) {
        let (offset, len) = self.place(chunk);
        let end = offset + len;
        let text =
            format!("unspool.paged: bytes {offset} to {end} of an array are lost: {why} {then}\n");
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

fn is_out(chunk: &Chunk) -> bool {
    matches!(chunk, Chunk::Zero | Chunk::Stored(_))
}

/// Where in a chunk of `len` bytes the page of a wire begins.
fn page_of(wire: Wire, len: usize) -> usize {
    match wire {
        Wire::First => 0,
        Wire::Last => len - page_bytes(),
    }
}

fn unshown(error: &io::Error) -> PagingError {
    let message =
        format!("The kernel refuses to move pages: {error}. Is memory locked or limited?");
    PagingError::new(PagingErrorKind::NoMemory, message)
}
