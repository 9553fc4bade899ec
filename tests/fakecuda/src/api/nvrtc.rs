//! The compiler for kernels, as far as the fake needs one: it takes every text, and what it gives
//! is an image whose kernels are those that the fake has.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use crate::call::{Held, Out};
use crate::kernels::IMAGE;

/// A version that no compiler has, so that nothing takes an image of the fake for machine code.
const VERSION: (c_int, c_int) = (0, 1);
/// The only program there is.
const PROGRAM: u64 = 1;

/// What it says of every text; only somebody whose text has failed will ask.
const LOG: &CStr = c"line 1: the fake was told to refuse this";

/// `NVRTC_ERROR_INVALID_INPUT`.
const INVALID_INPUT: c_int = 3;

fn answer<T>(place: Out<T>, value: T) -> c_int {
    if place.give(value).is_ok() { 0 } else { INVALID_INPUT }
}

/// Its version.
///
/// # Safety
/// Places for two numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcVersion(major: Out<c_int>, minor: Out<c_int>) -> c_int {
    answer(major, VERSION.0) | answer(minor, VERSION.1)
}

/// Takes a text.
///
/// # Safety
/// A place for a program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCreateProgram(
    program: Out<u64>,
    _source: *const c_char,
    _name: *const c_char,
    _headers: c_int,
    _texts: *const c_void,
    _names: *const c_void,
) -> c_int {
    answer(program, PROGRAM)
}

/// Compiles it, in the time that tests set.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcCompileProgram(
    _program: u64,
    _count: c_int,
    _options: *const c_void,
) -> c_int {
    let (counted, time) = {
        let mut world = Held::by_caller();
        (world.faults.count("nvrtcCompileProgram"), world.settings.compile)
    };
    // Other calls go on meanwhile.
    std::thread::sleep(time);
    counted.err().map_or(0, |code| code.0 as c_int)
}

/// The length of the image.
///
/// # Safety
/// A place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBINSize(_program: u64, size: Out<usize>) -> c_int {
    answer(size, IMAGE.len())
}

/// The image.
///
/// # Safety
/// Room for as many bytes as the image has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBIN(_program: u64, image: *mut u8) -> c_int {
    if image.is_null() {
        return INVALID_INPUT;
    }
    // SAFETY: the caller's duty.
    unsafe { ptr::copy_nonoverlapping(IMAGE.as_ptr(), image, IMAGE.len()) };
    0
}

/// The length of PTX: there is none.
///
/// # Safety
/// A place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetPTXSize(_program: u64, size: Out<usize>) -> c_int {
    answer(size, 0)
}

/// PTX, which there is none of.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetPTX(_program: u64, _text: *mut u8) -> c_int {
    0
}

/// The length of the log.
///
/// # Safety
/// A place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLogSize(_program: u64, size: Out<usize>) -> c_int {
    answer(size, LOG.to_bytes_with_nul().len())
}

/// The log.
///
/// # Safety
/// Room for as many bytes as the log has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLog(_program: u64, log: *mut c_char) -> c_int {
    if log.is_null() {
        return INVALID_INPUT;
    }
    // SAFETY: the caller's duty.
    unsafe { ptr::copy_nonoverlapping(LOG.as_ptr(), log, LOG.to_bytes_with_nul().len()) };
    0
}

/// Forgets a program.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcDestroyProgram(_program: *mut u64) -> c_int {
    0
}
