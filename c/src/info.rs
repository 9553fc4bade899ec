//! What the arrays of a checkpoint are, for programs that read the histories of others.

use std::ffi::{CString, c_int};

use unspool::Region;

use crate::array::UnspoolArray;
use crate::spool::UnspoolSpool;
use crate::status::{Failure, call};
use crate::text::{free, give, handle};

/// The arrays of one checkpoint.
#[derive(Debug)]
pub struct UnspoolInfo {
    arrays: Vec<Described>,
}

#[derive(Debug)]
struct Described {
    name: CString,
    dtype: c_int,
    shape: Vec<i64>,
}

impl Described {
    fn of(region: &Region) -> Result<Described, Failure> {
        let wrong = |_| Failure::invalid(format!("The name {:?} has a zero byte.", region.name));
        let name = CString::new(region.name.as_str()).map_err(wrong)?;
        let shape = region.shape.iter().map(|&extent| extent.cast_signed()).collect();
        Ok(Described { name, dtype: c_int::from(region.dtype.code()), shape })
    }
}

/// Looks up what the arrays of `version` are. Give the answer back with `unspool_info_free`.
///
/// Errors: `UNSPOOL_UNKNOWN`, `UNSPOOL_DISCARDED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_describe(
    spool: *const UnspoolSpool,
    version: i64,
    info: *mut *mut UnspoolInfo,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let head = unsafe { handle(spool, "spool") }?.spool.regions(version)?;
        let arrays = head.regions.iter().map(Described::of).collect::<Result<_, _>>()?;
        // SAFETY: as above.
        unsafe { give(info, Box::into_raw(Box::new(UnspoolInfo { arrays })), "info") }
    })
}

/// The number of its arrays; 0 for a null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_info_count(info: *const UnspoolInfo) -> usize {
    // SAFETY: the caller's duty.
    unsafe { info.as_ref() }.map_or(0, |info| info.arrays.len())
}

/// Writes what array `index` is to `array`: name, type and shape, which are valid until the answer
/// is given back, and no data. The type of items that this library keeps without knowing them is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_info_array(
    info: *const UnspoolInfo,
    index: usize,
    array: *mut UnspoolArray,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let info = unsafe { handle(info, "info") }?;
        let count = info.arrays.len();
        let found = info.arrays.get(index).ok_or_else(|| {
            Failure::invalid(format!("There is no array {index}: there are {count}."))
        })?;
        let described = UnspoolArray {
            name: found.name.as_ptr(),
            data: std::ptr::null_mut(),
            dtype: found.dtype,
            ndim: found.shape.len() as c_int,
            shape: found.shape.as_ptr(),
        };
        // SAFETY: as above.
        unsafe { give(array, described, "array") }
    })
}

/// Gives the answer back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_info_free(info: *mut UnspoolInfo) {
    // SAFETY: the caller's duty.
    unsafe { free(info) };
}
