//! The settings of a paged array.

use std::path::PathBuf;
use std::sync::Arc;

use unspool_codec::Dtype;
use unspool_tiers::{Disk, DiskOptions, Tier};

use crate::coder::Coding;
use crate::error::{PagingError, PagingErrorKind};
use crate::sys::page_bytes;

/// Chunks that are in memory at least.
const FEWEST: u64 = 4;

/// Chunks that are in memory, where their size is chosen here.
const USUAL: u64 = 32;

/// Settings of [`Paged`](crate::Paged). Start from [`PagingOptions::new`] and change fields.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PagingOptions {
    /// The most bytes of the array that are in memory. An array that is not larger is not paged.
    pub resident: u64,
    /// Bytes that are moved at a time, a multiple of the page; `None`: 256 KiB to 2 MiB, as suits
    /// `resident`.
    pub chunk: Option<u64>,
    /// Threads that answer faults, 1 to 64; `None`: 2 to 4, as suits the machine.
    pub threads: Option<usize>,
    /// The most bytes of encoded chunks in memory; `None`: no limit.
    pub host: Option<u64>,
    /// Where encoded chunks go beyond that.
    pub disk: Option<Arc<dyn Tier>>,
    /// What the items are, for the codec.
    pub dtype: Dtype,
    /// How chunks are encoded.
    pub coding: Coding,
    /// Whether to leave faults of the kernel alone even where they could be answered.
    pub user_mode_only: bool,
}

impl PagingOptions {
    /// So many bytes in memory and everything else by itself; items of `dtype` without loss.
    #[must_use]
    pub fn new(resident: u64, dtype: Dtype) -> PagingOptions {
        PagingOptions {
            resident,
            chunk: None,
            threads: None,
            host: None,
            disk: None,
            dtype,
            coding: Coding::Lossless,
            user_mode_only: false,
        }
    }

    /// Lets encoded chunks go to a directory of their own in `dir`, at most `capacity` bytes if
    /// that is given. It is removed with the array, or by the next one there if the process dies.
    ///
    /// # Errors
    /// `Io` when the directory cannot be made.
    pub fn spill_to(
        &mut self,
        dir: impl Into<PathBuf>,
        capacity: Option<u64>,
    ) -> Result<(), PagingError> {
        let mut options = DiskOptions::new(dir);
        options.capacity = capacity;
        let disk = Disk::open(options);
        let disk =
            disk.map_err(|error| PagingError::new(PagingErrorKind::Io, error.to_string()))?;
        self.disk = Some(Arc::new(disk));
        Ok(())
    }

    pub(crate) fn chunk_bytes(&self) -> Result<usize, PagingError> {
        let page = page_bytes() as u64;
        let usual = (self.resident / USUAL).clamp(256 << 10, 2 << 20);
        let chunk = self.chunk.unwrap_or(1 << usual.ilog2());
        if chunk == 0 || !chunk.is_multiple_of(page) || chunk > 64 << 20 {
            return Err(PagingError::invalid(format!(
                "`chunk` is {chunk} bytes: give a multiple of {page}, at most 64 MiB."
            )));
        }
        if self.resident / chunk < FEWEST {
            return Err(PagingError::invalid(format!(
                "`resident` is {} bytes, and at least {FEWEST} chunks of {chunk} bytes have to be \
                 in memory: give more, or a smaller `chunk`.",
                self.resident
            )));
        }
        Ok(chunk as usize)
    }

    pub(crate) fn threads(&self) -> Result<usize, PagingError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        match self.threads.unwrap_or((cores / 2).clamp(2, 4)) {
            threads @ 1..=64 => Ok(threads),
            threads => Err(PagingError::invalid(format!("`threads` is {threads}: give 1 to 64."))),
        }
    }
}
