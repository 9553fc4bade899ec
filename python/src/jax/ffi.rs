//! XLA's interface for foreign functions, as far as it is used: the structures of its C header
//! `xla/ffi/api/c_api.h`, version 0.3.
//!
//! XLA only ever adds fields at the end of a structure, and says in `struct_size` how much of it
//! there is; the major version changes when that stops being so. A field is read after the size was
//! looked at ([`super::frame`] does that).

use std::ffi::{c_char, c_int, c_void};
use std::mem::{offset_of, size_of};

/// The version of the interface that these structures are of.
pub const VERSION: (c_int, c_int) = (0, 3);

/// The kind of an [`Extension`] that asks a handler for its [`Metadata`].
pub const METADATA: c_int = 1;

/// The kind of an attribute that is one number.
pub const SCALAR: c_int = 3;

/// The code of signed integers of 64 bits.
pub const S64: c_int = 5;

/// An error of XLA's own making; null is success.
#[repr(C)]
#[derive(Debug)]
pub struct Failure {
    _opaque: [u8; 0],
}

/// What an execution has, as XLA knows it.
#[repr(C)]
#[derive(Debug)]
pub struct Context {
    _opaque: [u8; 0],
}

#[repr(C)]
#[derive(Debug)]
pub struct Extension {
    pub struct_size: usize,
    pub kind: c_int,
    pub next: *mut Extension,
}

#[repr(C)]
#[derive(Debug)]
pub struct Version {
    pub struct_size: usize,
    pub extensions: *mut Extension,
    pub major: c_int,
    pub minor: c_int,
}

#[repr(C)]
#[derive(Debug)]
pub struct Metadata {
    pub struct_size: usize,
    pub version: Version,
    pub traits: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct MetadataExtension {
    pub base: Extension,
    pub metadata: *mut Metadata,
}

#[repr(C)]
#[derive(Debug)]
pub struct ErrorCreate {
    pub struct_size: usize,
    pub extensions: *mut Extension,
    pub message: *const c_char,
    pub code: c_int,
}

/// The arguments of `Stream_Get`.
#[repr(C)]
#[derive(Debug)]
pub struct StreamGet {
    pub struct_size: usize,
    pub extensions: *mut Extension,
    pub context: *mut Context,
    pub stream: *mut c_void,
}

/// The arguments of `RunId_Get`.
#[repr(C)]
#[derive(Debug)]
pub struct RunGet {
    pub struct_size: usize,
    pub extensions: *mut Extension,
    pub context: *mut Context,
    pub run: i64,
}

/// The functions of XLA; those that are not used are only there for their place.
#[repr(C)]
#[derive(Debug)]
pub struct Api {
    pub struct_size: usize,
    pub extensions: *mut Extension,
    pub version: Version,
    pub internal: *const c_void,
    pub error_create: Option<unsafe extern "C" fn(*mut ErrorCreate) -> *mut Failure>,
    /// `Error_GetMessage`, `Error_Destroy`, `Handler_Register`.
    pub unused: [*const c_void; 3],
    pub stream_get: Option<unsafe extern "C" fn(*mut StreamGet) -> *mut Failure>,
    /// `Type_Register`, `ExecutionContext_Get`, `State_Set`, `State_Get`, two of memory, two of
    /// threads, three of futures.
    pub unused_too: [*const c_void; 11],
    pub run_id_get: Option<unsafe extern "C" fn(*mut RunGet) -> *mut Failure>,
}

#[repr(C)]
#[derive(Debug)]
pub struct Buffer {
    pub struct_size: usize,
    pub extensions: *mut Extension,
    pub dtype: c_int,
    pub data: *mut c_void,
    pub rank: i64,
    pub dims: *const i64,
}

#[repr(C)]
#[derive(Debug)]
pub struct ByteSpan {
    pub data: *const c_char,
    pub len: usize,
}

#[repr(C)]
#[derive(Debug)]
pub struct Scalar {
    pub dtype: c_int,
    pub value: *const c_void,
}

/// The operands of a call, or its results.
#[repr(C)]
#[derive(Debug)]
pub struct Values {
    pub struct_size: usize,
    pub extensions: *mut Extension,
    pub size: i64,
    pub kinds: *const c_int,
    pub values: *const *mut Buffer,
}

#[repr(C)]
#[derive(Debug)]
pub struct Attributes {
    pub struct_size: usize,
    pub extensions: *mut Extension,
    pub size: i64,
    pub kinds: *const c_int,
    pub names: *const *const ByteSpan,
    pub values: *const *const c_void,
}

/// One call of a handler.
#[repr(C)]
#[derive(Debug)]
pub struct CallFrame {
    pub struct_size: usize,
    pub extensions: *mut Extension,
    pub api: *const Api,
    pub context: *mut Context,
    pub stage: c_int,
    pub operands: Values,
    pub results: Values,
    pub attributes: Attributes,
}

// Where the header has them, on the 64-bit machines for which there are wheels.
const _: () = {
    assert!(size_of::<Extension>() == 24);
    assert!(size_of::<Version>() == 24);
    assert!(offset_of!(Metadata, traits) == 32);
    assert!(offset_of!(MetadataExtension, metadata) == 24);
    assert!(offset_of!(ErrorCreate, code) == 24);
    assert!(offset_of!(StreamGet, stream) == 24 && offset_of!(RunGet, run) == 24);
    assert!(offset_of!(Api, error_create) == 48);
    assert!(offset_of!(Api, stream_get) == 80);
    assert!(offset_of!(Api, run_id_get) == 176);
    assert!(offset_of!(Buffer, dims) == 40 && size_of::<Buffer>() == 48);
    assert!(size_of::<Values>() == 40 && size_of::<Attributes>() == 48);
    assert!(offset_of!(CallFrame, operands) == 40);
    assert!(offset_of!(CallFrame, attributes) == 120 && size_of::<CallFrame>() == 168);
};
