//! Copies between the application's memory and the arenas, in the caller's thread.
//!
//! Between an array of a GPU and a device's arena everything is enqueued on the application's own
//! stream, and so is what it does next: no other order is needed, and the host does not wait.
//! The bytes of the arena are kept for it by the fences that stay with them.

use std::sync::Arc;

use unspool_codec::Region;
use unspool_cuda::{
    DeviceError, DeviceMemory, DeviceSpan, Fence, PinnedArena, Stream, Unregistered, copy as raw,
};
use unspool_tiers::{Gpu as Device, ReadGuard, WriteGuard};
use unspool_transfer::{Buffer, Pool, TransferError, staging};

use super::{DeviceArray, Gpu};
use crate::error::{Error, ErrorKind};

/// The bytes `[offset, offset + len)` of a guard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Part {
    /// As indices: what is in memory has places that fit `usize`.
    pub(crate) fn range(self) -> std::ops::Range<usize> {
        self.offset as usize..(self.offset + self.len) as usize
    }
}

/// The memory that the caller reads, or that decoders do.
pub(crate) enum Data {
    /// It lies in the arena where the checkpoint is.
    Arena(ReadGuard),
    /// It was read from a store.
    Staged(Buffer),
}

impl Data {
    /// The device whose memory it is, if it is one's.
    pub(crate) fn gpu(&self) -> Option<&Arc<Device>> {
        match self {
            Data::Arena(guard) => guard.gpu(),
            Data::Staged(_) => None,
        }
    }

    /// Whether the bytes are in a device's memory.
    pub(crate) fn is_on_device(&self) -> bool {
        matches!(self, Data::Arena(guard) if guard.device().is_some())
    }
}

/// Where a region lies in the payload.
pub(crate) fn part(region: &Region) -> Part {
    Part { offset: region.offset, len: region.stored }
}

/// Refuses a stream that is being captured into a graph: a copy would be recorded and not made.
pub(crate) fn check_stream(stream: &Stream) -> Result<(), Error> {
    if stream.is_capturing()? { Err(captured()) } else { Ok(()) }
}

pub(crate) fn captured() -> Error {
    let message = "The stream is being captured into a CUDA graph. A checkpoint has to be copied \
                   when it is saved or restored: call this outside of the capture.";
    Error::new(ErrorKind::Device, message)
}

/// Refuses an array of `found` bytes for a region of `bytes`.
pub(crate) fn check_size(found: u64, bytes: u64) -> Result<(), Error> {
    if found == bytes {
        return Ok(());
    }
    let message = format!("The array has {found} bytes, its region {bytes}.");
    Err(Error::new(ErrorKind::Invalid, message))
}

/// Copies `from` to `to` of an arena, after what is on `stream`. Returns a fence after the copy,
/// unless it is done.
pub(crate) fn put(
    gpu: &Gpu,
    guard: &mut WriteGuard,
    to: Part,
    from: &DeviceArray,
    stream: &Stream,
) -> Result<Option<Fence>, Error> {
    check_size(from.bytes(), to.len)?;
    check_stream(stream)?;
    guard.order(stream)?;
    let done = if let Some(span) = guard.device() {
        let to = span.slice(to.offset, to.len)?;
        from.gather(&gpu.strided, stream, &to)
    } else {
        put_in_memory(gpu, guard, to, from, stream)
    };
    // Also a copy that failed half way may have enqueued work.
    let fence = guard.leave(stream)?;
    done?;
    Ok(fence)
}

fn put_in_memory(
    gpu: &Gpu,
    guard: &mut WriteGuard,
    to: Part,
    from: &DeviceArray,
    stream: &Stream,
) -> Result<(), DeviceError> {
    let (span, _dense) = dense(gpu, from, stream, Direction::Gather)?;
    if let Some((pinned, start)) = guard.pinned() {
        let at = start + to.offset;
        wait_if_unregistered(gpu, pinned, at + to.len, stream)?;
        return pinned.copy_in(stream, at, &span, Unregistered::Pageable);
    }
    let limit = gpu.device().limit();
    let bytes = guard.bytes().unwrap_or_default();
    raw::device_to_host(stream, &mut bytes[to.range()], &span, limit)
}

