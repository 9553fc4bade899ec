//! `userfaultfd`: page faults that this process answers itself. The raw ioctls of
//! `include/uapi/linux/userfaultfd.h`, and what they mean.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use super::checked;

const API: u64 = 0xAA;
const FEATURE_WRITE_PROTECT: u64 = 1;
const REGISTER_MISSING: u64 = 1;
const REGISTER_WRITE_PROTECT: u64 = 2;
const COPY_WRITE_PROTECT: u64 = 2;
const WRITE_PROTECT: u64 = 1;
const USER_MODE_ONLY: libc::c_int = 1;
const EVENT_PAGE_FAULT: u8 = 0x12;
const FAULT_WRITE: u64 = 1;
const FAULT_WRITE_PROTECT: u64 = 2;

/// Makes a descriptor from `/dev/userfaultfd`.
const NEW: libc::c_ulong = 0xAA00;

/// How often, and how long each time, memory is waited for.
const SHORTAGES: u32 = 100;
const SHORTAGE: Duration = Duration::from_millis(50);

/// The number of an ioctl that reads and writes `T`.
const fn both<T>(number: u64) -> libc::c_ulong {
    3 << 30 | (size_of::<T>() as u64) << 16 | API << 8 | number
}

/// The number of an ioctl that is declared to read `T`.
const fn reads<T>(number: u64) -> libc::c_ulong {
    2 << 30 | (size_of::<T>() as u64) << 16 | API << 8 | number
}

#[repr(C)]
struct ApiRequest {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Range {
    start: u64,
    len: u64,
}

#[repr(C)]
struct Register {
    range: Range,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Copy {
    to: u64,
    from: u64,
    len: u64,
    mode: u64,
    copied: i64,
}

#[repr(C)]
struct Protect {
    range: Range,
    mode: u64,
}

#[repr(C)]
struct Poison {
    range: Range,
    mode: u64,
    updated: i64,
}

/// A message of the kernel; of a page fault, which is the only event that is asked for.
#[repr(C)]
#[derive(Clone, Copy)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread: u64,
}

/// What a thread wanted to do with the page that it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Read,
    Write,
}

/// A thread that waits for a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    pub(crate) address: usize,
    pub(crate) access: Access,
}

/// A descriptor of page faults.
#[derive(Debug)]
pub(crate) struct Uffd {
    fd: OwnedFd,
    kernel_faults: bool,
}

impl Uffd {
    /// A descriptor of the faults of this process, and of the kernel on its behalf where that is
    /// allowed and wanted.
    pub(crate) fn open(user_mode_only: bool) -> io::Result<Uffd> {
        let whole = if user_mode_only { None } else { system_call(0).or_else(|_| device()).ok() };
        let (fd, kernel_faults) = match whole {
            Some(fd) => (fd, true),
            None => (system_call(USER_MODE_ONLY)?, false),
        };
        let uffd = Uffd { fd, kernel_faults };
        let mut request = ApiRequest { api: API, features: FEATURE_WRITE_PROTECT, ioctls: 0 };
        uffd.ioctl(both::<ApiRequest>(0x3F), &mut request)?;
        Ok(uffd)
    }

