//! Arrays that speak the buffer protocol.

use std::ffi::CStr;

use pyo3::ffi;
use pyo3::prelude::*;

use super::{Access, Array, ArrayRefusal, Owner, dense_strides, format};

/// A view of an object's buffer, released when it is dropped.
///
/// It is boxed because a view may point into itself, and is only made and dropped while Python
/// is attached: it is not `Send`, and lives on the stack of a call.
pub struct View(Box<ffi::Py_buffer>);

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("address", &self.0.buf).finish_non_exhaustive()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: the view was filled by `PyObject_GetBuffer` and is released once, here.
        unsafe { ffi::PyBuffer_Release(&raw mut *self.0) }
    }
}

/// Whether the type of `object` has the buffer protocol at all.
pub fn speaks(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: `object` is a live object and Python is attached.
    unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) == 1 }
}

/// Borrows the buffer of `object`.
///
/// # Errors
/// Why it gives none; nothing is lent then.
pub fn borrow(object: &Bound<'_, PyAny>) -> Result<Array, ArrayRefusal> {
    let mut view = Box::new(ffi::Py_buffer::new());
    // SAFETY: `object` is live, `view` is a fresh view. On failure nothing is lent.
    let status =
        unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, ffi::PyBUF_RECORDS_RO) };
    if status != 0 {
        return Err(ArrayRefusal::from_exception(object.py(), PyErr::fetch(object.py())));
    }
    Ok(describe(View(view))?)
}

fn describe(view: View) -> Result<Array, String> {
    let raw = &view.0;
    let itemsize = usize::try_from(raw.itemsize).map_err(|_| "its items have a negative size")?;
    // SAFETY: the exporter filled the view as `PyBUF_RECORDS_RO` asks it to.
    let (format, layout) = unsafe { (format_of(raw)?, layout_of(raw, itemsize)?) };
    let dtype = format::dtype(format, itemsize)?;
    let access = if raw.readonly == 0 { Access::Writable } else { Access::ReadOnly };
    Array::new(raw.buf.cast(), dtype, layout, access, Owner::Buffer { _view: view })
}

/// # Safety
/// `raw.format` is null or a C string that lives as long as the view.
unsafe fn format_of(raw: &ffi::Py_buffer) -> Result<&str, String> {
    if raw.format.is_null() {
        return Ok("B");
    }
    // SAFETY: not null, so it is a C string.
    let text = unsafe { CStr::from_ptr(raw.format) };
    text.to_str().map_err(|_| "the format of its items is not text".to_owned())
}

/// # Safety
/// `raw.shape` and `raw.strides` are null or have `raw.ndim` entries.
unsafe fn layout_of(
    raw: &ffi::Py_buffer,
    itemsize: usize,
) -> Result<(Vec<usize>, Vec<isize>), String> {
    let ndim = usize::try_from(raw.ndim).map_err(|_| "it has a negative number of dimensions")?;
    if ndim > 0 && raw.shape.is_null() {
        return Err("its buffer has no shape".to_owned());
    }
    // SAFETY: `shape` has `ndim` entries when there are any.
    let shape = unsafe { entries(raw.shape, ndim) };
    let shape: Vec<usize> = shape
        .iter()
        .map(|&extent| usize::try_from(extent))
        .collect::<Result<_, _>>()
        .map_err(|_| format!("its shape {shape:?} has a negative entry"))?;
    let strides = if raw.strides.is_null() {
        dense_strides(&shape, itemsize)
    } else {
        // SAFETY: `strides` is not null, so it has `ndim` entries.
        unsafe { entries(raw.strides, ndim) }.to_vec()
    };
    Ok((shape, strides))
}

/// # Safety
/// `first` points to `count` entries that outlive `'a`, unless `count` is 0.
unsafe fn entries<'a>(first: *const ffi::Py_ssize_t, count: usize) -> &'a [ffi::Py_ssize_t] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(first, count) }
}
