//! The GPU under a spool's tiers, and the application's arrays on it.

mod begun;
mod copies;
mod idle;
mod items;
mod lone;
mod on;
mod scratch;
mod small;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use unspool_cuda::{Context, device_of};
use unspool_cuda::{DeviceError, DeviceErrorKind, StridedCopies};
use unspool_gpu_codec::{ChunkHasher, GpuCodecs};
use unspool_tiers::Gpu as Device;

use crate::error::{Error, ErrorKind};

pub(crate) use begun::{InPlace, Leave, drop_when_idle};
pub(crate) use copies::{
    Data, Direction, Joined, Part, PlacedArray, UNIT, bring, captured, check_size, check_stream,
    clear, copy_all, download, get, load_host, part, put, send, staged, store, store_host, upload,
};
pub(crate) use idle::Idle;
pub(crate) use items::{in_place, to_write};
pub use lone::{LoneArray, LoneDecoding};
pub use on::On;
pub use scratch::BlockMemory;
pub(crate) use scratch::{ScratchLease, ScratchPool};
pub use unspool_cuda::{DeviceMemory, DeviceSpan, Fence, PinnedMemory, Stream, StridedLayout};
pub use unspool_tiers::{DeviceArray, GivenArray, Owner};

/// A GPU and what copies of arrays on it need. Clones name the same one.
#[derive(Clone, Debug)]
pub struct Gpu {
    device: Arc<Device>,
    strided: Arc<StridedCopies>,
    pub(crate) coders: Arc<GpuCodecs>,
    hasher: Arc<ChunkHasher>,
    /// There are no kernels for its encoders, or the device does not take them.
    broken: Arc<AtomicBool>,
    scratch: Arc<ScratchPool>,
}

impl Gpu {
    /// `folders` are looked into first for nvCOMP and for the compiler.
    pub(crate) fn new(device: Arc<Device>, folders: Vec<PathBuf>) -> Gpu {
        let coders = Arc::new(GpuCodecs::new(device.context(), &folders));
        let hasher = Arc::new(ChunkHasher::looking_in(device.context(), folders.clone()));
        let strided = Arc::new(StridedCopies::new(device.context(), folders));
        Gpu { device, strided, coders, hasher, broken: Arc::default(), scratch: Arc::default() }
    }

    /// Its encoders and decoders; `None` once they were found not to work.
    pub(crate) fn coders(&self) -> Option<&Arc<GpuCodecs>> {
        (!self.broken.load(Ordering::Relaxed)).then_some(&self.coders)
    }

    /// The same, also when they were found not to work: for a batch that was begun before.
    pub(crate) fn own_coders(&self) -> &GpuCodecs {
        &self.coders
    }

    /// A call of them has failed: without kernels none can succeed.
    pub(crate) fn coder_failed(&self, cause: &DeviceError) {
        if matches!(cause.kind(), DeviceErrorKind::Missing | DeviceErrorKind::Kernel) {
            self.broken.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn scratch(&self, bytes: u64, stream: &Stream) -> Result<ScratchLease, DeviceError> {
        self.scratch.take(self, bytes, stream)
    }

    pub(crate) fn hasher(&self) -> &ChunkHasher {
        &self.hasher
    }

    pub(crate) fn strided(&self) -> &StridedCopies {
        &self.strided
    }

    /// Its number, as CUDA counts the devices that this process may use.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.device.ordinal()
    }

    /// Its primary context.
    #[must_use]
    pub fn context(&self) -> &Context {
        self.device.context()
    }

    /// A stream of the spool's own, for arrays whose library has none.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        self.device.stream()
    }

    /// A fence after everything enqueued on `stream` so far.
    ///
    /// # Errors
    /// `Device` when CUDA refuses.
    pub fn fence(&self, stream: &Stream) -> Result<Fence, Error> {
        Ok(self.device.fence(stream)?)
    }

    /// Refuses what lies on another device.
    pub(crate) fn require(&self, ordinal: u32) -> Result<(), Error> {
        let own = self.ordinal();
        if own == ordinal {
            return Ok(());
        }
        let message = format!(
            "The array lies on CUDA device {ordinal}, and the spool on device {own}. Open a spool \
             for each device: `on` set to `cuda:{ordinal}` for this one."
        );
        Err(Error::new(ErrorKind::WrongDevice, message))
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }
}
