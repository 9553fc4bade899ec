//! Keeping the page cache clean where bytes have to go through it.
//!
//! A history that is larger than the memory must not push everything else out of it. After a write
//! the bytes are brought to the medium and forgotten, one chunk after the writer, so that at most
//! two chunks of a call are ever in the cache.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;

use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;

/// Tells the kernel to begin to write a range of the file.
pub(super) fn start_writing(file: &File, at: u64, len: u64) -> io::Result<()> {
    sync_range(file, at, len, libc::SYNC_FILE_RANGE_WRITE)
}

/// Waits until a range of the file is on the medium and drops it from the cache.
pub(super) fn finish_writing(file: &File, at: u64, len: u64) -> io::Result<()> {
    let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_range(file, at, len, all)?;
    forget(file, at, len);
    Ok(())
}

/// Tells the kernel that a range of the file is about to be read, all of it.
pub(super) fn announce(file: &File, at: u64, len: u64) {
    let _ = fadvise(file, at, NonZeroU64::new(len), Advice::WillNeed);
}

/// Drops a range of the file from the cache. Advice only: nothing depends on it.
pub(super) fn forget(file: &File, at: u64, len: u64) {
    let _ = fadvise(file, at, NonZeroU64::new(len), Advice::DontNeed);
}

fn sync_range(file: &File, at: u64, len: u64, flags: u32) -> io::Result<()> {
    let (at, len) = (at.cast_signed(), len.cast_signed());
    // SAFETY: a system call on an open file with no pointers.
    let done = unsafe { libc::sync_file_range(file.as_raw_fd(), at, len, flags) };
    if done == 0 {
        return Ok(());
    }
    let cause = io::Error::last_os_error();
    match Errno::from_io_error(&cause) {
        // Not every file system and sandbox knows this call. The bytes then stay in the cache.
        Some(Errno::INVAL | Errno::SPIPE | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => Ok(()),
        _ => Err(cause),
    }
}