    /// Whether faults of system calls are answered; else such a call fails with EFAULT.
    pub(crate) fn has_kernel_faults(&self) -> bool {
        self.kernel_faults
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn ioctl<T>(&self, number: libc::c_ulong, argument: &mut T) -> io::Result<()> {
        // SAFETY: each number is given with the structure that belongs to it. What the kernel does
        // to the memory that it names is up to the callers of the methods below.
        checked(unsafe { libc::ioctl(self.fd(), number as _, ptr::from_mut(argument)) }).map(drop)
    }

    /// Takes the faults on this range from now on.
    pub(crate) fn register(&self, start: usize, len: usize) -> io::Result<()> {
        let mode = REGISTER_MISSING | REGISTER_WRITE_PROTECT;
        let range = Range { start: start as u64, len: len as u64 };
        self.ioctl(both::<Register>(0x00), &mut Register { range, mode, ioctls: 0 })
    }

    /// Makes threads that wait for pages of this range try again.
    pub(crate) fn wake(&self, start: usize, len: usize) -> io::Result<()> {
        let mut range = Range { start: start as u64, len: len as u64 };
        self.ioctl(reads::<Range>(0x02), &mut range)
    }

    /// Fills the range, whole pages that are not there, with `bytes`, write protected if so, and
    /// wakes who waits for them. Threads see each page whole or not at all. Memory that the kernel
    /// has none of is waited for, some seconds at most.
    pub(crate) fn fill(&self, start: usize, bytes: &[u8], protect: bool) -> io::Result<()> {
        let mode = if protect { COPY_WRITE_PROTECT } else { 0 };
        let mut done = 0;
        let mut patience = SHORTAGES;
        while done < bytes.len() {
            let rest = &bytes[done..];
            let mut copy = Copy {
                to: (start + done) as u64,
                from: rest.as_ptr() as u64,
                len: rest.len() as u64,
                mode,
                copied: 0,
            };
            let result = self.ioctl(both::<Copy>(0x03), &mut copy);
            done += usize::try_from(copy.copied).unwrap_or(0);
            match result {
                // The map of the process changes: once more, from where it stopped.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && patience > 0 => {
                    patience -= 1;
                    std::thread::sleep(SHORTAGE);
                }
                result => result?,
            }
        }
        Ok(())
    }

    /// Write protects the range, or ends that and wakes who waits to write.
    pub(crate) fn protect(&self, start: usize, len: usize, protect: bool) -> io::Result<()> {
        let range = Range { start: start as u64, len: len as u64 };
        let mode = if protect { WRITE_PROTECT } else { 0 };
        loop {
            match self.ioctl(both::<Protect>(0x06), &mut Protect { range, mode }) {
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                result => return result,
            }
        }
    }

    /// Makes every access to the range, whole pages that are not there, a SIGBUS.
    pub(crate) fn poison(&self, start: usize, len: usize) -> io::Result<()> {
        let range = Range { start: start as u64, len: len as u64 };
        self.ioctl(both::<Poison>(0x08), &mut Poison { range, mode: 0, updated: 0 })
    }

    /// The next fault; `None` when nobody waits, or another thread has taken it.
    pub(crate) fn next_fault(&self) -> Option<Fault> {
        let mut message = Message { event: 0, reserved: [0; 7], flags: 0, address: 0, thread: 0 };
        let len = size_of::<Message>();
        // SAFETY: the message has the size that is said, and any bytes are one.
        let read = unsafe { libc::syscall(libc::SYS_read, self.fd(), &raw mut message, len) };
        if read != len as libc::c_long || message.event != EVENT_PAGE_FAULT {
            return None;
        }
        let writes = message.flags & (FAULT_WRITE | FAULT_WRITE_PROTECT) != 0;
        let access = if writes { Access::Write } else { Access::Read };
        Some(Fault { address: message.address as usize, access })
    }
}

fn system_call(flags: libc::c_int) -> io::Result<OwnedFd> {
    let flags = libc::c_long::from(flags | libc::O_CLOEXEC | libc::O_NONBLOCK);
    // SAFETY: userfaultfd takes no memory of ours.
    let fd = checked(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) })?;
    // SAFETY: the descriptor was just made, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// By the device, which an administrator can give users a right to.
fn device() -> io::Result<OwnedFd> {
    let device = std::fs::File::open("/dev/userfaultfd")?;
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the ioctl takes flags by value.
    let fd = checked(unsafe { libc::ioctl(device.as_raw_fd(), NEW as _, flags) })?;
    // SAFETY: the descriptor was just made, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_kernel() {
        assert_eq!(both::<ApiRequest>(0x3F), 0xC018_AA3F);
        assert_eq!(both::<Register>(0), 0xC020_AA00);
        assert_eq!(reads::<Range>(2), 0x8010_AA02);
        assert_eq!(both::<Copy>(3), 0xC028_AA03);
        assert_eq!(both::<Protect>(6), 0xC018_AA06);
        assert_eq!(both::<Poison>(8), 0xC020_AA08);
    }
}
