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

use unspool_cuda::kernels::Source;

pub use codec::{Checkpoint, DecodeJob, EncodeJob, GpuCodec, GpuLayout};
pub use codecs::{After, GpuCodecs, Parts, Request, Values};
pub use nvcomp::{NvCompCoder, NvCompLayout, NvCompLibrary};
pub use pending::{
    CheckpointResult, DecodeStatus, EncodeError, EncodeErrorKind, JobResult, Pending, Slots, Start,
};
pub use zfp::{ZfpCoder, ZfpLayout};

/// The texts of all kernels, those of crate `cuda` with them: what is compiled and shipped.
#[must_use]
pub fn sources() -> Vec<Source> {
    let mut all = twine::sources();
    all.push(Source::of("zfp.cu", zfp::KERNELS, zfp::SOURCE));
    all.push(Source::of("nvcomp.cu", nvcomp::KERNELS, nvcomp::SOURCE));
    all.extend(unspool_cuda::kernels::sources());
    all
}
