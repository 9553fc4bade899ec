//! Plain memory of known size: on the device, and on the host pinned by the driver. The tiers use
//! arenas instead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::bytes::Bytes;
use crate::context::Context;
use crate::driver::result;
use crate::error::{DeviceError, DeviceErrorKind};
use crate::release::{self, AfterUse};
use crate::span::{DeviceSpan, Keep, in_range};

/// Device memory of known size. Dropping it frees it after everything on the device, and once no
/// span is left.
#[derive(Debug)]
pub struct DeviceMemory {
    block: Arc<Block>,
    len: u64,
}

#[derive(Debug)]
struct Block {
    context: Context,
    address: u64,
    is_unused: AtomicBool,
}

impl Keep for Block {}

impl DeviceMemory {
    /// Allocates `len` bytes, content unspecified.
    ///
    /// # Errors
    /// When the memory is missing: the text says how much was requested and how much is free.
    pub fn new(context: &Context, len: u64) -> Result<DeviceMemory, DeviceError> {
        let _scope = context.enter()?;
        let size = usize::try_from(len.max(1)).unwrap_or(usize::MAX);
        let address = result::allocate(size).map_err(|cause| shortage(context, len, cause))?;
        let block = Block { context: context.clone(), address, is_unused: AtomicBool::new(false) };
        Ok(DeviceMemory { block: Arc::new(block), len })
    }

    /// The whole memory as a span.
    #[must_use]
    pub fn span(&self) -> DeviceSpan {
        let keep: Arc<dyn Keep> = self.block.clone();
        DeviceSpan::own(self.block.context.ordinal(), self.block.address, self.len, keep)
    }

    /// Frees it at once, if no span is left: the caller knows that its last use is done.
    pub fn free_unused(self) {
        self.block.is_unused.store(true, Ordering::Release);
    }
}

/// The error for missing device memory.
pub(crate) fn shortage(
    context: &Context,
    asked: u64,
    cause: crate::error::CudaError,
) -> DeviceError {
    let free = result::memory_info().map_or(0, |(free, _)| free);
    let message = format!(
        "device {} has not enough memory: {} asked for, {} free",
        context.ordinal(),
        Bytes(asked),
        Bytes(free)
    );
    DeviceError::new(DeviceErrorKind::OutOfMemory, message).with_cause(cause).with_advice(
        "Set the option `device_memory` to less, or free memory that this or another process holds \
         (nvidia-smi lists them).",
    )
}

impl Drop for Block {
    fn drop(&mut self) {
        let (context, address) = (self.context.clone(), self.address);
        let after = match *self.is_unused.get_mut() {
            true => AfterUse::Nothing,
            false => AfterUse::Everything(context.clone()),
        };
        release::now_or_later(after, move || {
            if let Ok(_scope) = context.enter() {
                // SAFETY: owned by this value; every span is gone and the last use is done.
                let _ = unsafe { result::free(address) };
            }
        });
    }
}

/// Host memory that the driver allocated and pinned. Pinning is slow (about 2 GB/s), so this is for
/// small buffers, such as staging.
#[derive(Debug)]
pub struct PinnedMemory {
    context: Context,
    pointer: *mut u8,
    len: u64,
}

// SAFETY: plain memory; the callers of `bytes` synchronise their accesses.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// Allocates and pins `len` bytes, content unspecified.
    ///
    /// # Errors
    /// When the host has not enough memory, or may not pin that much.
    pub fn new(context: &Context, len: u64) -> Result<PinnedMemory, DeviceError> {
        let _scope = context.enter()?;
        let size = usize::try_from(len.max(1)).unwrap_or(usize::MAX);
        let pointer = result::allocate_host(size).map_err(|cause| {
            DeviceError::new(
                DeviceErrorKind::PinLimit,
                format!("host RAM: {} of pinned memory could not be had", Bytes(len)),
            )
            .with_cause(cause)
        })?;
        Ok(PinnedMemory { context: context.clone(), pointer, len })
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its context.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Where `len` bytes from `offset` begin.
    ///
    /// # Errors
    /// When the range is outside of the memory.
    pub fn at(&self, offset: u64, len: u64) -> Result<*mut u8, DeviceError> {
        in_range(offset, len, self.len, "the pinned memory")?;
        // SAFETY: inside the allocation.
        Ok(unsafe { self.pointer.add(offset as usize) })
    }

    /// Its bytes.
    ///
    /// # Safety
    /// No unfinished copy writes to it.
    #[must_use]
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: allocated with this length; the caller answers for the rest.
        unsafe { std::slice::from_raw_parts(self.pointer, self.len as usize) }
    }

    /// Its bytes, to be changed.
    ///
    /// # Safety
    /// No unfinished copy uses it.
    #[must_use]
    pub unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has a reference.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.len as usize) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        /// The pointer, sent to the thread that frees it.
        struct Block(*mut u8);
        // SAFETY: no other pointer to the memory is left.
        unsafe impl Send for Block {}

        let (context, block) = (self.context.clone(), Block(self.pointer));
        release::now_or_later(AfterUse::Everything(context.clone()), move || {
            let block = block;
            if let Ok(_scope) = context.enter() {
                // SAFETY: owned by this value; everything that could use it is done.
                let _ = unsafe { result::free_host(block.0) };
            }
        });
    }
}
