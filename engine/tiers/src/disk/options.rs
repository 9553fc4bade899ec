//! The settings of the disk tier.

use std::path::PathBuf;

/// Settings of a [`Disk`](crate::Disk). Start from [`DiskOptions::new`] and change fields.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DiskOptions {
    /// The directory; created when it does not exist and the one that is to contain it does.
    ///
    /// Ephemeral: frames live in a directory of their own in it. Durable: they live in it.
    pub dir: PathBuf,
    /// The most bytes that the files of frames may take, each rounded up to whole blocks of 4096
    /// bytes; `None`: as much as the file system holds. A `put` beyond it is `Failure::NoSpace`.
    pub capacity: Option<u64>,
    /// Whether frames outlive the process. False: they are removed at close, or by the next
    /// opener when the process died.
    pub durable: bool,
    /// What the tier may do with the directory.
    pub mode: DiskMode,
    /// The permissions of the files of a durable tier, as of `chmod`; at least reading and writing
    /// by the owner. What an ephemeral tier writes is for its owner alone.
    pub permissions: u32,
    /// How the bytes of frames that are not packed reach the medium.
    pub io: DiskIo,
    /// Frames of at most so many bytes are packed together, without their zeros, where that takes
    /// less room than a file of their own; 0: none. More than 65,535 bytes are never packed.
    pub packed_up_to: u64,
}

impl DiskOptions {
    /// Ephemeral, without a limit, with the fastest I/O that works in `dir`, for the owner alone.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> DiskOptions {
        DiskOptions {
            dir: dir.into(),
            capacity: None,
            durable: false,
            mode: DiskMode::default(),
            permissions: 0o600,
            io: DiskIo::Auto,
            packed_up_to: 65_535,
        }
    }
}

/// What a tier may do with its directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DiskMode {
    /// Reads and writes it. Of a durable directory the tier is the only writer.
    #[default]
    ReadWrite,
    /// Reads the frames of a durable directory. Nothing in it is written, locked or removed, so it
    /// may belong to somebody else, lie on a read-only file system, or have a writer at the same
    /// time. What it holds is looked at once, when the tier is opened.
    ReadOnly,
}

/// How bytes reach the medium.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DiskIo {
    /// `Direct` where it works, else `Buffered`; `Description::notes` says which and why.
    #[default]
    Auto,
    /// Past the page cache (`O_DIRECT`), one blocking call at a time in each thread.
    Direct,
    /// Through the page cache, which is emptied of these bytes again.
    Buffered,
    /// Past the page cache with several requests in flight per frame (`io_uring`).
    Uring,
}
