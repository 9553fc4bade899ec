//! Device memory for bytes on their way, made once and used again: allocating costs more than most
//! copies.

use std::sync::OnceLock;

use unspool_cuda::{DeviceError, DeviceMemory, DeviceSpan, Fence, Stream};
use unspool_transfer::sync::{Mutex, lock};

use super::Gpu;
use crate::error::Error;

/// The most bytes that are kept for later, and pieces of them.
const KEPT_BYTES: u64 = 512 << 20;
const KEPT: usize = 8;

/// Pieces that wait for their next use, after the work of the last.
#[derive(Debug, Default)]
pub(crate) struct ScratchPool(Mutex<Vec<(DeviceMemory, Fence)>>);

/// Memory for some work on one stream. Dropped without [`ScratchLease::done`], it is freed after
/// everything on the device.
#[derive(Debug)]
pub(crate) struct ScratchLease {
    memory: DeviceMemory,
    bytes: u64,
}

impl ScratchPool {
    /// Memory of `bytes` bytes, for work on `stream` from now on.
    pub(crate) fn take(
        &self,
        gpu: &Gpu,
        bytes: u64,
        stream: &Stream,
    ) -> Result<ScratchLease, DeviceError> {
        let fits = |piece: &(DeviceMemory, Fence)| {
            let len = piece.0.span().len();
            (bytes..=bytes.saturating_mul(2).max(1 << 20)).contains(&len)
        };
        let found = {
            let mut kept = lock(&self.0);
            kept.iter().position(fits).map(|index| kept.remove(index))
        };
        let memory = match found {
            Some((memory, fence)) => {
                stream.wait_for(&fence)?;
                memory
            }
            None => DeviceMemory::new(gpu.context(), bytes)?,
        };
        Ok(ScratchLease { memory, bytes })
    }
}

impl ScratchLease {
    pub(crate) fn span(&self) -> DeviceSpan {
        let span = self.memory.span();
        span.slice(0, self.bytes).unwrap_or(span)
    }

    /// The work on it is done with `fence`.
    pub(crate) fn done(self, gpu: &Gpu, fence: Fence) {
        let len = |piece: &(DeviceMemory, Fence)| piece.0.span().len();
        let mut gone = Vec::new();
        let mut kept = lock(&gpu.scratch.0);
        let mut bytes: u64 = kept.iter().map(len).sum::<u64>() + self.memory.span().len();
        kept.push((self.memory, fence));
        while kept.len() > KEPT || bytes > KEPT_BYTES {
            let piece = kept.remove(0);
            bytes -= len(&piece);
            gone.push(piece);
        }
        // What is freed is freed without the lock.
        drop(kept);
    }
}

/// Memory of a GPU that the application works on, in order on one stream. Dropped after
/// [`BlockMemory::done`] it is used again, after that work; else it is freed, after everything on
/// the device.
#[derive(Debug)]
pub struct BlockMemory {
    gpu: Gpu,
    /// `None` once it was given back.
    lease: Option<ScratchLease>,
    done: OnceLock<Fence>,
}

impl BlockMemory {
    /// Memory of `bytes` bytes, for work on `stream` from now on; its content is unspecified.
    ///
    /// # Errors
    /// `Device` when the GPU has no more.
    pub fn new(gpu: &Gpu, bytes: u64, stream: &Stream) -> Result<BlockMemory, Error> {
        let lease = Some(gpu.scratch(bytes, stream)?);
        Ok(BlockMemory { gpu: gpu.clone(), lease, done: OnceLock::new() })
    }

    /// The address of its first byte.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.lease.as_ref().map_or(0, |lease| lease.span().address())
    }

    /// All work on it comes before `fence`.
    pub fn done(&self, fence: Fence) {
        let _ = self.done.set(fence);
    }
}

impl Drop for BlockMemory {
    fn drop(&mut self) {
        if let Some((lease, fence)) = self.lease.take().zip(self.done.take()) {
            lease.done(&self.gpu, fence);
        }
    }
}
