//! Arrays that speak DLPack: `__dlpack__`, both kinds of capsule, and the C exchange table.
//!
//! The structures are those of DLPack 1.x (`dlpack.h`); 1.x only ever adds flags and dtypes.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use unspool::Dtype;

use super::{Access, Array, Owner, Refusal, dense_strides};

const LEGACY: &CStr = c"dltensor";
const USED_LEGACY: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";
const EXCHANGE: &CStr = c"dlpack_exchange_api";

/// The major version whose structures these are.
const MAJOR: u32 = 1;

const READ_ONLY: u64 = 1;
const IS_COPIED: u64 = 1 << 1;
const SUBBYTE_PADDED: u64 = 1 << 2;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Version {
    major: u32,
    _minor: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Device {
    kind: i32,
    id: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Items {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Plain {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    items: Items,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
#[derive(Debug)]
struct Legacy {
    plain: Plain,
    _context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Legacy)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
#[derive(Debug)]
struct Versioned {
    version: Version,
    _context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    plain: Plain,
}

/// The first entries of `DLPackExchangeAPI`.
#[repr(C)]
struct Exchange {
    version: Version,
    _older: *const c_void,
    _allocate: *const c_void,
    export: Option<unsafe extern "C" fn(*mut c_void, *mut *mut Versioned) -> c_int>,
}

/// A tensor that was handed over: its deleter is called once, when this is dropped, while Python
/// is attached.
#[derive(Debug)]
pub enum Tensor {
    /// From a `dltensor` capsule.
    Legacy(LegacyTensor),
    /// From a `dltensor_versioned` capsule or the exchange table.
    Versioned(VersionedTensor),
}

/// See [`Tensor`].
#[derive(Debug)]
pub struct LegacyTensor(NonNull<Legacy>);

/// See [`Tensor`].
#[derive(Debug)]
pub struct VersionedTensor(NonNull<Versioned>);

impl Drop for LegacyTensor {
    fn drop(&mut self) {
        // SAFETY: the tensor was handed over to us alone, and is given back once, here.
        unsafe {
            if let Some(deleter) = self.0.as_ref().deleter {
                deleter(self.0.as_ptr());
            }
        }
    }
}

impl Drop for VersionedTensor {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe {
            if let Some(deleter) = self.0.as_ref().deleter {
                deleter(self.0.as_ptr());
            }
        }
    }
}

/// Borrows the memory of `object` with `__dlpack__`; `None` when it has no such method.
///
/// # Errors
/// Why it cannot be borrowed; nothing is lent then.
pub fn borrow(object: &Bound<'_, PyAny>) -> Option<Result<Array, Refusal>> {
    let method = object.getattr_opt(intern!(object.py(), "__dlpack__")).ok().flatten()?;
    let capsule = match call(&method) {
        Ok(capsule) => capsule,
        Err(raised) => return Some(Err(Refusal::from_exception(object.py(), raised))),
    };
    Some(consume(&capsule).and_then(describe).map_err(Refusal::from))
}

/// Asks for a versioned capsule, and again without arguments where those are not known yet.
fn call<'py>(method: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = method.py();
    let options = PyDict::new(py);
    options.set_item(intern!(py, "max_version"), (MAJOR, 0))?;
    match method.call((), Some(&options)) {
        Err(refusal) if refusal.is_instance_of::<PyTypeError>(py) => method.call0(),
        answer => answer,
    }
}

/// Takes the tensor out of a capsule, so that its deleter is ours to call.
fn consume(capsule: &Bound<'_, PyAny>) -> Result<Tensor, String> {
    if let Some(tensor) = take_out(capsule, VERSIONED, USED_VERSIONED) {
        return Ok(Tensor::Versioned(VersionedTensor(tensor.cast())));
    }
    if let Some(tensor) = take_out(capsule, LEGACY, USED_LEGACY) {
        return Ok(Tensor::Legacy(LegacyTensor(tensor.cast())));
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

/// Borrows the memory of `object` through the exchange table of its type, which is several times
/// faster than `__dlpack__`; `None` when there is no table that this crate understands, or it
/// gives nothing.
///
/// # Errors
/// Why it cannot be borrowed; nothing is lent then.
pub fn exchange(object: &Bound<'_, PyAny>) -> Option<Result<Array, Refusal>> {
    let py = object.py();
    let table = object.get_type().getattr_opt(intern!(py, "__dlpack_c_exchange_api__")).ok()??;
    let table = table.cast::<PyCapsule>().ok()?;
    let address = table.pointer_checked(Some(EXCHANGE)).ok()?;
    // SAFETY: a capsule of this name holds the address of a table that lives as long as the
    // process; only the header is read before its version is known.
    let export = unsafe {
        let version = address.cast::<Version>().as_ref();
        if version.major != MAJOR { None } else { address.cast::<Exchange>().as_ref().export }
    }?;
    let mut tensor = std::ptr::null_mut();
    // SAFETY: `object` is live and an instance of the type that the table belongs to.
    let status = unsafe { export(object.as_ptr().cast(), &raw mut tensor) };
    let Some(tensor) = NonNull::new(tensor).filter(|_| status == 0) else {
        // `__dlpack__` says what is wrong in better words.
        drop(PyErr::take(py));
        return None;
    };
    Some(describe(Tensor::Versioned(VersionedTensor(tensor))).map_err(Refusal::from))
}

fn describe(tensor: Tensor) -> Result<Array, String> {
    // SAFETY: the tensor is ours until it is dropped. Of a versioned one only the version is
    // read before it is known to be laid out as here.
    let (plain, flags, access) = unsafe {
        match &tensor {
            Tensor::Legacy(held) => (held.0.as_ref().plain, 0, Access::Unknown),
            Tensor::Versioned(held) => {
                let version = (*held.0.as_ptr()).version.major;
                if version != MAJOR {
                    return Err(format!("its DLPack version {version} is not known here"));
                }
                let held = held.0.as_ref();
                (held.plain, held.flags, access(held.flags))
            }
        }
    };
    check_device(plain.device)?;
    let dtype = dtype(plain.items, flags)?;
    // SAFETY: shape and strides are those of a live tensor.
    let layout = unsafe { layout(&plain, dtype.itemsize() as usize)? };
    let data = plain.data.cast::<u8>().wrapping_add(plain.byte_offset as usize);
    Array::new(data, dtype, layout, access, Owner::Dlpack { _tensor: tensor })
}

fn access(flags: u64) -> Access {
    if flags & IS_COPIED != 0 {
        Access::Copied
    } else if flags & READ_ONLY != 0 {
        Access::ReadOnly
    } else {
        Access::Writable
    }
}

/// CPU memory, or memory that a GPU's driver has pinned, is read and written in place.
fn check_device(device: Device) -> Result<(), String> {
    let name = match device.kind {
        1 | 3 | 11 => return Ok(()),
        2 => "CUDA",
        4 => "OpenCL",
        7 => "Vulkan",
        8 => "Metal",
        10 => "ROCm",
        13 => "CUDA managed memory",
        14 => "oneAPI",
        _ => "unknown",
    };
    Err(format!(
        "it lies on another device than the CPU ({name}, number {}, DLPack type {}), and only \
         arrays in CPU memory can be saved and restored here: copy it to the CPU first",
        device.id, device.kind
    ))
}

fn dtype(items: Items, flags: u64) -> Result<Dtype, String> {
    let padded = flags & SUBBYTE_PADDED != 0;
    let name = match (items.code, items.bits, items.lanes) {
        (17, 4, 2) => "float4_e2m1fn_x2",
        (15, 6, 1) if padded => "float6_e2m3fn",
        (16, 6, 1) if padded => "float6_e3m2fn",
        (17, 4, 1) if padded => "float4_e2m1fn",
        (0, bits, 1) if padded || bits >= 8 => return named("int", bits),
        (1, bits, 1) if padded || bits >= 8 => return named("uint", bits),
        (2, bits, 1) => return named("float", bits),
        (4, 16, 1) => "bfloat16",
        (5, bits, 1) => return named("complex", bits),
        (6, 8, 1) => "bool",
        (7, 8, 1) => "float8_e3m4",
        (8, 8, 1) => "float8_e4m3",
        (9, 8, 1) => "float8_e4m3b11fnuz",
        (10, 8, 1) => "float8_e4m3fn",
        (11, 8, 1) => "float8_e4m3fnuz",
        (12, 8, 1) => "float8_e5m2",
        (13, 8, 1) => "float8_e5m2fnuz",
        (14, 8, 1) => "float8_e8m0fnu",
        _ => return Err(unknown(items)),
    };
    Dtype::from_name(name).ok_or_else(|| unknown(items))
}

fn named(kind: &str, bits: u8) -> Result<Dtype, String> {
    let name = format!("{kind}{bits}");
    Dtype::from_name(&name).ok_or_else(|| format!("its dtype ({name}) is not known here"))
}

fn unknown(items: Items) -> String {
    let Items { code, bits, lanes } = items;
    format!(
        "its dtype (DLPack code {code}, {bits} bits, {lanes} lanes) is not known here: pass a view \
         of its bytes as uint8 instead"
    )
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
