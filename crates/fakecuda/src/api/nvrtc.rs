//! The compiler for kernels, as far as the fake needs one: it takes every text, and what it gives
//! is an image whose kernels are those that the fake has.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use crate::call::Out;
use crate::kernels::IMAGE;

/// A version that no compiler has, so that nothing takes an image of the fake for machine code.
const VERSION: (c_int, c_int) = (0, 1);
/// The only program there is.
const PROGRAM: u64 = 1;

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

/// Compiles it.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcCompileProgram(
    _program: u64,
    _count: c_int,
    _options: *const c_void,
) -> c_int {
    0
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

/// The length of the log, which is empty but for its end.
///
/// # Safety
/// A place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLogSize(_program: u64, size: Out<usize>) -> c_int {
    answer(size, 1)
}

/// The log.
///
/// # Safety
/// Room for a byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLog(_program: u64, log: Out<c_char>) -> c_int {
    answer(log, 0)
}

/// Forgets a program.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcDestroyProgram(_program: *mut u64) -> c_int {
    0
}
