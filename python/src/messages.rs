//! Arrays of a GPU as messages, for `unspool.messages`: encoded into pinned memory of the host, and
//! decoded from it. Arrays in main memory are encoded by `unspool.codecs`.

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use unspool::gpu::{Gpu, LoneArray, LoneDecoding, PinnedMemory};
use unspool::{Error, Spec};

use crate::array::{Access, Array, ArrayPlace, Devices, Intake, Label, take};
use crate::codecs::spec;
use crate::gpu::{AfterCopy, DevicePiece};
use crate::options::compiler_folders;
use crate::panics::guarded;
use crate::waiting::detached;

/// The longest wait for work on a device where a call gives none.
const LIMIT: Duration = Duration::from_secs(120);

/// Dtype, shape, bytes, the number of its device (none in main memory), and whether it may be
/// written.
type Looked = (String, Vec<usize>, usize, Option<u32>, bool);

/// The GPUs whose arrays were seen.
#[pyclass(module = "unspool._unspool", frozen)]
pub struct MessageDevices {
    folders: Vec<std::path::PathBuf>,
    gpus: Mutex<Vec<Gpu>>,
}

impl Devices for MessageDevices {
    fn own(&self) -> Option<u32> {
        None
    }

    fn gpu_of(&self, ordinal: u32) -> Result<Gpu, Error> {
        let mut gpus = self.gpus.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gpu) = gpus.iter().find(|gpu| gpu.ordinal() == ordinal) {
            return Ok(gpu.clone());
        }
        let gpu = Gpu::open(ordinal, self.folders.clone(), LIMIT)?;
        gpus.push(gpu.clone());
        Ok(gpu)
    }
}

#[pymethods]
impl MessageDevices {
    #[new]
    fn new(py: Python<'_>) -> MessageDevices {
        MessageDevices { folders: compiler_folders(py), gpus: Mutex::default() }
    }

    /// What an array of any library is.
    fn look(&self, array: &Bound<'_, PyAny>, call: i64) -> PyResult<Looked> {
        let taken = self.take(array, "message", call)?;
        let ordinal = match taken.place() {
            ArrayPlace::Host => None,
            ArrayPlace::Cuda { ordinal, .. } => Some(ordinal),
        };
        let writable = matches!(taken.access(), Access::Writable);
        let name = taken.dtype().name().into_owned();
        Ok((name, taken.shape().to_vec(), taken.bytes(), ordinal, writable))
    }

    /// Pinned memory for messages of a GPU.
    fn room(&self, py: Python<'_>, ordinal: u32, bytes: u64) -> PyResult<MessageRoom> {
        let made = detached(py, None, || self.gpu_of(ordinal)?.pinned(bytes))?;
        Ok(MessageRoom { memory: made, decoding: Mutex::default() })
    }

    /// Encodes an array of a GPU to a room from an offset on: how many bytes that took. The host
    /// waits for them, at most `seconds`.
    fn encode(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        call: i64,
        codec: &Bound<'_, PyAny>,
        place: (Py<MessageRoom>, u64),
        seconds: f64,
    ) -> PyResult<u64> {
        let taken = self.take(array, "message", call)?;
        let (loan, limit) = (Loan::of(&taken, codec)?, limit_of(seconds)?);
        let (memory, offset) = (&place.0.get().memory, place.1);
        guarded(py, || {
            detached(py, None, || {
                let encode = |gpu: &Gpu, lone: &LoneArray<'_>| {
                    gpu.encode_alone(lone, (memory, offset), limit).map(|made| made.bytes)
                };
                loan.with(self, encode)
            })
        })
    }

    /// Decodes bytes of a room (the room, the offset, how many) into an array of a GPU. The host
    /// does not wait where the library of the array orders its later work after this; the room is
    /// in use until its `settle`.
    fn decode(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        call: i64,
        codec: &Bound<'_, PyAny>,
        place: (Py<MessageRoom>, u64, u64),
        seconds: f64,
    ) -> PyResult<()> {
        let taken = self.take(array, "message", call)?;
        let (loan, limit) = (Loan::of(&taken, codec)?, limit_of(seconds)?);
        let (room, offset, stored) = (place.0.get(), place.1, place.2);
        guarded(py, || {
            detached(py, None, || {
                let decode = |gpu: &Gpu, lone: &LoneArray<'_>| {
                    let decoding = gpu.decode_alone(lone, (&room.memory, offset), stored)?;
                    if loan.piece.after() != AfterCopy::Nothing {
                        return decoding.wait(limit);
                    }
                    room.keep(decoding);
                    Ok(())
                };
                loan.with(self, decode)
            })
        })
    }
}

impl MessageDevices {
    fn take(&self, array: &Bound<'_, PyAny>, call: &'static str, version: i64) -> PyResult<Array> {
        take(array, Label { call, version, name: "0" }, &Intake::new(self, None))
    }
}

/// An array of a GPU that is lent for one call.
struct Loan {
    piece: DevicePiece,
    dtype: unspool::Dtype,
    shape: Vec<u64>,
    codec: Spec,
}

impl Loan {
    fn of(array: &Array, codec: &Bound<'_, PyAny>) -> PyResult<Loan> {
        let ArrayPlace::Cuda { ordinal, work } = array.place() else {
            return Err(PyValueError::new_err("the array lies in main memory"));
        };
        let shape = array.shape().iter().map(|&extent| extent as u64).collect();
        let piece = DevicePiece::of(array, ordinal, work, false);
        Ok(Loan { piece, dtype: array.dtype().clone(), shape, codec: spec(codec, "codec")? })
    }

    fn with<T>(
        &self,
        devices: &MessageDevices,
        work: impl FnOnce(&Gpu, &LoneArray<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let stream = self.piece.stream(devices)?;
        let gpu = devices.gpu_of(self.piece.array().ordinal())?;
        let (array, dtype, shape) = (self.piece.array(), &self.dtype, &self.shape[..]);
        work(&gpu, &LoneArray { array, stream: &stream, dtype, shape, codec: &self.codec })
    }
}

/// Pinned memory that a message lies in, by the buffer protocol.
#[pyclass(module = "unspool._unspool", frozen)]
pub struct MessageRoom {
    memory: PinnedMemory,
    /// What still reads from it.
    decoding: Mutex<Option<LoneDecoding>>,
}

impl MessageRoom {
    fn keep(&self, decoding: LoneDecoding) {
        *self.decoding.lock().unwrap_or_else(PoisonError::into_inner) = Some(decoding);
    }
}

#[pymethods]
impl MessageRoom {
    /// Waits until what was decoded from it is done, at most `seconds`.
    fn settle(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let limit = limit_of(seconds)?;
        detached(py, None, || {
            let mut decoding = self.decoding.lock().unwrap_or_else(PoisonError::into_inner);
            let done = decoding.as_ref().map_or(Ok(()), |decoding| decoding.wait(limit));
            // What is late is still waited for by the next call.
            if !matches!(&done, Err(why) if why.kind() == unspool::ErrorKind::Timeout) {
                *decoding = None;
            }
            done
        })
    }

    fn __len__(&self) -> usize {
        self.memory.len() as usize
    }

    /// # Safety
    /// Called by Python with a view to be filled, or null.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        let len = this.memory.len();
        let place =
            this.memory.at(0, len).map_err(|why| PyBufferError::new_err(why.to_string()))?;
        // SAFETY: Python's view, the memory of `slf`, to which the view holds a reference, and its
        // length.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                place.cast(),
                len as ffi::Py_ssize_t,
                0,
                flags,
            )
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

fn limit_of(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|why| PyValueError::new_err(why.to_string()))
}
