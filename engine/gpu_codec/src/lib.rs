//! Codecs on a GPU: kernels on a stream of the caller's encode and decode arrays in device memory,
//! and the host waits for neither. The encoded size comes back through pinned memory ([`Pending`]).
//!
//! A [`GpuLayout`] describes how an array is encoded, and a [`GpuCodec`] encodes it:
//!
//! - [`twine`]: our codec; the same bytes as `unspool_codec::twine` makes in main memory.
//! - [`ZfpCoder`]: zfp with a fixed rate, decoded by any zfp of version 1.
//! - [`NvCompCoder`]: the codecs of NVIDIA's nvCOMP, loaded when it is installed.
//!
//! [`GpuCodecs`] has all of them, for checkpoints whose regions have several codecs.
//! [`ChunkHasher`] hashes what lies on a device, to find what has changed.

mod codec;
mod codecs;
mod hashes;
mod nvcomp;
pub mod pending;
mod scratch;
mod start;
mod steps;
pub mod twine;
mod zfp;

use unspool_cuda::kernels::KernelText;

pub use codec::{DecodeJob, EncodeJob, GpuCodec, GpuLayout, StoredCheckpoint};
pub use codecs::{After, GpuCodecs, Items, PendingParts, Request, Values};
pub use hashes::ChunkHasher;
pub use nvcomp::{NvCompCoder, NvCompLayout, NvCompLibrary};
pub use pending::{
    CheckpointResult, DecodeStatus, EncodeError, EncodeErrorKind, JobResult, Pending, Slots, Start,
};
pub use steps::Steps;
pub use zfp::{ZfpCoder, ZfpLayout};

/// The texts of all kernels, including those of crate `cuda`: what is compiled and shipped.
#[must_use]
pub fn sources() -> Vec<KernelText> {
    let mut all = twine::sources();
    all.push(KernelText::of("zfp.cu", zfp::KERNELS, zfp::SOURCE));
    all.push(KernelText::of("nvcomp.cu", nvcomp::KERNELS, nvcomp::SOURCE));
    all.push(KernelText::of("chunk_hash.cu", hashes::KERNELS, hashes::SOURCE));
    all.extend(unspool_cuda::kernel_sources());
    all
}
