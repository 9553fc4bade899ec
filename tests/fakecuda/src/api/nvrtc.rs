//! A fake compiler for kernels: it accepts every text, and returns an image with all kernels of the
//! fake.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use crate::call::{Held, Out};
use crate::kernels::IMAGE;

/// A version that no real compiler has, so that an image of the fake is never taken for machine
/// code.
const VERSION: (c_int, c_int) = (0, 1);
/// The handle of the only program.
const PROGRAM: u64 = 1;

/// The log of every text; it is only read when a compilation fails.
const LOG: &CStr = c"line 1: the fake was told to refuse this";

/// `NVRTC_ERROR_INVALID_INPUT`.
const INVALID_INPUT: c_int = 3;

fn answer<T>(place: Out<T>, value: T) -> c_int {
    if place.give(value).is_ok() { 0 } else { INVALID_INPUT }
}

/// The version.
///
/// # Safety
/// Places for two numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcVersion(major: Out<c_int>, minor: Out<c_int>) -> c_int {
    answer(major, VERSION.0) | answer(minor, VERSION.1)
}

/// Creates a program.
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

/// Compiles the program, in the time that the settings say.
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
    // Without the lock: other calls are executed meanwhile.
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

/// The length of the PTX: 0.
///
/// # Safety
/// A place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetPTXSize(_program: u64, size: Out<usize>) -> c_int {
    answer(size, 0)
}

/// Returns no PTX.
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

/// Destroys a program.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcDestroyProgram(_program: *mut u64) -> c_int {
    0
}
