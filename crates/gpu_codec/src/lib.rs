//! Codecs on a GPU: arrays in device memory are encoded and decoded by kernels on a stream of the
//! caller's, and the host waits for neither. The size of what was encoded comes back through pinned
//! memory ([`Pending`]).
//!
//! - [`twine`]: our codec; the same bytes as `unspool_codec::twine` makes in main memory.
//! - [`ZfpCoder`]: zfp with a fixed rate, decoded by any zfp of version 1.
//! - [`NvCompCoder`]: the codecs of NVIDIA's nvCOMP, loaded when it is installed.

mod nvcomp;
pub mod pending;
mod scratch;
mod start;
pub mod twine;
mod zfp;

pub use nvcomp::{NvCompCoder, NvCompDecodeJob, NvCompJob, NvCompLayout, NvCompLibrary};
pub use pending::{
    CheckpointResult, DecodeStatus, EncodeError, EncodeErrorKind, JobResult, Pending, Slots, Start,
};
pub use zfp::{ZfpCoder, ZfpDecodeJob, ZfpJob, ZfpLayout};

/// Text of every kernel of this crate by name, for tests that compile them all.
pub const SOURCES: &[(&str, &str)] = &[
    ("zfp.cu", zfp::SOURCE),
    ("nvcomp.cu", nvcomp::SOURCE),
    twine::SOURCES[0],
    twine::SOURCES[1],
    twine::SOURCES[2],
    twine::SOURCES[3],
    twine::SOURCES[4],
    twine::SOURCES[5],
];
