//! All parts of a checkpoint, for programs that go on with another number of ranks.

use std::ffi::{c_char, c_int};
use std::path::Path;

use unspool_restart::{FoundPart, find};

use crate::checkpointer::{copy_text, number};
use crate::spool::UnspoolSpool;
use crate::status::{Failure, call};
use crate::text::{free, give, handle, text};

/// The parts of a checkpoint that its ranks have saved.
#[derive(Debug)]
pub struct UnspoolParts {
    found: Vec<FoundPart>,
}

impl UnspoolParts {
    fn of(&self, rank: u32) -> Result<&FoundPart, Failure> {
        let count = self.found.len();
        let wrong = || Failure::invalid(format!("There is no rank {rank} of {count}."));
        self.found.get(rank as usize).ok_or_else(wrong)
    }
}

/// Finds the parts of a checkpoint in the folder of a run of any number of ranks, also when a
/// program in Python has saved it: of the one whose step is at `step`, or with -1 there of the
/// newest one of which all parts are there. Writes its step to `step` and the number of its ranks
/// to `ranks`. Nothing is changed in the folder. Give the answer back with `unspool_parts_free`.
///
/// Errors: `UNSPOOL_UNKNOWN` when not all parts of it are there; `UNSPOOL_IO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_parts_find(
    path: *const c_char,
    step: *mut i64,
    ranks: *mut u32,
    parts: *mut *mut UnspoolParts,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let (path, wanted) = unsafe { (text(path, "path")?, *handle(step, "step")?) };
        let wanted = if wanted == -1 { None } else { Some(number(wanted)?) };
        let found = find(Path::new(path), wanted)?;
        let one = found.first().map(|part| (part.manifest.step, part.manifest.ranks));
        let (newest, size) = one.ok_or_else(|| Failure::invalid("A run has no ranks."))?;
        // SAFETY: as above.
        unsafe {
            give(ranks, size, "ranks")?;
            give(parts, std::ptr::null_mut(), "parts")?;
            give(step, newest.cast_signed(), "step")?;
            give(parts, Box::into_raw(Box::new(UnspoolParts { found })), "parts")
        }
    })
}

/// Opens the arrays that a rank has saved as a spool for reading, which has them under the step as
/// version: `unspool_describe` says which there are, `unspool_restore` copies them. Give it back
/// with `unspool_free`.
///
/// Errors: `UNSPOOL_INVALID` when there is no such rank; `UNSPOOL_UNKNOWN` when a run has deleted
/// the part meanwhile; `UNSPOOL_IO`, `UNSPOOL_CORRUPT`, `UNSPOOL_LOST`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_parts_open(
    parts: *const UnspoolParts,
    rank: u32,
    part: *mut *mut UnspoolSpool,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let found = unsafe { handle(parts, "parts") }?.of(rank)?;
        // A place for the handle is needed before anything is opened.
        // SAFETY: as above.
        unsafe { give(part, std::ptr::null_mut(), "part") }?;
        let opened = Box::new(UnspoolSpool { spool: found.open()? });
        // SAFETY: as above.
        unsafe { give(part, Box::into_raw(opened), "part") }
    })
}

/// Writes the text that a rank has saved with its arrays, as `unspool_checkpointer_values` does.
/// That of a program in Python is JSON, with the small values under `values`.
///
/// Errors: `UNSPOOL_INVALID` when there is no such rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_parts_values(
    parts: *const UnspoolParts,
    rank: u32,
    values: *mut c_char,
    room: usize,
    length: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let found = unsafe { handle(parts, "parts") }?.of(rank)?;
        // SAFETY: as above.
        unsafe { copy_text(&found.manifest.values, values, room, length) }
    })
}

/// Gives the answer back. Spools that were opened from it stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_parts_free(parts: *mut UnspoolParts) {
    // SAFETY: the caller's duty.
    unsafe { free(parts) };
}
