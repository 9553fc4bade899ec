//! Which ranges of memory are paged. It is looked at by `free`, `munmap`, `read` and others of all
//! threads, by children that were forked at any moment and by a signal handler, so it has no lock
//! and never allocates.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use unspool_paging::Paged;

/// The most ranges at a time.
const MOST: usize = 1024;

/// `start` of a slot that nobody has, and of one that a thread is changing.
const FREE: usize = 0;
const CHANGING: usize = 1;

struct Slot {
    start: AtomicUsize,
    bytes: AtomicUsize,
    /// Null in a child of the process that made it: the memory is not there.
    paged: AtomicPtr<Paged>,
    /// The bytes that are pinned at a time for a system call; 0: none have to be.
    piece: AtomicUsize,
}

static SLOTS: [Slot; MOST] = [const {
    Slot {
        start: AtomicUsize::new(FREE),
        bytes: AtomicUsize::new(0),
        paged: AtomicPtr::new(ptr::null_mut()),
        piece: AtomicUsize::new(0),
    }
}; MOST];

/// How many slots were ever in use: those from here on are free.
static USED: AtomicUsize = AtomicUsize::new(0);

/// A range that is paged. It is valid until it is taken out, which a program that frees memory
/// while it uses it has to see to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    pub(crate) piece: usize,
    paged: *const Paged,
    slot: usize,
}

impl Entry {
    /// The memory; `None` in a child, which does not have it.
    pub(crate) fn paged(&self) -> Option<&Paged> {
        // SAFETY: it was in the table when it was looked up, and its owner uses it in this call.
        unsafe { self.paged.as_ref() }
    }

    /// Whether a range of the program's is the whole of it, to the page.
    pub(crate) fn is_whole(&self, start: usize, bytes: usize) -> bool {
        start == self.start && pages(bytes) == pages(self.bytes)
    }

    /// Takes it out of the table; nothing when another thread has.
    pub(crate) fn take(&self) -> Option<Taken> {
        let slot = &SLOTS[self.slot];
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        slot.start.compare_exchange(self.start, CHANGING, order.0, order.1).ok()?;
        let paged = slot.paged.swap(ptr::null_mut(), Ordering::AcqRel);
        slot.start.store(FREE, Ordering::Release);
        if paged.is_null() {
            return Some(Taken::Parents);
        }
        // SAFETY: it was made of a box by `put`, and nobody else takes it out.
        Some(Taken::Own(unsafe { Box::from_raw(paged) }))
    }
}

/// What was in the table.
pub(crate) enum Taken {
    /// Memory of this process.
    Own(Box<Paged>),
    /// Memory of the process that this one was forked from.
    Parents,
}

/// Bytes of the whole pages that have so many.
pub(crate) fn pages(bytes: usize) -> usize {
    // SAFETY: it only reads a number.
    bytes.next_multiple_of(unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize)
}

/// Notes a range, and says where it begins; gives it back when there is no slot.
pub(crate) fn put(paged: Box<Paged>, piece: usize) -> Result<*mut c_void, Box<Paged>> {
    let order = (Ordering::AcqRel, Ordering::Relaxed);
    let free = |slot: &Slot| slot.start.compare_exchange(FREE, CHANGING, order.0, order.1).is_ok();
    let Some(at) = SLOTS.iter().position(free) else { return Err(paged) };
    USED.fetch_max(at + 1, Ordering::AcqRel);
    let (start, slot) = (paged.start(), &SLOTS[at]);
    slot.bytes.store(paged.len(), Ordering::Relaxed);
    slot.piece.store(piece, Ordering::Relaxed);
    slot.paged.store(Box::into_raw(paged), Ordering::Relaxed);
    slot.start.store(start as usize, Ordering::Release);
    Ok(start.cast())
}

fn entry(at: usize) -> Option<Entry> {
    let slot = &SLOTS[at];
    let start = slot.start.load(Ordering::Acquire);
    let entry = Entry {
        start,
        bytes: slot.bytes.load(Ordering::Acquire),
        piece: slot.piece.load(Ordering::Acquire),
        paged: slot.paged.load(Ordering::Acquire),
        slot: at,
    };
    let is_whole = start > CHANGING && slot.start.load(Ordering::Acquire) == start;
    is_whole.then_some(entry)
}

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = Entry> {
    (0..USED.load(Ordering::Acquire)).filter_map(entry)
}

/// The first one that shares a byte with this range.
pub(crate) fn touching(start: usize, bytes: usize) -> Option<Entry> {
    let end = start.saturating_add(bytes.max(1));
    all().find(|entry| entry.start < end && start < entry.start + pages(entry.bytes))
}

/// The one that begins here, which are those of `malloc`.
pub(crate) fn at(place: *mut c_void) -> Option<Entry> {
    // Paged memory is aligned to huge pages: hardly anything else is looked up.
    if place.is_null() || !(place as usize).is_multiple_of(2 << 20) {
        return None;
    }
    all().find(|entry| entry.start == place as usize)
}

/// Says that this process is a child, which has nothing of them. What it lets go of is the
/// parent's: there is no moment at which it could be given back.
pub(crate) fn leave_to_parent() {
    for slot in &SLOTS[..USED.load(Ordering::Acquire)] {
        slot.paged.store(ptr::null_mut(), Ordering::Release);
    }
}
