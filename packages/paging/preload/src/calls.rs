//! System calls on memory that is not there. Where the kernel does not give its own faults to this
//! process they would fail with `EFAULT`, so the bytes are pinned meanwhile, a chunk at a time.

use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use libc::{FILE, off_t, size_t, ssize_t};
use unspool_paging::{Paged, PagingErrorKind, Pinned};

use crate::next::{self, errno, fail};
use crate::pages::say_once;
use crate::table::{self, Entry};

/// How long a call waits for pins of other threads to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a call does with the bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Fills,
    Takes,
}

/// Calls `call` with the address and length of one part after the other, and with how many bytes
/// are done: once for memory that needs no pin. Stops at what is less than was asked for, or where
/// `goes_on` says so, and gives the sum.
fn in_parts(
    place: *const c_void,
    bytes: usize,
    does: Does,
    goes_on: impl Fn() -> bool,
    mut call: impl FnMut(*mut c_void, usize, usize) -> ssize_t,
) -> ssize_t {
    let entry = table::touching(place as usize, bytes).filter(|entry| entry.piece > 0);
    let own = entry.as_ref().and_then(|entry| Some((entry, entry.paged()?)));
    let Some((entry, paged)) = own else { return call(place.cast_mut(), bytes, 0) };
    let mut done = 0;
    while done == 0 || (done < bytes && goes_on()) {
        let at = place.wrapping_byte_add(done).cast_mut();
        let part = part(entry, at as usize, bytes - done, bytes);
        let Some(pinned) = pin(entry, paged, at as usize, part, does) else {
            fail(libc::EFAULT);
            return if done == 0 { -1 } else { done as ssize_t };
        };
        let result = call(at, part, done);
        let said = errno();
        paged.unpin(pinned);
        fail(said);
        if result < 0 {
            return if done == 0 { result } else { done as ssize_t };
        }
        done += result as usize;
        if (result as usize) < part || bytes == 0 {
            break;
        }
    }
    done as ssize_t
}

/// How much is done at a time: all of a short call, so that it stays one, or else to the end of the
/// chunk.
fn part(entry: &Entry, at: usize, rest: usize, whole: usize) -> usize {
    if whole <= entry.piece {
        return rest;
    }
    let within = at.saturating_sub(entry.start) % entry.piece;
    rest.min(entry.piece - within)
}

/// Pins what a part shares with paged memory; `None`, and said, when that cannot be.
fn pin(entry: &Entry, paged: &Paged, at: usize, part: usize, does: Does) -> Option<Pinned> {
    let first = at.max(entry.start) - entry.start;
    let end = (at + part).min(entry.start + entry.bytes).saturating_sub(entry.start);
    let begin = Instant::now();
    loop {
        match paged.pin(first.min(end)..end, does == Does::Fills) {
            Ok(pinned) => return Some(pinned),
            // Other threads have as many as there may be: theirs end with their calls.
            Err(error)
                if error.kind() == PagingErrorKind::Invalid && begin.elapsed() < PATIENCE =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => {
                say_once(&format!("a system call fails with EFAULT: {error}"));
                return None;
            }
        }
    }
}

/// Whether reading on from this file does not wait for somebody to write.
fn is_file(file: c_int) -> bool {
    // SAFETY: a plain record, for which zeros are a value, and room for what is found.
    unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        libc::fstat(file, &raw mut found) == 0 && found.st_mode & libc::S_IFMT == libc::S_IFREG
    }
}

/// `read` of POSIX.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(file: c_int, place: *mut c_void, bytes: size_t) -> ssize_t {
    in_parts(
        place,
        bytes,
        Does::Fills,
        || is_file(file),
        |place, bytes, _| {
            // SAFETY: the caller's.
            unsafe { next::read(file, place, bytes) }
        },
    )
}

/// `pread` of POSIX.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread(
    file: c_int,
    place: *mut c_void,
    bytes: size_t,
    offset: off_t,
) -> ssize_t {
    in_parts(
        place,
        bytes,
        Does::Fills,
        || is_file(file),
        |place, bytes, done| {
            // SAFETY: the caller's.
            unsafe { next::pread(file, place, bytes, offset + done as off_t) }
        },
    )
}

/// `write` of POSIX.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(file: c_int, place: *const c_void, bytes: size_t) -> ssize_t {
    in_parts(
        place,
        bytes,
        Does::Takes,
        || true,
        |place, bytes, _| {
            // SAFETY: the caller's.
            unsafe { next::write(file, place, bytes) }
        },
    )
}

