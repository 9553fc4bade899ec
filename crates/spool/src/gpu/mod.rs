//! The GPU under a spool's tiers, and the application's arrays on it.

mod begun;
mod choose;
mod copies;
mod idle;

use std::path::PathBuf;
use std::sync::Arc;

use unspool_device::StridedCopies;
pub use unspool_device::{Context, device_of};
use unspool_tiers::Gpu as Device;

use crate::error::{Error, ErrorKind};

pub(crate) use begun::{Begun, Leave, drop_behind};
pub use choose::On;
pub(crate) use choose::{choose, open};
pub(crate) use copies::{
    Part, check_size, clear, download, get, load_host, put, staged, store, store_host, upload,
};
pub(crate) use idle::Idle;
pub use unspool_device::{DeviceMemory, DeviceSpan, Mark, Stream, StridedLayout};
pub use unspool_tiers::DeviceArray;

/// A GPU and what copies of arrays on it need. Clones name the same one.
#[derive(Clone, Debug)]
pub struct Gpu {
    device: Arc<Device>,
    strided: Arc<StridedCopies>,
}

impl Gpu {
    /// `folders` are looked into first for the compiler.
    pub(crate) fn new(device: Arc<Device>, folders: Vec<PathBuf>) -> Gpu {
        let strided = Arc::new(StridedCopies::looking_in(device.context(), folders));
        Gpu { device, strided }
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

    /// A mark behind everything enqueued on `stream` so far.
    ///
    /// # Errors
    /// `Device` when CUDA refuses.
    pub fn mark(&self, stream: &Stream) -> Result<Mark, Error> {
        Ok(self.device.mark(stream)?)
    }

    /// Refuses what lies on another device.
    pub(crate) fn require(&self, ordinal: u32) -> Result<(), Error> {
        let own = self.ordinal();
        if own == ordinal {
            return Ok(());
        }
        let message = format!(
            "The array lies on CUDA device {ordinal}, and the spool on device {own}. Open a spool \
             for each device: `on=\"cuda:{ordinal}\"` for this one."
        );
        Err(Error::new(ErrorKind::WrongDevice, message))
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }
}
