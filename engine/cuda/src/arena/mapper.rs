//! What reserves and maps device memory: the driver, or a test's stand-in.

use crate::context::Context;
use crate::driver::result;
use crate::error::CudaError;

pub(super) trait Mapper: Send + Sync {
    /// Lengths that are mapped are multiples of this.
    fn granularity(&self) -> u64;

    /// Free device memory in bytes.
    fn free(&self) -> Result<u64, CudaError>;

    fn reserve(&self, len: u64) -> Result<u64, CudaError>;

    /// On an error nothing is mapped.
    ///
    /// # Safety
    /// The range was reserved and is not mapped.
    unsafe fn map(&self, address: u64, len: u64) -> Result<(), CudaError>;

    /// # Safety
    /// The range was mapped as one; nothing uses it any more.
    unsafe fn unmap(&self, address: u64, len: u64) -> Result<(), CudaError>;

    /// # Safety
    /// The range was reserved and nothing in it is mapped.
    unsafe fn give_back(&self, address: u64, len: u64) -> Result<(), CudaError>;
}

/// The driver, for one device.
pub(super) struct DriverMapper {
    context: Context,
    granularity: u64,
}

impl DriverMapper {
    pub(super) fn new(context: &Context) -> Result<DriverMapper, CudaError> {
        let _scope = context.enter()?;
        let granularity = result::granularity(context.raw_device())?.max(1);
        Ok(DriverMapper { context: context.clone(), granularity })
    }
}

impl Mapper for DriverMapper {
    fn granularity(&self) -> u64 {
        self.granularity
    }

    fn free(&self) -> Result<u64, CudaError> {
        let _scope = self.context.enter()?;
        Ok(result::memory_info()?.0)
    }

    fn reserve(&self, len: u64) -> Result<u64, CudaError> {
        let _scope = self.context.enter()?;
        result::reserve(len)
    }

    unsafe fn map(&self, address: u64, len: u64) -> Result<(), CudaError> {
        let _scope = self.context.enter()?;
        // SAFETY: the caller's duty.
        unsafe { result::map(address, len, self.context.raw_device()) }
    }

    unsafe fn unmap(&self, address: u64, len: u64) -> Result<(), CudaError> {
        let _scope = self.context.enter()?;
        // SAFETY: the caller's duty.
        unsafe { result::unmap(address, len) }
    }

    unsafe fn give_back(&self, address: u64, len: u64) -> Result<(), CudaError> {
        let _scope = self.context.enter()?;
        // SAFETY: the caller's duty.
        unsafe { result::free_address(address, len) }
    }
}
