//! Memory of the host that belongs to the spool.

use std::any::Any;
use std::ffi::{CString, c_int, c_void};
use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::block::Block;
use super::export::{ExportedMemory, Wishes, capsule};
use super::items::Items;
use crate::array::dlpack::raw::{CPU, Device};
use crate::array::{format_text, typestr};

/// Memory of a spool in main memory: dense items in C order.
///
/// It becomes an array of another library without a copy: `numpy.asarray(buffer)`,
/// `torch.from_dlpack(buffer)`, and whatever else takes DLPack or the buffer protocol. It may only
/// be used while the `with` block of `Spool.writing` or `Spool.reading` that gave it is open.
#[pyclass(module = "unspool", frozen, weakref)]
#[derive(Debug)]
pub struct HostBuffer {
    address: usize,
    items: Items,
    read_only: bool,
    /// Shape and strides as the buffer protocol wants them: addresses that live as long as a view.
    shape: Vec<ffi::Py_ssize_t>,
    strides: Vec<ffi::Py_ssize_t>,
    /// The items as the buffer protocol writes them, where it can.
    format: Option<CString>,
    keep: Arc<dyn Any + Send + Sync>,
    block: Arc<Block>,
}

impl HostBuffer {
    /// The items at `address`, which `keep` holds in place.
    pub fn new(
        address: usize,
        items: Items,
        read_only: bool,
        (keep, block): (Arc<dyn Any + Send + Sync>, Arc<Block>),
    ) -> HostBuffer {
        let shape = items.shape.iter().map(|&extent| extent as ffi::Py_ssize_t).collect();
        let strides = items.strides();
        let format = format_text(&items.dtype).and_then(|text| CString::new(text).ok());
        HostBuffer { address, items, read_only, shape, strides, format, keep, block }
    }

    /// The address of its first item; refused when its block was left.
    ///
    /// # Errors
    /// `BufferError`.
    pub fn borrowed(&self) -> PyResult<usize> {
        self.block.check().map(|()| self.address)
    }

    /// What it holds.
    pub fn items(&self) -> &Items {
        &self.items
    }

    /// Whether it must not be written.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }
}

const HERE: Device = Device { kind: CPU, id: 0 };

#[pymethods]
impl HostBuffer {
    /// Its dimensions, slowest first.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.items.tuple(py)
    }

    /// The name of the type of its items, such as `"float32"`.
    #[getter]
    fn dtype(&self) -> String {
        self.items.dtype.name().into_owned()
    }

    /// The bytes of its items.
    #[getter]
    fn nbytes(&self) -> usize {
        self.items.bytes
    }

    /// Where it lies: `"cpu"`.
    #[getter]
    fn device(&self) -> &'static str {
        "cpu"
    }

    /// The address of its first item.
    #[getter]
    fn ptr(&self) -> PyResult<usize> {
        self.borrowed()
    }

    /// Version 3 of NumPy's interface; items that it has no name for are raw bytes.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let address = self.borrowed()?;
        let itemsize = self.items.dtype.itemsize();
        let text = typestr::text(&self.items.dtype).unwrap_or_else(|| format!("|V{itemsize}"));
        let interface = PyDict::new(py);
        interface.set_item("shape", self.items.tuple(py)?)?;
        interface.set_item("typestr", text)?;
        interface.set_item("data", (address, self.read_only))?;
        interface.set_item("strides", py.None())?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }

    /// A fresh DLPack capsule.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__(
        &self,
        py: Python<'_>,
        stream: Option<&Bound<'_, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        let address = self.borrowed()?;
        if stream.is_some() {
            return Err(PyBufferError::new_err("memory of the host has no stream"));
        }
        let wishes = Wishes { max_version, dl_device, copy };
        wishes.check(HERE)?;
        let (items, keep) = (&self.items, Arc::clone(&self.keep));
        let memory =
            ExportedMemory { address, device: HERE, items, read_only: self.read_only, keep };
        capsule(py, memory, &wishes)
    }

    /// The CPU as DLPack numbers it.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (HERE.kind, HERE.id)
    }

    /// # Safety
    /// Called by Python with a view to be filled, or null.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        let address = this.borrowed()?;
        let writes = flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE;
        let Some(format) = &this.format else {
            let why = format!("the buffer protocol has no dtype {}", this.items.dtype.name());
            return Err(PyBufferError::new_err(why));
        };
        if view.is_null() || (writes && this.read_only) {
            return Err(PyBufferError::new_err("this memory is lent for reading only"));
        }
        let asked = |flag| flags & flag == flag;
        let or_null = |wanted: bool, list: &Vec<ffi::Py_ssize_t>| {
            if wanted { list.as_ptr().cast_mut() } else { std::ptr::null_mut() }
        };
        let filled = ffi::Py_buffer {
            buf: address as *mut c_void,
            obj: slf.clone().into_ptr(),
            len: this.items.bytes as ffi::Py_ssize_t,
            itemsize: this.items.dtype.itemsize() as ffi::Py_ssize_t,
            readonly: c_int::from(this.read_only),
            ndim: this.shape.len() as c_int,
            format: if asked(ffi::PyBUF_FORMAT) {
                format.as_ptr().cast_mut()
            } else {
                std::ptr::null_mut()
            },
            shape: or_null(asked(ffi::PyBUF_ND), &this.shape),
            strides: or_null(asked(ffi::PyBUF_STRIDES), &this.strides),
            suboffsets: std::ptr::null_mut(),
            internal: std::ptr::null_mut(),
        };
        // SAFETY: `view` is not null and Python's to be filled; the addresses in it belong to
        // `slf`, which the view owns a reference to, and this class is frozen.
        unsafe { view.write(filled) };
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("<unspool.types.HostBuffer {}>", self.items.in_words())
    }
}
