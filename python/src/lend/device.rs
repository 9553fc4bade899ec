//! Memory of a GPU that belongs to the spool.

use std::any::Any;
use std::sync::Arc;

use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use unspool::gpu::{BlockMemory, Gpu};

use super::block::Block;
use super::export::{ExportedMemory, Wishes, capsule};
use super::items::Items;
use super::streams;
use crate::array::dlpack::raw::{CUDA, Device};
use crate::array::{LEGACY_STREAM, typestr};
use crate::waiting::detached;

/// Memory of a spool on a GPU: dense items in C order.
///
/// It becomes an array of another library without a copy: `cupy.asarray(buffer)`,
/// `torch.from_dlpack(buffer)`, and whatever else takes DLPack or the CUDA array interface. It may
/// only be used while the `with` block of `Spool.writing` or `Spool.reading` that gave it is open.
#[pyclass(module = "unspool", frozen, weakref)]
#[derive(Debug)]
pub struct DeviceBuffer {
    gpu: Gpu,
    address: u64,
    items: Items,
    read_only: bool,
    keep: Arc<dyn Any + Send + Sync>,
    block: Arc<Block>,
}

impl DeviceBuffer {
    /// The items at `address`, which `keep` holds in place.
    pub fn new(
        gpu: Gpu,
        address: u64,
        items: Items,
        read_only: bool,
        (keep, block): (Arc<dyn Any + Send + Sync>, Arc<Block>),
    ) -> DeviceBuffer {
        DeviceBuffer { gpu, address, items, read_only, keep, block }
    }

    /// A buffer over memory that is none of a tier's, in order on `block`'s stream, and that
    /// memory; its content is unspecified.
    ///
    /// # Errors
    /// `Device` when the GPU has no more.
    pub fn allocate(
        gpu: &Gpu,
        items: Items,
        read_only: bool,
        block: Arc<Block>,
    ) -> Result<(DeviceBuffer, Arc<BlockMemory>), unspool::Error> {
        let stream = streams::borrow(gpu, block.stream())?;
        let memory = Arc::new(BlockMemory::new(gpu, items.bytes as u64, &stream)?);
        let keep: Arc<dyn Any + Send + Sync> = Arc::<BlockMemory>::clone(&memory);
        let place = (keep, block);
        let buffer = DeviceBuffer::new(gpu.clone(), memory.address(), items, read_only, place);
        Ok((buffer, memory))
    }

    /// The GPU, the address of its first item, and the stream on which it is in order; refused when
    /// its block was left.
    ///
    /// # Errors
    /// `BufferError`.
    pub fn borrowed(&self) -> PyResult<(u32, u64, usize)> {
        self.block.check()?;
        Ok((self.gpu.ordinal(), self.address, self.block.stream()))
    }

    /// What it holds.
    pub fn items(&self) -> &Items {
        &self.items
    }

    /// Whether it must not be written.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn place(&self) -> Device {
        Device { kind: CUDA, id: self.gpu.ordinal().cast_signed() }
    }

    /// Makes a consumer's stream wait until the memory is in order.
    fn show_on(&self, py: Python<'_>, stream: Option<i64>) -> PyResult<()> {
        let later = match stream {
            Some(-1) => return Ok(()),
            None => LEGACY_STREAM,
            Some(0) => {
                let why = "the stream 0 could be any of two: it has to be 1 or 2";
                return Err(PyBufferError::new_err(why));
            }
            Some(given) => usize::try_from(given)
                .map_err(|_| PyBufferError::new_err(format!("{given} is not a stream")))?,
        };
        detached(py, None, || streams::join(&self.gpu, later, self.block.stream()))
    }
}

#[pymethods]
impl DeviceBuffer {
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

    /// Where it lies, such as `"cuda:0"`.
    #[getter]
    fn device(&self) -> String {
        format!("cuda:{}", self.gpu.ordinal())
    }

    /// The address of its first item.
    #[getter]
    fn ptr(&self) -> PyResult<u64> {
        self.borrowed().map(|(_, address, _)| address)
    }

    /// Version 3 of the interface. The current streams of CuPy and PyTorch wait for the data;
    /// where neither is in use, the interface names the stream on which it is ready.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let Some(text) = typestr::text(&self.items.dtype) else {
            let name = self.items.dtype.name();
            let why = format!("the CUDA array interface has no dtype {name}: use DLPack");
            return Err(PyAttributeError::new_err(why));
        };
        let (_, address, stream) = self.borrowed()?;
        let in_order = streams::spread(py, &self.gpu, stream)?;
        let interface = PyDict::new(py);
        interface.set_item("shape", self.items.tuple(py)?)?;
        interface.set_item("typestr", text)?;
        interface.set_item("data", (address, self.read_only))?;
        interface.set_item("strides", py.None())?;
        interface.set_item("stream", Some(stream).filter(|_| !in_order))?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }

    /// A fresh DLPack capsule; what is enqueued on `stream` from now on finds the data.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__(
        &self,
        py: Python<'_>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        self.block.check()?;
        let wishes = Wishes { max_version, dl_device, copy };
        wishes.check(self.place())?;
        self.show_on(py, stream)?;
        let memory = ExportedMemory {
            address: self.address as usize,
            device: self.place(),
            items: &self.items,
            read_only: self.read_only,
            keep: Arc::clone(&self.keep),
        };
        capsule(py, memory, &wishes)
    }

    /// The device as DLPack numbers it.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (self.place().kind, self.place().id)
    }

    #[pyo3(signature = (*_arguments, **_options))]
    fn __array__(
        &self,
        _arguments: &Bound<'_, PyTuple>,
        _options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let why = "this memory lies on a GPU: use cupy.asarray(buffer) or \
                   torch.from_dlpack(buffer), or load the checkpoint to NumPy";
        Err(PyTypeError::new_err(why))
    }

    fn __repr__(&self) -> String {
        format!("<unspool.types.DeviceBuffer {} on {:?}>", self.items.in_words(), self.device())
    }
}
