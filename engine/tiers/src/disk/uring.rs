//! Reads and writes with several requests in flight, through `io_uring`.
//!
//! A call returns only when the kernel is done with every request that it was given, whatever went
//! wrong: until then the kernel may touch the caller's memory.

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::{IoUring, opcode, types};

use crate::disk::carrier::MOST_PIECES;
use crate::disk::medium::Medium;

/// The operating system, with the bytes going through rings. Each call takes a ring for itself.
pub(super) struct Uring {
    idle: Mutex<Vec<IoUring>>,
}

impl Uring {
    /// Makes the first ring.
    ///
    /// # Errors
    /// When this system has no `io_uring` or does not let this process use it.
    pub(super) fn new() -> io::Result<Uring> {
        Ok(Uring { idle: Mutex::new(vec![new_ring()?]) })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<IoUring>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs requests for consecutive ranges and says how many bytes from the beginning of the
    /// first one on were moved without a break.
    ///
    /// # Safety
    /// The memory that the requests name is valid, and for reads borrowed exclusively, until this
    /// returns.
    unsafe fn run(&self, requests: &[(Entry, usize)]) -> io::Result<usize> {
        let idle = self.idle().pop();
        let mut ring = match idle {
            Some(ring) => ring,
            None => new_ring()?,
        };
        let mut flight = Flight::new(requests.len().min(MOST_PIECES));
        for (i, (entry, _)) in requests.iter().take(MOST_PIECES).enumerate() {
            let entry = entry.clone().user_data(i as u64);
            // SAFETY: by this function's contract; `land` returns only when no request is left.
            if unsafe { ring.submission().push(&entry) }.is_err() {
                flight.given_up(i);
                break;
            }
        }
        let clean = flight.land(&mut ring);
        if clean {
            self.idle().push(ring);
        }
        flight.moved(requests)
    }
}

fn new_ring() -> io::Result<IoUring> {
    IoUring::new(MOST_PIECES as u32)
}

/// The requests of one call.
struct Flight {
    /// The result of every request: bytes, or a negated number of an error.
    results: [Option<i32>; MOST_PIECES],
    /// Requests in the ring.
    pushed: usize,
    /// Requests that the kernel has taken.
    taken: usize,
    /// Requests that the kernel is done with.
    done: usize,
    /// Why the kernel took no more.
    refusal: Option<io::Error>,
}

impl Flight {
    fn new(pushed: usize) -> Flight {
        Flight { results: [None; MOST_PIECES], pushed, taken: 0, done: 0, refusal: None }
    }

    /// Only the first `pushed` requests are in the ring.
    fn given_up(&mut self, pushed: usize) {
        self.pushed = pushed;
    }

    /// Submits everything and waits until the kernel is done with all that it took. Says whether
    /// the ring is empty, so that it can be used again. Nothing in here may panic.
    fn land(&mut self, ring: &mut IoUring) -> bool {
        while self.taken < self.pushed || self.done < self.taken {
            match ring.submit_and_wait(1) {
                Ok(taken) => self.taken += taken,
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) if self.taken < self.pushed => {
                    // The kernel has not seen the rest, and with this ring it never will.
                    self.pushed = self.taken;
                    self.refusal = Some(cause);
                }
                // Completions arrive in shared memory; without the call we look for them.
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
            for completion in ring.completion() {
                if let Some(result) = self.results.get_mut(completion.user_data() as usize) {
                    *result = Some(completion.result());
                }
                self.done += 1;
            }
        }
        self.refusal.is_none()
    }

    /// Bytes moved without a break.
    fn moved(self, requests: &[(Entry, usize)]) -> io::Result<usize> {
        let mut moved = 0;
        for (result, (_, len)) in self.results.iter().zip(requests) {
            match *result {
                Some(bytes) if bytes >= 0 => {
                    moved += bytes.unsigned_abs() as usize;
                    if (bytes.unsigned_abs() as usize) < *len {
                        break;
                    }
                }
                Some(error) if moved == 0 => return Err(io::Error::from_raw_os_error(-error)),
                _ => break,
            }
        }
        match self.refusal {
            Some(cause) if moved == 0 => Err(cause),
            _ => Ok(moved),
        }
    }
}

/// The most bytes of one request: what the kernel moves in one call at most.
const MOST_BYTES: usize = 0x7fff_f000;

impl Medium for Uring {
    fn write(&self, file: &File, at: u64, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        let fd = types::Fd(file.as_raw_fd());
        let mut place = at;
        let request = |slice: &IoSlice<'_>| {
            let len = slice.len().min(MOST_BYTES);
            let entry = opcode::Write::new(fd, slice.as_ptr(), len as u32).offset(place).build();
            place += slice.len() as u64;
            (entry, slice.len())
        };
        let requests: Vec<(Entry, usize)> = bytes.iter().map(request).collect();
        // SAFETY: the slices are borrowed until this function returns, and so is the file.
        unsafe { self.run(&requests) }
    }

    fn read(&self, file: &File, at: u64, bytes: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let fd = types::Fd(file.as_raw_fd());
        let mut place = at;
        let request = |slice: &mut IoSliceMut<'_>| {
            let len = slice.len().min(MOST_BYTES);
            let entry = opcode::Read::new(fd, slice.as_mut_ptr(), len as u32).offset(place).build();
            place += slice.len() as u64;
            (entry, slice.len())
        };
        let requests: Vec<(Entry, usize)> = bytes.iter_mut().map(request).collect();
        // SAFETY: the slices are borrowed exclusively until this function returns.
        unsafe { self.run(&requests) }
    }
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uring").field("idle", &self.idle().len()).finish()
    }
}
