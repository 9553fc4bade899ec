//! Our own memory as DLPack tensors.

use std::any::Any;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::items::Items;
use crate::array::dlpack::items;
use crate::array::dlpack::raw::{
    Device, DlpackVersion, LEGACY, Legacy, MAJOR, Plain, READ_ONLY, VERSIONED, Versioned,
};

/// The minor version whose dtypes are written here.
const MINOR: u32 = 1;

/// What is exported.
#[derive(Debug)]
pub struct ExportedMemory<'a> {
    /// The address of the first item.
    pub address: usize,
    /// Where it lies.
    pub device: Device,
    /// What lies there.
    pub items: &'a Items,
    /// Whether it must not be written.
    pub read_only: bool,
    /// Holds it in place.
    pub keep: Arc<dyn Any + Send + Sync>,
}

/// A tensor and what it points to. The tensor comes first: its address is that of the whole.
#[repr(C)]
struct Exported<T> {
    tensor: T,
    shape: Vec<i64>,
    strides: Vec<i64>,
    _keep: Arc<dyn Any + Send + Sync>,
}

/// Arguments of `__dlpack__` that are the same for all memory.
#[derive(Debug)]
pub struct Wishes {
    /// The version that the consumer understands.
    pub max_version: Option<(u32, u32)>,
    /// The device on which he wants the data.
    pub dl_device: Option<(i32, i32)>,
    /// Whether he wants a copy.
    pub copy: Option<bool>,
}

impl Wishes {
    /// Refuses what only a copy could fulfil.
    ///
    /// # Errors
    /// `BufferError`, as the standard says.
    pub fn check(&self, device: Device) -> PyResult<()> {
        if self.copy == Some(true) {
            let why = "this memory is lent as it is: make a copy of the array instead";
            return Err(PyBufferError::new_err(why));
        }
        if self.dl_device.is_some_and(|(kind, id)| Device { kind, id } != device) {
            let why = "this memory is lent where it lies: move a copy of the array instead";
            return Err(PyBufferError::new_err(why));
        }
        Ok(())
    }
}

/// A fresh capsule over `memory`, with a version when the consumer understands one.
///
/// # Errors
/// `BufferError` when DLPack has no such dtype.
pub fn capsule(py: Python<'_>, memory: ExportedMemory<'_>, wishes: &Wishes) -> PyResult<Py<PyAny>> {
    let name = memory.items.dtype.name();
    let Some((dtype, flags)) = items::items(&name) else {
        return Err(PyBufferError::new_err(format!("DLPack has no dtype {name}")));
    };
    let itemsize = memory.items.dtype.itemsize().max(1) as isize;
    let shape: Vec<i64> = memory.items.shape.iter().map(|&extent| extent as i64).collect();
    let strides = memory.items.strides();
    let strides: Vec<i64> = strides.iter().map(|&stride| (stride / itemsize) as i64).collect();
    let plain = Plain {
        data: memory.address as *mut c_void,
        device: memory.device,
        ndim: shape.len() as i32,
        items: dtype,
        shape: shape.as_ptr(),
        strides: strides.as_ptr(),
        byte_offset: 0,
    };
    let keep = memory.keep;
    if wishes.max_version.is_some_and(|(major, _)| major >= MAJOR) {
        let version = DlpackVersion { major: MAJOR, minor: MINOR };
        let flags = flags | if memory.read_only { READ_ONLY } else { 0 };
        let deleter = Some(release::<Versioned> as unsafe extern "C" fn(*mut Versioned));
        let tensor = Versioned { version, context: std::ptr::null_mut(), deleter, flags, plain };
        return wrap(py, Exported { tensor, shape, strides, _keep: keep }, VERSIONED);
    }
    let deleter = Some(release::<Legacy> as unsafe extern "C" fn(*mut Legacy));
    let tensor = Legacy { plain, context: std::ptr::null_mut(), deleter };
    wrap(py, Exported { tensor, shape, strides, _keep: keep }, LEGACY)
}

/// Gives an exported tensor back. Called by its consumer, once, on any thread.
unsafe extern "C" fn release<T>(tensor: *mut T) {
    // SAFETY: `wrap` made it from a box of this type, whose first field is the tensor.
    drop(unsafe { Box::from_raw(tensor.cast::<Exported<T>>()) });
}

fn wrap<T>(py: Python<'_>, exported: Exported<T>, name: &'static CStr) -> PyResult<Py<PyAny>> {
    debug_assert_eq!(exported.shape.len(), exported.strides.len());
    let raw = Box::into_raw(Box::new(exported));
    // SAFETY: the address is not null, the name lives for ever, and the destructor fits it.
    unsafe {
        let capsule = ffi::PyCapsule_New(raw.cast(), name.as_ptr(), Some(unused::<T>));
        if capsule.is_null() {
            drop(Box::from_raw(raw));
        }
        Bound::from_owned_ptr_or_err(py, capsule).map(Bound::unbind)
    }
}

/// The destructor of a capsule: gives the tensor back when nobody has taken it out.
unsafe extern "C" fn unused<T>(capsule: *mut ffi::PyObject) {
    for name in [LEGACY, VERSIONED] {
        // SAFETY: Python calls this with the capsule that it destroys; a capsule that still has
        // its first name still has its tensor.
        unsafe {
            if ffi::PyCapsule_IsValid(capsule, name.as_ptr()) != 0 {
                release(ffi::PyCapsule_GetPointer(capsule, name.as_ptr()).cast::<T>());
            }
        }
    }
}
