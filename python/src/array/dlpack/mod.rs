//! Arrays that speak DLPack: `__dlpack__`, both kinds of capsule, and the C exchange table.
//!
//! The stream protocol is that of the Python array API standard: the consumer names a stream, and
//! the producer sees to it that work enqueued there finds the data ready. Streams are numbered as
//! CUDA does, except that 0 is not allowed: 1 is the legacy default stream, 2 that of the thread.

mod exchange;
pub mod items;
pub mod raw;

use std::ffi::CStr;
use std::ptr::NonNull;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use super::intake::{ArrayPlace, Intake, LEGACY_STREAM, PendingWork};
use super::{Access, Array, ArrayRefusal, Owner, dense_strides};
pub use exchange::ExchangeTable;
pub use raw::Tensor;
use raw::{CPU, CUDA, CUDA_HOST, CUDA_MANAGED, Device, Plain};

/// Memory of AMD's GPUs that the host can read.
const ROCM_HOST: i32 = 11;

/// Borrows the memory of `object` with `__dlpack__`; `None` when it has no such method.
///
/// `work` is the stream on which the library of `object` is known to work on a device; without it,
/// the data is asked for on the stream of the call.
///
/// # Errors
/// Why it cannot be borrowed; nothing is lent then.
pub fn borrow(
    object: &Bound<'_, PyAny>,
    intake: &Intake<'_>,
    work: impl FnOnce(u32) -> Option<usize>,
) -> Option<Result<Array, ArrayRefusal>> {
    let method = object.getattr_opt(intern!(object.py(), "__dlpack__")).ok().flatten()?;
    Some(exported(object, &method, intake, work))
}

fn exported(
    object: &Bound<'_, PyAny>,
    method: &Bound<'_, PyAny>,
    intake: &Intake<'_>,
    work: impl FnOnce(u32) -> Option<usize>,
) -> Result<Array, ArrayRefusal> {
    let py = object.py();
    let ordinal =
        cuda_ordinal(object).map_err(|raised| ArrayRefusal::from_exception(py, raised))?;
    let Some(ordinal) = ordinal else {
        let capsule =
            call(method, None).map_err(|raised| ArrayRefusal::from_exception(py, raised))?;
        return describe(consume(&capsule)?, |ordinal| place(intake, ordinal, LEGACY_STREAM));
    };
    // A library whose stream is known needs to make nothing visible: the copy goes to that stream.
    let (stream, work) = match intake.stream().map_or_else(|| work(ordinal), |_| None) {
        Some(known) => (-1, PendingWork::Enqueued(known)),
        None => {
            let stream = intake.stream_on(py, ordinal)?;
            (stream.cast_signed(), intake.work_on(stream))
        }
    };
    let capsule =
        call(method, Some(stream)).map_err(|raised| ArrayRefusal::from_exception(py, raised))?;
    describe(consume(&capsule)?, |found| {
        // An exporter that changes its mind is taken at its word.
        intake.admit(found).map(|()| ArrayPlace::Cuda { ordinal: found, work })
    })
}

fn place(intake: &Intake<'_>, ordinal: u32, stream: usize) -> Result<ArrayPlace, ArrayRefusal> {
    intake.admit(ordinal).map(|()| ArrayPlace::Cuda { ordinal, work: intake.work_on(stream) })
}

/// The number of the CUDA device on which `object` lies; `None` for other kinds of memory, and
/// where the exporter cannot say.
fn cuda_ordinal(object: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    let py = object.py();
    let Some(method) = object.getattr_opt(intern!(py, "__dlpack_device__"))? else {
        return Ok(None);
    };
    let device = method.call0()?;
    let kind: i32 = device.get_item(0)?.extract()?;
    let on_cuda = kind == CUDA || kind == CUDA_MANAGED;
    if on_cuda { device.get_item(1)?.extract().map(Some) } else { Ok(None) }
}

/// Asks for a versioned capsule, and again with fewer arguments where those are not known yet.
fn call<'py>(method: &Bound<'py, PyAny>, stream: Option<isize>) -> PyResult<Bound<'py, PyAny>> {
    let py = method.py();
    let options = PyDict::new(py);
    if let Some(stream) = stream {
        options.set_item(intern!(py, "stream"), stream)?;
    }
    options.set_item(intern!(py, "max_version"), (raw::MAJOR, 0))?;
    match method.call((), Some(&options)) {
        Err(refusal) if refusal.is_instance_of::<PyTypeError>(py) => {
            options.del_item(intern!(py, "max_version"))?;
            method.call((), Some(&options))
        }
        answer => answer,
    }
}

/// Takes the tensor out of a capsule, so that its deleter is ours to call.
fn consume(capsule: &Bound<'_, PyAny>) -> Result<Tensor, String> {
    if let Some(tensor) = take_out(capsule, raw::VERSIONED, raw::USED_VERSIONED) {
        // SAFETY: a fresh capsule hands its tensor over to whoever takes it out.
        return Ok(Tensor::Versioned(unsafe { raw::VersionedTensor::new(tensor.cast()) }));
    }
    if let Some(tensor) = take_out(capsule, raw::LEGACY, raw::USED_LEGACY) {
        // SAFETY: as above.
        return Ok(Tensor::Legacy(unsafe { raw::LegacyTensor::new(tensor.cast()) }));
    }
    Err("its __dlpack__ gave no fresh DLPack capsule".to_owned())
}

