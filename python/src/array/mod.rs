//! Arrays of any library as addresses, strides and dtypes: how Python's data comes in.
//!
//! Three protocols are spoken, all by hand and all without a copy: the buffer protocol (NumPy,
//! `bytearray`, `array`, `memoryview`, `ctypes`, JAX), DLPack (PyTorch, JAX, everything else) and
//! the CUDA array interface (Numba, RMM); arrays of CuPy are asked for their attributes.
//! Whatever an exporter lends stays lent until the [`Array`] is dropped, on every path.

mod buffer;
mod cuda;
mod cupy;
pub mod dlpack;
mod format;
mod intake;
mod numpy;
mod ours;
mod take;
mod torch;
pub mod typestr;

use pyo3::exceptions::PyException;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use unspool::Dtype;

pub use cupy::stream_alive;
pub use format::{Exporter, text as format_text};
pub use intake::{ArrayPlace, Devices, Intake, LEGACY_STREAM, PendingWork};
pub use take::{Label, is_immutable, take};

use crate::strided::StridedWalk;

/// Memory of an array, lent by the object that was passed in.
#[derive(Debug)]
pub struct Array {
    data: *mut u8,
    dtype: Dtype,
    shape: Vec<usize>,
    strides: Vec<isize>,
    access: Access,
    place: ArrayPlace,
    /// Gives the memory back when it is dropped.
    owner: Owner,
}

/// Whether the memory may be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It may.
    Writable,
    /// The array is marked read-only.
    ReadOnly,
    /// Arrays of this library never change.
    Immutable,
    /// What was lent is a copy: writing to it would change nothing that anybody sees.
    Copied,
    /// The exporter could not say.
    Unknown,
}

/// What keeps the memory of an array alive. Made and dropped while Python is attached.
#[derive(Debug)]
pub enum Owner {
    /// A view of the buffer protocol.
    Buffer { _view: buffer::View },
    /// A tensor of DLPack.
    Dlpack { _tensor: dlpack::Tensor },
    /// The object itself.
    Object { _object: Py<PyAny> },
}

/// Why an object lends no memory.
#[derive(Debug)]
pub enum ArrayRefusal {
    /// A reason that goes into our own error.
    Why(String),
    /// It lies on another device than the spool.
    OtherDevice {
        /// The device of the array.
        ordinal: u32,
        /// The device of the spool.
        own: u32,
    },
    /// Something that is not an answer to the question, such as Ctrl-C.
    Raised(PyErr),
}

impl ArrayRefusal {
    fn from_exception(py: Python<'_>, raised: PyErr) -> ArrayRefusal {
        if raised.is_instance_of::<PyException>(py) {
            // What follows the first line is a stack of C++ addresses where there is more.
            let text = raised.value(py).to_string();
            let line = text.lines().next().unwrap_or("it raised an exception without a text");
            return ArrayRefusal::Why(line.trim_end_matches('.').to_owned());
        }
        ArrayRefusal::Raised(raised)
    }
}

impl From<String> for ArrayRefusal {
    fn from(why: String) -> ArrayRefusal {
        ArrayRefusal::Why(why)
    }
}

impl Array {
    /// Checks what an exporter said, and joins it with what keeps it alive.
    fn new(
        data: *mut u8,
        dtype: Dtype,
        (shape, strides): (Vec<usize>, Vec<isize>),
        access: Access,
        owner: Owner,
    ) -> Result<Array, String> {
        let bytes = checked_bytes(&shape, dtype.itemsize())?;
        if shape.len() != strides.len() {
            return Err("its shape and its strides have different lengths".to_owned());
        }
        if bytes > 0 && data.is_null() {
            return Err("it has no memory (its address is null)".to_owned());
        }
        Ok(Array { data, dtype, shape, strides, access, place: ArrayPlace::Host, owner })
    }

    /// The same array, whose memory lies in `place`.
    fn at(mut self, place: ArrayPlace) -> Array {
        self.place = place;
        self
    }

    /// Where its memory lies.
    pub fn place(&self) -> ArrayPlace {
        self.place
    }

    /// Bytes of all its elements.
    pub fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.itemsize() as usize
    }

    /// Its strides in bytes.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// What keeps its memory alive.
    pub fn into_owner(self) -> Owner {
        self.owner
    }

    /// The address of its first element; may be null when it has no elements.
    pub fn data(&self) -> *mut u8 {
        self.data
    }

    /// The type of its items.
    pub fn dtype(&self) -> &Dtype {
        &self.dtype
    }

    /// Its dimensions, slowest first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Whether it may be written.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The way over its elements.
    pub fn walk(&self) -> StridedWalk {
        StridedWalk::new(&self.shape, &self.strides, self.dtype.itemsize() as usize)
    }
}

/// The bytes of all elements, when they fit into the address space.
fn checked_bytes(shape: &[usize], itemsize: u64) -> Result<usize, String> {
    if shape.contains(&0) {
        return Ok(0);
    }
    shape
        .iter()
        .try_fold(usize::try_from(itemsize).unwrap_or(usize::MAX), |n, &d| n.checked_mul(d))
        .filter(|&bytes| bytes <= isize::MAX as usize)
        .ok_or_else(|| format!("its shape {shape:?} has more bytes than memory can have"))
}

/// The strides in bytes of a C-contiguous array.
pub fn dense_strides(shape: &[usize], itemsize: usize) -> Vec<isize> {
    let mut strides = vec![0; shape.len()];
    let mut step = itemsize as isize;
    for (stride, &extent) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        step = step.wrapping_mul(extent as isize);
    }
    strides
}

/// A shape as Python writes it.
pub fn tuple<T: ToString>(shape: &[T]) -> String {
    let entries: Vec<String> = shape.iter().map(ToString::to_string).collect();
    let comma = if entries.len() == 1 { "," } else { "" };
    format!("({}{comma})", entries.join(", "))
}

/// A class of a library that is loaded already: nobody has arrays of one that is not.
fn loaded<'py>(
    py: Python<'py>,
    library: &Bound<'py, PyString>,
    class: &Bound<'py, PyString>,
) -> Option<Bound<'py, PyType>> {
    // SAFETY: Python is attached; it gives a new reference, or none without or with an exception.
    let module =
        unsafe { Bound::from_owned_ptr_or_opt(py, ffi::PyImport_GetModule(library.as_ptr())) };
    let Some(module) = module else {
        drop(PyErr::take(py));
        return None;
    };
    module.getattr_opt(class).ok()??.cast_into::<PyType>().ok()
}

/// The handles of the current streams on device `ordinal` of the libraries that are in use there.
pub fn current_streams(py: Python<'_>, ordinal: u32) -> Vec<(&'static str, usize)> {
    let cupy = cupy::stream_in_use(py, ordinal).map(|stream| ("cupy", stream));
    let torch = torch::stream_in_use(py, ordinal).map(|stream| ("torch", stream));
    cupy.into_iter().chain(torch).collect()
}
