//! The structures of DLPack 1.x (`dlpack.h`); 1.x only ever adds flags and dtypes.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

/// The name of a capsule without a version.
pub const LEGACY: &CStr = c"dltensor";
/// Its name once the tensor was taken out.
pub const USED_LEGACY: &CStr = c"used_dltensor";
/// The name of a capsule with a version.
pub const VERSIONED: &CStr = c"dltensor_versioned";
/// Its name once the tensor was taken out.
pub const USED_VERSIONED: &CStr = c"used_dltensor_versioned";
/// The name of the capsule of an exchange table.
pub const EXCHANGE: &CStr = c"dlpack_exchange_api";

/// The major version whose structures these are.
pub const MAJOR: u32 = 1;

/// Memory of the host.
pub const CPU: i32 = 1;
/// Memory of a CUDA device.
pub const CUDA: i32 = 2;
/// Host memory that CUDA has pinned.
pub const CUDA_HOST: i32 = 3;
/// Memory that CUDA moves between a device and the host by itself.
pub const CUDA_MANAGED: i32 = 13;

/// The memory must not be written.
pub const READ_ONLY: u64 = 1;
/// The memory is a copy of the exporter's.
pub const IS_COPIED: u64 = 1 << 1;
/// Items below a byte have a byte each.
pub const SUBBYTE_PADDED: u64 = 1 << 2;

/// `DLPackVersion`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DlpackVersion {
    /// Structures of another major version are laid out in another way.
    pub major: u32,
    /// Flags and dtypes that are known.
    pub minor: u32,
}

/// `DLDevice`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device {
    /// [`CPU`], [`CUDA`], ...
    pub kind: i32,
    /// Its number among those of its kind.
    pub id: i32,
}

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Items {
    /// The kind of number.
    pub code: u8,
    /// Bits of one.
    pub bits: u8,
    /// Numbers in an item.
    pub lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// The memory, `byte_offset` before the first item.
    pub data: *mut c_void,
    /// Where it lies.
    pub device: Device,
    /// Entries of `shape`.
    pub ndim: i32,
    /// The type of the items.
    pub items: Items,
    /// Dimensions, slowest first.
    pub shape: *const i64,
    /// Strides in items; null for C order.
    pub strides: *const i64,
    /// Bytes from `data` to the first item.
    pub byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
#[derive(Debug)]
pub struct Legacy {
    /// The tensor.
    pub plain: Plain,
    /// The exporter's own.
    pub context: *mut c_void,
    /// Gives the tensor back.
    pub deleter: Option<unsafe extern "C" fn(*mut Legacy)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
#[derive(Debug)]
pub struct Versioned {
    /// The version of this structure.
    pub version: DlpackVersion,
    /// The exporter's own.
    pub context: *mut c_void,
    /// Gives the tensor back.
    pub deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    /// [`READ_ONLY`], [`IS_COPIED`], [`SUBBYTE_PADDED`].
    pub flags: u64,
    /// The tensor.
    pub plain: Plain,
}

/// `DLPackExchangeAPI`: functions of a library that need no call of Python.
#[repr(C)]
#[derive(Debug)]
pub struct Exchange {
    /// The version of this table.
    pub version: DlpackVersion,
    _older: *const c_void,
    _allocate: *const c_void,
    /// `managed_tensor_from_py_object_no_sync`.
    pub export: Option<unsafe extern "C" fn(*mut c_void, *mut *mut Versioned) -> c_int>,
    _import: *const c_void,
    _borrow: *const c_void,
    /// `current_work_stream`: the stream on which the library works on a device.
    pub current_work_stream: Option<unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int>,
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

// SAFETY: DLPack lets the consumer call the deleter on any thread; ours do while Python is
// attached.
unsafe impl Send for LegacyTensor {}
// SAFETY: as above.
unsafe impl Send for VersionedTensor {}

impl LegacyTensor {
    /// # Safety
    /// The tensor was handed over to the caller alone.
    pub unsafe fn new(handed: NonNull<Legacy>) -> LegacyTensor {
        LegacyTensor(handed)
    }

    /// The tensor.
    pub fn plain(&self) -> Plain {
        // SAFETY: it lives until this is dropped.
        unsafe { self.0.as_ref().plain }
    }
}

impl VersionedTensor {
    /// # Safety
    /// The tensor was handed over to the caller alone.
    pub unsafe fn new(handed: NonNull<Versioned>) -> VersionedTensor {
        VersionedTensor(handed)
    }

    /// The tensor and its flags; the number of its major version when it is not known here.
    pub fn plain(&self) -> Result<(Plain, u64), u32> {
        // SAFETY: it lives until this is dropped; only the version is read before it is known to
        // be laid out as here.
        unsafe {
            let major = (*self.0.as_ptr()).version.major;
            if major != MAJOR {
                return Err(major);
            }
            Ok((self.0.as_ref().plain, self.0.as_ref().flags))
        }
    }
}

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