/// Copies `from` to the beginning of an arena in main memory, after what is on `stream`; done when
/// it returns.
///
/// # Errors
/// When the driver refuses, or the copy is not done in time. Where it may still be under way, the
/// guard has lost its bytes.
pub(crate) fn bring(
    gpu: &Gpu,
    guard: &mut WriteGuard,
    from: &DeviceSpan,
    stream: &Stream,
) -> Result<(), DeviceError> {
    let limit = gpu.device().limit();
    let Some((pinned, start)) = guard.pinned() else {
        let bytes = guard.bytes().unwrap_or_default();
        return raw::device_to_host(stream, &mut bytes[..from.len() as usize], from, limit);
    };
    wait_if_unregistered(gpu, pinned, start + from.len(), stream)?;
    let copied = pinned.copy_in(stream, start, from, Unregistered::Pageable);
    let done = copied.and_then(|()| stream.sync(limit));
    done.inspect_err(|why| {
        if stream.drain(limit).is_err() {
            guard.lose(why);
        }
    })
}

/// Waits for the application's work where the copy after it is made by the driver's own way for
/// memory that is not registered yet: that one waits as well, and without a limit.
fn wait_if_unregistered(
    gpu: &Gpu,
    pinned: &PinnedArena,
    end: u64,
    stream: &Stream,
) -> Result<(), DeviceError> {
    if end <= pinned.registered() { Ok(()) } else { stream.sync(gpu.device().limit()) }
}

/// Copies `from` of an arena to `to`, after what is on `stream`. Returns a fence after the copy,
/// unless it is done.
pub(crate) fn get(
    gpu: &Gpu,
    guard: &mut ReadGuard,
    from: Part,
    to: &DeviceArray,
    stream: &Stream,
) -> Result<Option<Fence>, Error> {
    check_size(to.bytes(), from.len)?;
    check_stream(stream)?;
    guard.order(stream)?;
    let done = if let Some(span) = guard.device() {
        let from = span.slice(from.offset, from.len)?;
        to.scatter(&gpu.strided, stream, &from)
    } else {
        get_from_memory(gpu, guard, from, to, stream)
    };
    let fence = guard.leave(stream)?;
    done?;
    Ok(fence)
}

fn get_from_memory(
    gpu: &Gpu,
    guard: &ReadGuard,
    from: Part,
    to: &DeviceArray,
    stream: &Stream,
) -> Result<(), DeviceError> {
    let (span, _dense) = dense(gpu, to, stream, Direction::Scatter)?;
    if let Some((pinned, start)) = guard.pinned() {
        let at = start + from.offset;
        wait_if_unregistered(gpu, pinned, at + from.len, stream)?;
        pinned.copy_out(stream, &span, at, Unregistered::Pageable)?;
    } else {
        let bytes = guard.bytes().unwrap_or_default();
        raw::host_to_device(stream, &span, &bytes[from.range()], gpu.device().limit())?;
    }
    if to.is_dense() { Ok(()) } else { to.scatter(&gpu.strided, stream, &span) }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Gather,
    Scatter,
}

/// Copies `part` of what a restore reads in main memory to `to`, after what is on `stream`.
pub(crate) fn send(
    gpu: &Gpu,
    data: Option<&Data>,
    part: Part,
    to: &DeviceSpan,
    stream: &Stream,
) -> Result<(), DeviceError> {
    let bytes = match data {
        Some(Data::Arena(guard)) => {
            if let Some((pinned, start)) = guard.pinned() {
                let at = start + part.offset;
                guard.order(stream)?;
                wait_if_unregistered(gpu, pinned, at + part.len, stream)?;
                return pinned.copy_out(stream, to, at, Unregistered::Pageable);
            }
            guard.bytes().unwrap_or_default()
        }
        Some(Data::Staged(buffer)) => buffer,
        None => return Ok(()),
    };
    raw::host_to_device(stream, to, &bytes[part.range()], gpu.device().limit())
}

/// Memory with the items of `array` one after the other: its own where it is dense, else memory of
/// the spool's own, which is freed after everything on the device.
fn dense(
    gpu: &Gpu,
    array: &DeviceArray,
    stream: &Stream,
    direction: Direction,
) -> Result<(DeviceSpan, Option<DeviceMemory>), DeviceError> {
    if array.is_dense() {
        return Ok((array.span(gpu.context()), None));
    }
    let memory = DeviceMemory::new(gpu.context(), array.bytes())?;
    let span = memory.span();
    if direction == Direction::Gather {
        array.gather(&gpu.strided, stream, &span)?;
    }
    Ok((span, Some(memory)))
}

