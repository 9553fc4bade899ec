//! What the kernel does: memory, and the faults on it.
//!
//! It is called by number where libraries may stand before a function of a program (`mmap`,
//! `munmap`, `madvise`, `read`, `write`), ours among them, which hands out memory that is made
//! here.

mod eventfd;
mod mapping;
mod uffd;

pub(crate) use eventfd::EventFd;
pub(crate) use mapping::{Mapping, page_bytes};
pub(crate) use uffd::{Access, Fault, Uffd};

use std::io;

/// The result of a system call, or its error.
fn checked(result: impl Into<i64>) -> io::Result<i64> {
    match result.into() {
        result if result < 0 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}
