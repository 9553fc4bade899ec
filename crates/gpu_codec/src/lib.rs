//! Codecs on a GPU: arrays in device memory are encoded and decoded by kernels on a stream of the
//! caller's, and the host waits for neither. The size of what was encoded comes back through pinned
//! memory ([`Pending`]).
//!
//! A [`GpuLayout`] says how an array is encoded, and a [`GpuCodec`] does it:
//!
//! - [`twine`]: our codec; the same bytes as `unspool_codec::twine` makes in main memory.
//! - [`ZfpCoder`]: zfp with a fixed rate, decoded by any zfp of version 1.
//! - [`NvCompCoder`]: the codecs of NVIDIA's nvCOMP, loaded when it is installed.
//!
//! [`GpuCodecs`] has all of them, for checkpoints whose regions have several codecs.

mod codec;
mod codecs;
mod nvcomp;
pub mod pending;
mod scratch;
mod start;
pub mod twine;
mod zfp;

pub use codec::{Checkpoint, DecodeJob, EncodeJob, GpuCodec, GpuLayout};
pub use codecs::{After, GpuCodecs, Parts, Request, Values};
pub use nvcomp::{NvCompCoder, NvCompLayout, NvCompLibrary};
pub use pending::{
    CheckpointResult, DecodeStatus, EncodeError, EncodeErrorKind, JobResult, Pending, Slots, Start,
};
pub use zfp::{ZfpCoder, ZfpLayout};

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
