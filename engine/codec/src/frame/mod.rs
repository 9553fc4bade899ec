//! The frame: how the arrays of one checkpoint lie in a store. `docs/format.md` specifies it.

mod checksum;
mod error;
mod head;
mod limits;
mod parse;
mod pieces;
mod region;

pub use checksum::{Checksum, checksum, joined_checksums};
pub use error::{FrameError, FrameErrorKind};
pub use head::{Head, Packed};
pub use limits::{
    FORMAT_VERSION, HEAD_ALIGNMENT, MAGIC, MAX_DIMENSION, MAX_HEAD_BYTES, MAX_NAME_BYTES,
    MAX_PAYLOAD_BYTES, MAX_RANK, MAX_REGIONS, MAX_TAG_BYTES, PIECE_BYTES, REGION_ALIGNMENT,
};
pub use parse::{head_len, parse_head, version_of};
pub use pieces::PieceSums;
pub use region::{Region, RegionSpec};
