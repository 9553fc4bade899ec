//! The arena of device memory: an address range reserved at once and mapped in the background,
//! chunk by chunk, so that the first saves wait for one chunk and not for all of it.
//!
//! Source: Maurya et al., "Towards Efficient Cache Allocation for High-Frequency Checkpointing"
//! (HiPC 2022), section IV-A, "Incremental GPU cache allocation", with its chunks of 1 GiB.
//!
//! Invariants:
//! - Mapped bytes are a prefix of the range; its end is a watermark that can be read at any time.
//! - Where the device runs out of memory meanwhile, the arena ends with what is mapped.
//! - A span covers only mapped bytes, and keeps them mapped.
//! - Memory is unmapped after the given events, or after everything on the device, on a thread that
//!   nobody waits for.

mod mapper;
mod mapping;

use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use crate::access::AccessedBytes;
use crate::bytes::Bytes;
use crate::context::Context;
use crate::error::{DeviceError, DeviceErrorKind};
use crate::release::{self, AfterUse};
use crate::span::{DeviceSpan, Keep, in_range};

use mapper::{DriverMapper, Mapper};
use mapping::Mapping;

/// Settings of a device arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceArenaOptions {
    /// Bytes mapped at a time; default 1 GiB.
    pub chunk: u64,
    /// Whether a smaller arena is acceptable when memory is short at the opening; default false.
    pub shrink_ok: bool,
    /// Bytes that a smaller arena leaves free for other users of the device; default 512 MiB.
    pub leave_free: u64,
}

impl Default for DeviceArenaOptions {
    fn default() -> DeviceArenaOptions {
        DeviceArenaOptions { chunk: 1 << 30, shrink_ok: false, leave_free: 512 << 20 }
    }
}

/// An arena that came out smaller than asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shrunk {
    /// Bytes that were requested.
    pub asked: u64,
    /// Bytes that it has.
    pub got: u64,
}

/// Device memory for the device tier, reserved at once and mapped in the background.
#[derive(Debug)]
pub struct DeviceArena {
    mapping: Arc<Mapping>,
    ordinal: u32,
    reserved: u64,
}

impl DeviceArena {
    /// Reserves `capacity` bytes and starts to map them.
    ///
    /// # Errors
    /// When the memory is not free at this moment and a smaller arena is not acceptable; the text
    /// says how much was requested and how much is free. Also when the device cannot map memory in
    /// pieces.
    pub fn new(
        context: &Context,
        capacity: u64,
        options: &DeviceArenaOptions,
    ) -> Result<DeviceArena, DeviceError> {
        if !context.device().maps_in_pieces {
            let message = format!("device {} cannot map memory in pieces", context.ordinal());
            return Err(DeviceError::new(DeviceErrorKind::Missing, message)
                .with_advice("Virtual memory management is missing, as on some virtual GPUs."));
        }
        let mapper = Box::new(DriverMapper::new(context)?);
        let after = AfterUse::Everything(context.clone());
        let arena = DeviceArena::with(mapper, after, context.ordinal(), capacity, options)?;
        let place = AccessedBytes::device(arena.ordinal, arena.mapping.address(), arena.reserved);
        context.saw(|| place.arena());
        Ok(arena)
    }

    fn with(
        mapper: Box<dyn Mapper>,
        after: AfterUse,
        ordinal: u32,
        asked: u64,
        options: &DeviceArenaOptions,
    ) -> Result<DeviceArena, DeviceError> {
        let granularity = mapper.granularity();
        // What another arena has just given up may still be on its way back.
        release::wait_for(release::RETURNING, || {
            mapper.free().map_or(true, |free| needed(asked, granularity) <= free)
        });
        let capacity = fitting(asked, mapper.free()?, options, granularity, ordinal)?;
        let mapping = Mapping::reserve(mapper, after, asked, capacity)?;
        let (mapping, options) = (Arc::new(mapping), *options);
        let worker = Arc::clone(&mapping);
        Builder::new()
            .name("unspool-map".to_owned())
            .spawn(move || worker.map_all(options.chunk, ordinal))
            .map_err(|error| DeviceError::system("starting a thread was refused", &error))?;
        Ok(DeviceArena { mapping, ordinal, reserved: capacity })
    }

