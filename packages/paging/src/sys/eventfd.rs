//! A descriptor that threads in `poll` can be woken by.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::checked;

/// A counter that can be polled.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<EventFd> {
        // SAFETY: eventfd takes no memory of ours.
        let fd = checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the descriptor was just made, and nobody else has it.
        Ok(EventFd(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
    }

    /// Makes it readable, which it stays until it is cleared.
    pub(crate) fn raise(&self) {
        // A full counter is readable already.
        // SAFETY: the eight bytes live for the call.
        unsafe { libc::syscall(libc::SYS_write, self.0.as_raw_fd(), &raw const ONE, 8_usize) };
    }

    pub(crate) fn clear(&self) {
        let mut count = 0_u64;
        // SAFETY: the eight bytes live for the call, and are ours to be written.
        unsafe { libc::syscall(libc::SYS_read, self.0.as_raw_fd(), &raw mut count, 8_usize) };
    }

    /// Waits until this or `other` can be read, or as long as is said.
    pub(crate) fn wait_with(&self, other: RawFd, at_most: Option<Duration>) {
        let at_most = at_most.map_or(-1, |time| time.as_millis() as libc::c_int);
        let fd = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [fd(self.0.as_raw_fd()), fd(other)];
        // SAFETY: the array has as many entries as is said, for the call.
        unsafe { libc::poll(fds.as_mut_ptr(), 2, at_most) };
    }
}

static ONE: u64 = 1;
