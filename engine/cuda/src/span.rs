//! A range of device memory, with a reference that keeps it allocated.

use std::fmt;
use std::sync::Arc;

use crate::context::Context;
use crate::error::{DeviceError, DeviceErrorKind};

/// Keeps memory in place while a span of it lives.
pub(crate) trait Keep: Send + Sync {}

/// Bytes of one device's memory. Cheap to clone. Memory of this crate stays in place while a span
/// of it lives; code that frees memory waits for unfinished operations itself.
#[derive(Clone)]
pub struct DeviceSpan {
    ordinal: u32,
    address: u64,
    len: u64,
    /// `None` for memory of other libraries.
    keep: Option<Arc<dyn Keep>>,
}

impl DeviceSpan {
    pub(crate) fn own(ordinal: u32, address: u64, len: u64, keep: Arc<dyn Keep>) -> DeviceSpan {
        DeviceSpan { ordinal, address, len, keep: Some(keep) }
    }

    /// Memory of another library's array: `len` bytes at `address` of the device of `context`.
    ///
    /// # Safety
    /// The memory stays allocated until every operation that uses the span is done.
    #[must_use]
    pub unsafe fn foreign(context: &Context, address: u64, len: u64) -> DeviceSpan {
        DeviceSpan { ordinal: context.ordinal(), address, len, keep: None }
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

    /// The number of its device.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Its address on the device.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// `len` bytes of the span from `offset` on.
    ///
    /// # Errors
    /// When the range is outside of the span.
    pub fn slice(&self, offset: u64, len: u64) -> Result<DeviceSpan, DeviceError> {
        in_range(offset, len, self.len, "the device memory")?;
        Ok(DeviceSpan { address: self.address + offset, len, ..self.clone() })
    }
}

impl fmt::Debug for DeviceSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = if self.keep.is_some() { "own" } else { "foreign" };
        write!(f, "{owner} device {} {:#x}+{}", self.ordinal, self.address, self.len)
    }
}

/// Refuses a range `[offset, offset + len)` outside of `[0, capacity)`.
pub(crate) fn in_range(
    offset: u64,
    len: u64,
    capacity: u64,
    what: &str,
) -> Result<(), DeviceError> {
    if offset.checked_add(len).is_some_and(|end| end <= capacity) {
        return Ok(());
    }
    let message = format!("{len} bytes at {offset} are outside of {what} of {capacity} bytes");
    Err(DeviceError::new(DeviceErrorKind::OutOfRange, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_wraps_around_is_outside() {
        assert!(in_range(0, 10, 10, "x").is_ok());
        assert!(in_range(10, 0, 10, "x").is_ok());
        assert!(in_range(1, 10, 10, "x").is_err());
        assert!(in_range(u64::MAX, 2, 10, "x").is_err());
    }
}