fn take_out(capsule: &Bound<'_, PyAny>, name: &CStr, used: &'static CStr) -> Option<NonNull<()>> {
    let raw = capsule.as_ptr();
    // SAFETY: `raw` is a live object; it is asked for its address only when it is a capsule of
    // this name, and renaming it, which cannot fail then, tells its destructor that the tensor
    // is no longer its own.
    unsafe {
        if ffi::PyCapsule_IsValid(raw, name.as_ptr()) == 0 {
            return None;
        }
        let address = ffi::PyCapsule_GetPointer(raw, name.as_ptr());
        ffi::PyCapsule_SetName(raw, used.as_ptr());
        NonNull::new(address.cast())
    }
}

/// The exchange table of the class `class`; `None` when there is none that this crate understands.
pub fn table(class: &Bound<'_, PyAny>) -> Option<ExchangeTable> {
    let found = class.getattr_opt(intern!(class.py(), "__dlpack_c_exchange_api__")).ok()??;
    ExchangeTable::of(found.cast::<PyCapsule>().ok()?)
}

/// Borrows the memory of `object` through the exchange table of its class, which is several times
/// faster than `__dlpack__`; `None` when it gives nothing.
///
/// # Errors
/// Why it cannot be borrowed; nothing is lent then.
pub fn exchange(
    object: &Bound<'_, PyAny>,
    table: &ExchangeTable,
    intake: &Intake<'_>,
    work: impl FnOnce(u32) -> Option<usize>,
) -> Option<Result<Array, ArrayRefusal>> {
    let tensor = table.export(object)?;
    Some(describe(Tensor::Versioned(tensor), |ordinal| {
        intake.admit(ordinal)?;
        let stream = intake.stream().or_else(|| table.current_stream(ordinal));
        let stream = stream.or_else(|| work(ordinal)).unwrap_or(LEGACY_STREAM);
        Ok(ArrayPlace::Cuda { ordinal, work: PendingWork::Enqueued(stream) })
    }))
}

fn describe(
    tensor: Tensor,
    on_cuda: impl FnOnce(u32) -> Result<ArrayPlace, ArrayRefusal>,
) -> Result<Array, ArrayRefusal> {
    let (plain, flags, access) = match &tensor {
        Tensor::Legacy(held) => (held.plain(), 0, Access::Unknown),
        Tensor::Versioned(held) => match held.plain() {
            Ok((plain, flags)) => (plain, flags, access(flags)),
            Err(major) => {
                return Err(format!("its DLPack version {major} is not known here").into());
            }
        },
    };
    let place = match known_device(plain.device)? {
        Some(ordinal) => on_cuda(ordinal)?,
        None => ArrayPlace::Host,
    };
    let dtype = items::dtype(plain.items, flags)?;
    // SAFETY: shape and strides are those of a live tensor.
    let layout = unsafe { layout(&plain, dtype.itemsize() as usize)? };
    let data = plain.data.cast::<u8>().wrapping_add(plain.byte_offset as usize);
    let array = Array::new(data, dtype, layout, access, Owner::Dlpack { _tensor: tensor })?;
    Ok(array.at(place))
}

fn access(flags: u64) -> Access {
    if flags & raw::IS_COPIED != 0 {
        Access::Copied
    } else if flags & raw::READ_ONLY != 0 {
        Access::ReadOnly
    } else {
        Access::Writable
    }
}

/// The number of a CUDA device; `None` for CPU memory and memory that a GPU's driver has pinned,
/// which are read and written in place. Managed memory is copied as its device sees it.
fn known_device(device: Device) -> Result<Option<u32>, String> {
    let name = match device.kind {
        CPU | CUDA_HOST | ROCM_HOST => return Ok(None),
        CUDA | CUDA_MANAGED => {
            let number = u32::try_from(device.id);
            return number.map(Some).map_err(|_| format!("its CUDA device is {}", device.id));
        }
        4 => "OpenCL",
        7 => "Vulkan",
        8 => "Metal",
        10 => "ROCm",
        14 => "oneAPI",
        _ => "unknown",
    };
    Err(format!(
        "it lies on a device that is neither the CPU nor a CUDA GPU ({name}, number {}, DLPack \
         type {}): copy it to the CPU first",
        device.id, device.kind
    ))
}

/// # Safety
/// `plain.shape` has `plain.ndim` entries, and so has `plain.strides` unless it is null.
unsafe fn layout(plain: &Plain, itemsize: usize) -> Result<(Vec<usize>, Vec<isize>), String> {
    let ndim = usize::try_from(plain.ndim).map_err(|_| "it has a negative number of dimensions")?;
    if ndim > 0 && plain.shape.is_null() {
        return Err("its DLPack tensor has no shape".to_owned());
    }
    // SAFETY: the caller's promise.
    let shape = unsafe { entries(plain.shape, ndim) };
    let shape = shape
        .iter()
        .map(|&extent| usize::try_from(extent))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| format!("its shape {shape:?} has a negative entry"))?;
    if plain.strides.is_null() {
        let strides = dense_strides(&shape, itemsize);
        return Ok((shape, strides));
    }
    // SAFETY: the caller's promise.
    let strides = unsafe { entries(plain.strides, ndim) };
    let strides = strides.iter().map(|&s| (s as isize).wrapping_mul(itemsize as isize)).collect();
    Ok((shape, strides))
}

/// # Safety
/// `first` points to `count` entries that outlive `'a`, unless `count` is 0.
unsafe fn entries<'a>(first: *const i64, count: usize) -> &'a [i64] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(first, count) }
}