/// `pwrite` of POSIX.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(
    file: c_int,
    place: *const c_void,
    bytes: size_t,
    offset: off_t,
) -> ssize_t {
    in_parts(
        place,
        bytes,
        Does::Takes,
        || true,
        |place, bytes, done| {
            // SAFETY: the caller's.
            unsafe { next::pwrite(file, place, bytes, offset + done as off_t) }
        },
    )
}

/// `fread` of C.
///
/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fread(
    place: *mut c_void,
    size: size_t,
    count: size_t,
    file: *mut FILE,
) -> size_t {
    let Some(bytes) = paged_bytes(place, size, count) else {
        // SAFETY: the caller's.
        return unsafe { next::fread(place, size, count, file) };
    };
    let done = in_parts(
        place,
        bytes,
        Does::Fills,
        || true,
        |place, bytes, _| {
            // SAFETY: the caller's.
            unsafe { next::fread(place, 1, bytes, file) as ssize_t }
        },
    );
    done.max(0) as size_t / size
}

/// `fwrite` of C.
///
/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwrite(
    place: *const c_void,
    size: size_t,
    count: size_t,
    file: *mut FILE,
) -> size_t {
    let Some(bytes) = paged_bytes(place, size, count) else {
        // SAFETY: the caller's.
        return unsafe { next::fwrite(place, size, count, file) };
    };
    let done = in_parts(
        place,
        bytes,
        Does::Takes,
        || true,
        |place, bytes, _| {
            // SAFETY: the caller's.
            unsafe { next::fwrite(place, 1, bytes, file) as ssize_t }
        },
    );
    done.max(0) as size_t / size
}

/// The bytes of `count` items of `size` bytes; `None` when that is zero or too many to count, or
/// when a system call can use them as they are, without a pin: outside of paged memory, or where
/// the kernel itself serves the faults of system calls.
fn paged_bytes(place: *const c_void, size: size_t, count: size_t) -> Option<size_t> {
    let bytes = size.checked_mul(count).filter(|&bytes| bytes > 0)?;
    table::touching(place as usize, bytes).filter(|entry| entry.piece > 0).map(|_| bytes)
}

/// The names under which programs call these functions: with offsets that were made large, and with
/// a length of the buffer that the compiler has found out, which is compared first.
mod other_names {
    use super::{FILE, c_int, c_void, fread, off_t, pread, pwrite, read, size_t, ssize_t};
    use crate::next::say;

    /// Ends the process as the C library does when a call would write beyond its buffer.
    fn check(bytes: usize, room: usize) {
        if bytes > room {
            say("a program reads more than its buffer has room for: it ends");
            std::process::abort();
        }
    }

    /// # Safety
    /// As `pread`.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn pread64(
        file: c_int,
        place: *mut c_void,
        bytes: size_t,
        offset: off_t,
    ) -> ssize_t {
        // SAFETY: the caller's.
        unsafe { pread(file, place, bytes, offset) }
    }

    /// # Safety
    /// As `pwrite`.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn pwrite64(
        file: c_int,
        place: *const c_void,
        bytes: size_t,
        offset: off_t,
    ) -> ssize_t {
        // SAFETY: the caller's.
        unsafe { pwrite(file, place, bytes, offset) }
    }

    /// # Safety
    /// As `read`.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn __read_chk(
        file: c_int,
        place: *mut c_void,
        bytes: size_t,
        room: size_t,
    ) -> ssize_t {
        check(bytes, room);
        // SAFETY: the caller's.
        unsafe { read(file, place, bytes) }
    }

    /// # Safety
    /// As `pread`.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn __pread_chk(
        file: c_int,
        place: *mut c_void,
        bytes: size_t,
        offset: off_t,
        room: size_t,
    ) -> ssize_t {
        check(bytes, room);
        // SAFETY: the caller's.
        unsafe { pread(file, place, bytes, offset) }
    }

    /// # Safety
    /// As `pread`.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn __pread64_chk(
        file: c_int,
        place: *mut c_void,
        bytes: size_t,
        offset: off_t,
        room: size_t,
    ) -> ssize_t {
        check(bytes, room);
        // SAFETY: the caller's.
        unsafe { pread(file, place, bytes, offset) }
    }

    /// # Safety
    /// As `fread`.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn __fread_chk(
        place: *mut c_void,
        room: size_t,
        size: size_t,
        count: size_t,
        file: *mut FILE,
    ) -> size_t {
        check(size.saturating_mul(count), room);
        // SAFETY: the caller's.
        unsafe { fread(place, size, count, file) }
    }
}
