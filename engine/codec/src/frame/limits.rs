//! The numbers of the format: constants and limits. `docs/reference/format.md` states the same.

/// The first eight bytes of every frame. The byte above 127, the line ends and the end-of-file
/// mark make a file that was mangled as text recognisable at once.
pub const MAGIC: [u8; 8] = *b"\x89UNSP\r\n\x1a";

/// The newest version of the format that this crate reads and writes. Heads that need nothing of it
/// are written as version 1.
pub const FORMAT_VERSION: u32 = 2;

/// The version of heads in which nothing is encoded.
pub(crate) const PLAIN_VERSION: u32 = 1;

/// An encoded head is a multiple of this many bytes, so that the payload after it can be read
/// and written with `O_DIRECT`.
pub const HEAD_ALIGNMENT: u64 = 4096;

/// Every region begins at a multiple of this many bytes of the payload.
pub const REGION_ALIGNMENT: u64 = 64;

/// The longest encoded head, in bytes.
pub const MAX_HEAD_BYTES: u64 = 16 << 20;

/// The longest payload, in bytes; head and payload together stay below the largest file offset.
pub const MAX_PAYLOAD_BYTES: u64 = 1 << 62;

/// The most regions of a frame.
pub const MAX_REGIONS: usize = 65_536;

/// The most dimensions of a region (NumPy's limit).
pub const MAX_RANK: usize = 64;

/// The largest dimension of a region: the largest index that NumPy, PyTorch and JAX can hold.
pub const MAX_DIMENSION: u64 = i64::MAX as u64;

/// The longest name of a region, in bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 4096;

/// The longest tag of an opaque dtype, in bytes of UTF-8.
pub const MAX_TAG_BYTES: usize = 65_535;

/// Bytes of a piece of a payload that has a checksum of its own; the last piece may be shorter.
pub const PIECE_BYTES: u64 = 1 << 16;

/// The flag of heads of which the checksums of the pieces follow the payload.
pub(crate) const FLAG_PIECES: u32 = 1;

/// Where the flags lie in the head.
pub(crate) const FLAGS_AT: usize = 12;

/// Bytes of the head before the region table in version 1, and before the packing in version 2.
pub(crate) const FIXED_BYTES: usize = 64;

/// Bytes of the packing, which version 2 has between the fixed part and the region table.
pub(crate) const PACKING_BYTES: usize = 32;

/// Bytes of an entry of the region table before its shape.
pub(crate) const ENTRY_BYTES: usize = 48;

/// Where the length of the head lies in it, in all versions of the format.
pub(crate) const HEAD_BYTES_AT: usize = 16;

/// Where the checksum of the head lies in it; these 8 bytes count as zero in that checksum.
pub(crate) const HEAD_CHECKSUM_AT: usize = 24;

/// Where the user version lies in the head.
pub(crate) const VERSION_AT: usize = 48;
