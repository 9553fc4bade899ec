//! Pointers of the caller as texts, slices and handles, checked as far as that can be done.

use std::ffi::{CStr, c_char};

use crate::status::Failure;

/// The text at `pointer`; `what` names the argument.
///
/// # Safety
/// It is null or a text that ends with a zero byte, and stays for as long as it is used.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Failure> {
    // SAFETY: the caller's duty.
    let text = unsafe { optional(pointer, what) }?;
    text.ok_or_else(|| Failure::invalid(format!("The argument `{what}` is null: give a text.")))
}

/// As [`text`], which may be left out with a null pointer.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn optional<'a>(
    pointer: *const c_char,
    what: &str,
) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: it is not null, and the rest is the caller's duty.
    let text = unsafe { CStr::from_ptr(pointer) };
    let wrong = |_| Failure::invalid(format!("The argument `{what}` is not UTF-8."));
    text.to_str().map(Some).map_err(wrong)
}

/// `count` values from `pointer` on.
///
/// # Safety
/// There are as many, and they stay unchanged for as long as they are used.
pub(crate) unsafe fn slice<'a, T>(
    pointer: *const T,
    count: usize,
    what: &str,
) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: the caller's duty.
    let whole = || unsafe { std::slice::from_raw_parts(pointer, count) };
    let fits = !pointer.is_null() && count <= isize::MAX as usize / size_of::<T>().max(1);
    fits.then(whole).ok_or_else(|| null(what))
}

/// What `pointer` points to.
///
/// # Safety
/// It is null or points to a live value.
pub(crate) unsafe fn handle<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's duty.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

/// What `pointer` points to, to be changed.
///
/// # Safety
/// It is null or points to a live value that nobody else uses meanwhile.
pub(crate) unsafe fn handle_mut<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller's duty.
    unsafe { pointer.as_mut() }.ok_or_else(|| null(what))
}

/// Writes `value` to the place that the caller gave for it.
///
/// # Safety
/// `place` is null or room for a value.
pub(crate) unsafe fn give<T>(place: *mut T, value: T, what: &str) -> Result<(), Failure> {
    if place.is_null() {
        return Err(null(what));
    }
    // SAFETY: it is not null, and the rest is the caller's duty.
    unsafe { place.write(value) };
    Ok(())
}

/// Gives a handle back that [`Box::into_raw`] made.
///
/// # Safety
/// `pointer` is null, or such a handle that was not given back yet.
pub(crate) unsafe fn free<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: the caller's duty.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

fn null(what: &str) -> Failure {
    Failure::invalid(format!("The argument `{what}` is null."))
}
