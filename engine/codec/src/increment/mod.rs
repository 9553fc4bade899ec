//! Increments: a checkpoint as what has changed since another one, its parent.
//!
//! The stored bytes of each region are cut into chunks of 64 KiB from its beginning. A chunk whose
//! hash is that of the chunk at the same place of the parent's region of the same name is not
//! stored. A stream of Twine of which chunks have changed is stored as those, or as its difference
//! to the stream of that region in the parent, whichever is smaller; what is put together is the
//! stream, byte for byte. What is stored is a frame of its own, with two regions: a table, which
//! names the parent and has the head of the whole checkpoint, and the changed chunks and
//! differences. `docs/reference/format.md` specifies it.
//!
//! - [`Draft`] looks for changes and takes what has changed; [`Chunks`] is what it compares with,
//!   and leaves for the next one. Hashes may come from where the bytes are: then only what has
//!   changed has to come.
//! - [`Increment`] is what was read back; [`Increment::apply`] makes the checkpoint of the parent
//!   and the changed chunks.
//!
//! The hash is XXH3 with 128 bits and a seed of the run's. It is kept in memory and never stored:
//! two chunks that differ are taken for equal with a probability of 2^-128, and the checksum of the
//! whole payload, which is stored, would tell at the restore. A GPU computes the same hash
//! (`engine/gpu_codec/kernels/chunk_hash.cu`). Streams of Twine are kept in memory beside their
//! hashes.

mod draft;
mod table;
mod whole;

pub use draft::{Chunks, Draft, Drafted};
pub use table::{Increment, Parent, is_increment, least_bytes};
pub use whole::Whole;

use twox_hash::XxHash3_128;

use crate::frame::Region;
use crate::spec::CodecId;
use crate::twine::Layout;

/// Bytes that are compared, and stored, together.
pub const CHUNK_BYTES: usize = 1 << 16;

/// The hash by which chunks are compared: XXH3 with 128 bits.
#[must_use]
pub fn chunk_hash(seed: u64, chunk: &[u8]) -> u128 {
    XxHash3_128::oneshot_with_seed(seed, chunk)
}

/// The number of chunks of a region with so many stored bytes.
fn chunks_of(stored: u64) -> u64 {
    stored.div_ceil(CHUNK_BYTES as u64)
}

/// The bytes of chunk `index` of a region with so many stored bytes.
fn chunk_len(stored: u64, index: u64) -> u64 {
    stored.saturating_sub(index.saturating_mul(CHUNK_BYTES as u64)).min(CHUNK_BYTES as u64)
}

/// The layout of a region that is a stream of Twine.
fn layout_of(region: &Region) -> Option<Layout> {
    let is_twine = region.codec == CodecId::Twine;
    is_twine.then(|| Layout::of(&region.dtype, &region.shape).ok())?
}

#[cfg(test)]
mod tests;