    /// The size in bytes that it was made with.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Its size in bytes, which becomes less when another process takes memory while it is mapped.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.mapping.capacity()
    }

    /// Requested and actual size, when the arena is smaller than requested.
    #[must_use]
    pub fn shrunk(&self) -> Option<Shrunk> {
        self.mapping.shrunk()
    }

    /// Length of the usable prefix in bytes.
    #[must_use]
    pub fn mapped(&self) -> u64 {
        self.mapping.mapped()
    }

    /// Why mapping ended early, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<DeviceError> {
        self.mapping.failure()
    }

    /// Waits until the first `upto` bytes are mapped, at most `limit`.
    ///
    /// # Errors
    /// When the memory is missing, the arena is smaller or closed, or the limit has passed.
    pub fn wait_mapped(&self, upto: u64, limit: Duration) -> Result<(), DeviceError> {
        self.mapping.wait_mapped(upto, limit)
    }

    /// The bytes of `[offset, offset + len)`.
    ///
    /// # Errors
    /// When they are outside or not mapped yet.
    pub fn span(&self, offset: u64, len: u64) -> Result<DeviceSpan, DeviceError> {
        in_range(offset, len, self.capacity(), "the device arena")?;
        in_range(offset, len, self.mapped(), "the part that is mapped so far,")
            .map_err(|error| error.with_advice("Wait for it with wait_mapped."))?;
        let keep: Arc<dyn Keep> = self.mapping.clone();
        Ok(DeviceSpan::own(self.ordinal, self.mapping.address() + offset, len, keep))
    }
}

impl Drop for DeviceArena {
    fn drop(&mut self) {
        self.mapping.close();
    }
}

/// Bytes of the device that an arena takes.
fn needed(asked: u64, granularity: u64) -> u64 {
    asked.checked_next_multiple_of(granularity).unwrap_or(u64::MAX)
}

/// Size of the arena that fits in the free memory.
fn fitting(
    asked: u64,
    free: u64,
    options: &DeviceArenaOptions,
    granularity: u64,
    ordinal: u32,
) -> Result<u64, DeviceError> {
    if needed(asked, granularity) <= free {
        return Ok(asked);
    }
    let rest = free.saturating_sub(options.leave_free);
    let less = rest - rest % granularity;
    if options.shrink_ok && less > 0 {
        return Ok(less);
    }
    Err(not_there(asked, free, ordinal, options.shrink_ok))
}

/// The error for device memory that was free when the arena was made.
fn taken(asked: u64, got: u64, free: u64, ordinal: u32) -> DeviceError {
    let message = format!(
        "device {ordinal} has not enough memory for the arena any more: {} of {} were mapped when \
         another user took the rest, {} are free",
        Bytes(got),
        Bytes(asked),
        Bytes(free)
    );
    DeviceError::new(DeviceErrorKind::OutOfMemory, message).with_advice(
        "The arena goes on with what it has: set the option `device_memory` to less, or free \
         what other processes hold (nvidia-smi lists them).",
    )
}

/// The error for missing device memory.
fn not_there(asked: u64, free: u64, ordinal: u32, shrink_ok: bool) -> DeviceError {
    let message = format!(
        "device {ordinal} has not enough memory for the arena: {} asked for, {} free",
        Bytes(asked),
        Bytes(free)
    );
    let advice = if shrink_ok {
        "Not even a smaller arena has room beside what is left to others: free what other \
         processes hold (nvidia-smi lists them), or leave out the device tier."
    } else {
        "Set the option `device_memory` to less, free what other processes hold (nvidia-smi lists \
         them), or allow a smaller arena."
    };
    DeviceError::new(DeviceErrorKind::OutOfMemory, message).with_advice(advice)
}

#[cfg(test)]
mod tests;
