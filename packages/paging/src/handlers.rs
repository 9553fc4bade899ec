//! The threads that answer faults and work ahead between them.
//!
//! They take no signal: a handler of the application could touch the array, and would wait for the
//! thread that it runs on.

use std::io;
use std::mem::MaybeUninit;
use std::panic::{self, AssertUnwindSafe};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use unspool_tiers::Process;

use crate::error::{PagingError, PagingErrorKind};
use crate::pager::{Pager, Scratch};

/// How long the end waits for threads that are at work.
const END: Duration = Duration::from_secs(30);

/// How long evictions that failed are left alone.
const AGAIN: Duration = Duration::from_millis(500);

/// The threads of one array. Dropped, they end; one that a disk holds up ends when that answers,
/// and the memory of the array stays until then.
#[derive(Debug)]
pub(crate) struct Handlers {
    pager: Arc<Pager>,
    alive: Arc<Alive>,
    process: Process,
}

/// How many threads there are.
#[derive(Debug, Default)]
struct Alive {
    count: Mutex<usize>,
    ended: Condvar,
}

impl Handlers {
    /// Begins with `threads` of them.
    pub(crate) fn begin(pager: Arc<Pager>, threads: usize) -> Result<Handlers, PagingError> {
        let handlers =
            Handlers { pager, alive: Arc::default(), process: Process::of(std::process::id()) };
        let _blocked = BlockedSignals::new();
        (0..threads).try_for_each(|_| handlers.spawn()).map_err(|error| {
            let message = format!("The system gives no threads or no memory for them: {error}.");
            PagingError::new(PagingErrorKind::NoMemory, message)
        })?;
        Ok(handlers)
    }

    fn spawn(&self) -> io::Result<()> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let scratch = Scratch::new(self.pager.chunk_bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let (pager, alive) = (Arc::clone(&self.pager), Arc::clone(&self.alive));
        let name = format!("unspool-page-{}", NUMBER.fetch_add(1, Ordering::Relaxed) % 100);
        *alive.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        let counted = Counted(alive);
        thread::Builder::new().name(name).spawn(move || {
            // Dropped in this order: the memory is gone when the thread is counted as ended.
            let (_counted, pager) = (counted, pager);
            let served = panic::catch_unwind(AssertUnwindSafe(|| serve(&pager, scratch)));
            if served.is_err() {
                // Who waits for what this thread was at would wait for ever.
                std::process::abort();
            }
        })?;
        Ok(())
    }

    pub(crate) fn pager(&self) -> &Pager {
        &self.pager
    }

    /// Whether this is the process that the threads are in.
    pub(crate) fn is_own_process(&self) -> bool {
        self.process.is_current()
    }
}

/// Takes one from the count when its thread ends, or could not begin.
struct Counted(Arc<Alive>);

impl Drop for Counted {
    fn drop(&mut self) {
        *self.0.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.ended.notify_all();
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        // A child has none of the threads, and maybe locks that they held.
        if !self.is_own_process() {
            return;
        }
        self.pager.ends.store(true, Ordering::Release);
        self.pager.work.raise();
        let begin = Instant::now();
        let mut count = self.alive.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count > 0 && begin.elapsed() < END {
            let waited = self.alive.ended.wait_timeout(count, Duration::from_millis(100));
            count = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn serve(pager: &Pager, mut scratch: Scratch) {
    while !pager.ends() {
        if let Some(fault) = pager.uffd.next_fault() {
            pager.answer(fault, &mut scratch);
        } else if !pager.work_ahead(&mut scratch) {
            let again = pager.is_stuck().then_some(AGAIN);
            pager.work.wait_with(pager.uffd.fd(), again);
            pager.work.clear();
            if again.is_some() {
                pager.table().decider.try_again();
            }
        }
    }
    // For the next thread.
    pager.work.raise();
}

/// All signals are blocked in this thread, and in those that it makes, until it is dropped.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn new() -> BlockedSignals {
        let mut all = MaybeUninit::uninit();
        let mut old = MaybeUninit::uninit();
        // SAFETY: both sets are filled by the calls that are given them, before they are read.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr());
            BlockedSignals(old.assume_init())
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is the one that this thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}
