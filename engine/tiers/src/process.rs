//! The process that runs this, told from one that was forked from it without asking the system.
//!
//! A page that the kernel wipes in a forked child holds a mark. Asking for the number of the
//! process instead is a system call, which costs a fifth of a call that only notes something.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// One process.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    id: u32,
    mark: u64,
}

impl Process {
    /// The one that runs this, if that is its number, or else another one.
    #[must_use]
    pub fn of(id: u32) -> Process {
        let mark = if id == std::process::id() { mark() } else { NOBODY };
        Process { id, mark }
    }

    /// Its number.
    #[must_use]
    pub fn id(self) -> u32 {
        self.id
    }

    /// Whether it runs this.
    #[must_use]
    pub fn is_current(self) -> bool {
        self.mark == mark()
    }
}

/// The mark of a process that does not run this.
const NOBODY: u64 = u64::MAX;

/// The marks that were given in this process and in those that it was forked from.
static GIVEN: AtomicU64 = AtomicU64::new(0);

/// Zero in a process that has no mark yet; none where the system does not wipe pages.
static PAGE: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();

/// What no other process that was forked from this one, or that this one was forked from, has.
fn mark() -> u64 {
    let Some(page) = PAGE.get_or_init(system::wiped_on_fork) else {
        return u64::from(std::process::id());
    };
    match page.load(Ordering::Relaxed) {
        0 => begin(page),
        mark => mark,
    }
}

#[cold]
fn begin(page: &AtomicU64) -> u64 {
    // The count is not wiped: what was given before the fork is not given again.
    let mark = GIVEN.fetch_add(1, Ordering::Relaxed) + 1;
    let first = page.compare_exchange(0, mark, Ordering::Relaxed, Ordering::Relaxed);
    first.map_or_else(|other| other, |_| mark)
}

#[cfg(not(miri))]
mod system {
    use std::sync::atomic::AtomicU64;

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    /// A word that is zero at first, and in every forked child.
    pub(super) fn wiped_on_fork() -> Option<&'static AtomicU64> {
        let (len, access) = (size_of::<AtomicU64>(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE) }.ok()?;
        // SAFETY: the range is our mapping, which nobody has seen yet.
        if unsafe { madvise(start, len, Advice::LinuxWipeOnFork) }.is_err() {
            // SAFETY: as above. If it fails, one page stays in use.
            let _ = unsafe { munmap(start, len) };
            return None;
        }
        // SAFETY: a page of zeros is a word, aligned, and never unmapped; the kernel changes it
        // only where there is one thread, in a child that begins.
        Some(unsafe { &*start.cast::<AtomicU64>() })
    }
}

#[cfg(miri)]
mod system {
    pub(super) fn wiped_on_fork() -> Option<&'static std::sync::atomic::AtomicU64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_current_and_another_one_is_not() {
        let (own, other) = (std::process::id(), std::process::id() + 1);
        assert!(Process::of(own).is_current() && Process::of(own).is_current());
        assert!(!Process::of(other).is_current());
        assert_eq!((Process::of(own).id(), Process::of(other).id()), (own, other));
    }

    #[cfg(not(miri))]
    #[test]
    fn many_threads_agree_on_the_mark() {
        let marks: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(mark)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(marks.iter().all(|&each| each == marks[0] && each != 0));
    }
}