/// Copies `from` to main memory; done when it returns.
pub(crate) fn download(
    gpu: &Gpu,
    to: &mut [u8],
    from: &DeviceArray,
    stream: &Stream,
) -> Result<(), Error> {
    check_size(from.bytes(), to.len() as u64)?;
    check_stream(stream)?;
    let (span, _dense) = dense(gpu, from, stream, Direction::Gather)?;
    Ok(raw::device_to_host(stream, to, &span, gpu.device().limit())?)
}

/// Copies main memory to `to`; done when it returns, a scatter only enqueued.
pub(crate) fn upload(
    gpu: &Gpu,
    from: &[u8],
    to: &DeviceArray,
    stream: &Stream,
) -> Result<(), Error> {
    check_size(to.bytes(), from.len() as u64)?;
    check_stream(stream)?;
    let (span, _dense) = dense(gpu, to, stream, Direction::Scatter)?;
    raw::host_to_device(stream, &span, from, gpu.device().limit())?;
    if to.is_dense() { Ok(()) } else { Ok(to.scatter(&gpu.strided, stream, &span)?) }
}

/// Zeros `part` of an arena.
pub(crate) fn clear(guard: &mut WriteGuard, part: Part) -> Result<(), Error> {
    if let Some(bytes) = guard.bytes() {
        bytes[part.range()].fill(0);
        return Ok(());
    }
    let Some((span, gpu)) = guard.device().cloned().zip(guard.gpu().cloned()) else {
        return Ok(());
    };
    guard.order(gpu.stream())?;
    let filled = raw::fill(gpu.stream(), &span.slice(part.offset, part.len)?, 0);
    guard.leave(gpu.stream())?;
    Ok(filled?)
}

/// Lets `write` fill `to` of an arena; the bytes are there when this returns.
pub(crate) fn store_host(
    buffers: &Arc<Pool>,
    guard: &mut WriteGuard,
    to: Part,
    write: impl FnOnce(&mut [u8]),
) -> Result<(), Error> {
    if let Some(bytes) = guard.bytes() {
        write(&mut bytes[to.range()]);
        return Ok(());
    }
    let mut staged = staged(buffers, to.len)?;
    write(&mut staged);
    store(guard, to.offset, &staged)
}

/// Copies `bytes` to `offset` of a device's arena; they are there when this returns.
pub(crate) fn store(guard: &mut WriteGuard, offset: u64, bytes: &[u8]) -> Result<(), Error> {
    let Some(gpu) = guard.gpu().cloned() else { return Ok(()) };
    let span = guard.device().map(|span| span.slice(offset, bytes.len() as u64)).transpose()?;
    let Some(span) = span else { return Ok(()) };
    guard.order(gpu.stream())?;
    let copied = raw::host_to_device(gpu.stream(), &span, bytes, gpu.limit());
    guard.leave(gpu.stream())?;
    Ok(copied?)
}

/// Lets `read` look at `from` of an arena.
pub(crate) fn load_host(
    buffers: &Arc<Pool>,
    guard: &ReadGuard,
    from: Part,
    read: impl FnOnce(&[u8]),
) -> Result<(), Error> {
    if let Some(bytes) = guard.bytes() {
        read(&bytes[from.range()]);
        return Ok(());
    }
    let mut staged = staged(buffers, from.len)?;
    let (Some(span), Some(gpu)) = (guard.device(), guard.gpu()) else { return Ok(()) };
    guard.order(gpu.stream())?;
    let span = span.slice(from.offset, from.len)?;
    // A copy that is not done in time goes on into a buffer of the device crate, and what it reads
    // is thrown away.
    raw::device_to_host(gpu.stream(), &mut staged, &span, gpu.limit())?;
    read(&staged);
    Ok(())
}

/// Memory for `bytes` bytes on their way.
pub(crate) fn staged(buffers: &Arc<Pool>, bytes: u64) -> Result<Buffer, Error> {
    let failed =
        |cause: TransferError| Error::new(ErrorKind::Io, cause.to_string()).caused_by(cause);
    staging(buffers, bytes).map_err(failed)
}
