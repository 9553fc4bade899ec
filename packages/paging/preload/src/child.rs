//! A child that was forked. It does not have its parent's paged memory. Nothing else is mapped at
//! those addresses in the child, so that an old pointer never reads a wrong value: a child that
//! uses one prints why, and ends by SIGSEGV.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::next::{self, say_bytes};
use crate::pages;
use crate::table;

/// Has [`forked`] called in every child.
pub(crate) fn watch() {
    // SAFETY: the function takes nothing and stays where it is.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

extern "C" fn forked() {
    table::leave_to_parent();
    pages::begin_again();
    let mut any = false;
    for entry in table::all() {
        any = true;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let flags = flags | libc::MAP_FIXED_NOREPLACE;
        let (place, bytes) = (entry.start as *mut c_void, table::pages(entry.bytes));
        // SAFETY: nothing is there, and nothing that is there is replaced.
        unsafe { next::mmap(place, bytes, libc::PROT_NONE, flags, -1, 0) };
    }
    if any {
        explain_faults();
    }
}

/// Has the signal of a bad access explained, in a program that has no handler of its own.
fn explain_faults() {
    // SAFETY: plain records, for which zeros are a value; the handler keeps to what a handler may.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGSEGV, ptr::null(), &raw mut old);
        if old.sa_sigaction != libc::SIG_DFL {
            return;
        }
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = explain as *const () as libc::sighandler_t;
        new.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND;
        libc::sigaction(libc::SIGSEGV, &raw const new, ptr::null_mut());
    }
}

/// Says what it was, and has the signal come once more, which ends the process: one that somebody
/// sends is not followed by another.
extern "C" fn explain(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel's record of this signal.
    let address = unsafe { (*info).si_addr() } as usize;
    if table::touching(address, 1).is_some_and(|entry| entry.paged().is_none()) {
        say_bytes(
            b"unspool-paging: this process is a child that was forked, and uses paged memory of \
              its parent, which it does not have: it ends. Allocate after the fork.\n",
        );
    }
    // SAFETY: it waits until this handler returns, and is then not handled.
    unsafe { libc::raise(libc::SIGSEGV) };
}
