//! Unspool's frame format and codecs: how the arrays of one checkpoint lie in a store.
//!
//! A [`Spec`] says which codec an array gets, with its bound; a [`Codec`] does that in main memory:
//! [`twine`] or [`zfp`]. An [`Outer`] coder packs whole payloads for a store.
//!
//! A frame is an encoded head, a multiple of 4096 bytes long, followed by the payload. The head
//! names the regions (arrays) and says where their bytes lie in the payload; it carries the
//! checksum of the payload and its own. `docs/reference/format.md` is the specification; this crate
//! is its reference.
//!
//! What holds throughout:
//! - One head has exactly one encoding: [`parse_head`] accepts no other bytes than those that
//!   [`Head::encode`] makes.
//! - Parsing never panics and allocates at most a small multiple of the length of its input.
//! - There is no I/O here and no unsafe code.
//!
//! ```
//! use unspool_codec::{Dtype, Head, RegionSpec, checksum, parse_head};
//!
//! # fn main() -> Result<(), unspool_codec::FrameError> {
//! let wave = RegionSpec { name: "u".into(), dtype: Dtype::Float32, shape: vec![3, 5] };
//! let head = Head::layout(7, vec![wave])?;
//! let payload = vec![0; head.payload_bytes as usize];
//! let mut frame = head.encode(checksum(&payload));
//! frame.extend_from_slice(&payload);
//!
//! let (read, payload_checksum) = parse_head(&frame)?;
//! assert_eq!(read.regions[0].shape, [3, 5]);
//! assert_eq!(checksum(&frame[read.encoded_len() as usize..]), payload_checksum);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod choose;
mod codec;
mod dtype;
mod error;
mod frame;
mod free;
mod host;
pub mod increment;
pub mod memory;
mod outer;
mod spec;
pub mod twine;
mod workers;
pub mod zfp;

pub use codec::{Achieved, Codec, EncodedStream};
pub use dtype::Dtype;
pub use error::{CodecError, CodecErrorKind};
pub use frame::{
    Checksum, FORMAT_VERSION, FrameError, FrameErrorKind, HEAD_ALIGNMENT, Head, MAGIC,
    MAX_DIMENSION, MAX_HEAD_BYTES, MAX_NAME_BYTES, MAX_PAYLOAD_BYTES, MAX_RANK, MAX_REGIONS,
    MAX_TAG_BYTES, PIECE_BYTES, Packed, PieceSums, REGION_ALIGNMENT, Region, RegionSpec, checksum,
    head_len, joined_checksums, parse_head, version_of,
};
pub use outer::{Outer, OuterId, unpack};
pub use spec::{Bound, CodecId, NvComp, Spec, Zfp};
