//! Copies. Each is enqueued on a stream and done when an event recorded after it is done; until
//! then both ends must stay as they are. Copies of host arenas are methods of
//! [`PinnedArena`](crate::PinnedArena), which knows what is registered.

use crate::access::AccessedBytes;
use crate::driver::result;
use crate::ends::{enter, refused, same_length};
use crate::error::DeviceError;
use crate::memory::PinnedMemory;
use crate::span::DeviceSpan;
use crate::stream::Stream;

pub use crate::pageable::{device_to_host, host_to_device};

const WITHIN: &str = "a copy within the device";
const SET: &str = "setting device memory";
const TO_PINNED: &str = "a copy to pinned memory";
const FROM_PINNED: &str = "a copy from pinned memory";

/// Copies `from` to `to`, of the same length, on the device of `stream`.
///
/// # Errors
/// When lengths or devices differ, or the driver refuses.
pub fn device_to_device(
    stream: &Stream,
    to: &DeviceSpan,
    from: &DeviceSpan,
) -> Result<(), DeviceError> {
    same_length(to.len(), from.len())?;
    let _scope = enter(stream, &[to, from])?;
    // SAFETY: spans keep their memory in place, and have this length.
    let copied =
        unsafe { result::copy_dtod(to.address(), from.address(), from.len(), stream.raw()) };
    refused(copied, WITHIN)?;
    stream.saw_copy(WITHIN, AccessedBytes::of(from), AccessedBytes::of(to));
    Ok(())
}

/// Copies `from` to `to` with the raw `cuMemcpyDtoD`: the baseline that [`device_to_device`] is
/// measured against. The copy runs on the legacy default stream, and the call may return before it
/// is done.
///
/// # Errors
/// When lengths or devices differ, or the driver refuses.
pub fn device_to_device_blocking(
    stream: &Stream,
    to: &DeviceSpan,
    from: &DeviceSpan,
) -> Result<(), DeviceError> {
    same_length(to.len(), from.len())?;
    let _scope = enter(stream, &[to, from])?;
    // SAFETY: as above.
    let copied = unsafe { result::copy_dtod_blocking(to.address(), from.address(), from.len()) };
    refused(copied, WITHIN)?;
    // The driver copies on the legacy default stream.
    let legacy = Stream::legacy_default(stream.context());
    legacy.saw_copy(WITHIN, AccessedBytes::of(from), AccessedBytes::of(to));
    Ok(())
}

/// Sets every byte of `to` to `byte`.
///
/// # Errors
/// When the device is another one, or the driver refuses.
pub fn fill(stream: &Stream, to: &DeviceSpan, byte: u8) -> Result<(), DeviceError> {
    let _scope = enter(stream, &[to])?;
    // SAFETY: as above.
    let done = unsafe { result::set_bytes(to.address(), byte, to.len(), stream.raw()) };
    refused(done, SET)?;
    stream.saw_write(SET, AccessedBytes::of(to));
    Ok(())
}

/// Copies `from` to the bytes of `to` that begin at `offset`.
///
/// # Errors
/// When they do not fit, the device is another one, or the driver refuses.
pub fn device_to_pinned(
    stream: &Stream,
    to: &PinnedMemory,
    offset: u64,
    from: &DeviceSpan,
) -> Result<(), DeviceError> {
    let place = to.at(offset, from.len())?;
    to.context().require(stream.context().ordinal(), "the stream")?;
    let _scope = enter(stream, &[from])?;
    // SAFETY: the range was checked; it is freed after everything on its device.
    let copied = unsafe { result::copy_dtoh(place, from.address(), from.len(), stream.raw()) };
    refused(copied, TO_PINNED)?;
    stream.saw_copy(TO_PINNED, AccessedBytes::of(from), AccessedBytes::host(place, from.len()));
    Ok(())
}

/// Copies the bytes of `from` that begin at `offset` to `to`.
///
/// # Errors
/// When the range is outside of `from`, the device is another one, or the driver refuses.
pub fn pinned_to_device(
    stream: &Stream,
    to: &DeviceSpan,
    from: &PinnedMemory,
    offset: u64,
) -> Result<(), DeviceError> {
    let place = from.at(offset, to.len())?;
    from.context().require(stream.context().ordinal(), "the stream")?;
    let _scope = enter(stream, &[to])?;
    // SAFETY: as above.
    let copied = unsafe { result::copy_htod(to.address(), place, to.len(), stream.raw()) };
    refused(copied, FROM_PINNED)?;
    stream.saw_copy(FROM_PINNED, AccessedBytes::host(place, to.len()), AccessedBytes::of(to));
    Ok(())
}
