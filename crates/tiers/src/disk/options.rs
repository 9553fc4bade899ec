//! The settings of the disk tier.

use std::path::PathBuf;

/// Settings of a [`Disk`](crate::Disk). Start from [`DiskOptions::new`] and change fields.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DiskOptions {
    /// The directory; created when it does not exist.
    ///
    /// Ephemeral: frames live in a directory of their own in it. Durable: they live in it.
    pub dir: PathBuf,
    /// The most bytes that frames may take, each rounded up to whole blocks of 4096 bytes;
    /// `None`: as much as the file system holds. A `put` beyond it is `Failure::NoSpace`.
    pub capacity: Option<u64>,
    /// Whether frames outlive the process. False: they are removed at close, or by the next
    /// opener when the process died.
    pub durable: bool,
    /// How bytes reach the medium.
    pub io: DiskIo,
}

impl DiskOptions {
    /// Ephemeral, without a limit, with the fastest I/O that works in `dir`.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> DiskOptions {
        DiskOptions { dir: dir.into(), capacity: None, durable: false, io: DiskIo::Auto }
    }
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
