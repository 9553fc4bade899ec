//! Copies between an arena and the caller's own memory, done when they return.

use unspool_cuda::{DeviceError, copy};

use crate::arena::{ReadGuard, WriteGuard};
use crate::gpu::Gpu;

/// Fills the bytes of `guard` with `parts`, one after the other.
pub(super) fn write(guard: &mut WriteGuard, parts: &[&[u8]]) -> Result<(), DeviceError> {
    if let Some(mut rest) = guard.bytes() {
        for part in parts {
            let (head, tail) = rest.split_at_mut(part.len());
            head.copy_from_slice(part);
            rest = tail;
        }
        return Ok(());
    }
    let Some(gpu) = guard.gpu().cloned() else { return Ok(()) };
    guard.order(gpu.stream())?;
    let written = write_to_device(guard, &gpu, parts);
    if written.is_err() {
        // What was enqueued may still be on its way: the bytes wait for it.
        guard.leave(gpu.stream())?;
    }
    written
}

fn write_to_device(guard: &WriteGuard, gpu: &Gpu, parts: &[&[u8]]) -> Result<(), DeviceError> {
    let Some(span) = guard.device() else { return Ok(()) };
    let mut offset = 0;
    for part in parts {
        let to = span.slice(offset, part.len() as u64)?;
        copy::host_to_device(gpu.stream(), &to, part, gpu.limit())?;
        offset += part.len() as u64;
    }
    Ok(())
}

/// Fills `parts`, one after the other, with the bytes of `guard` from `skip` on, which are there.
pub(super) fn read(
    guard: &ReadGuard,
    skip: u64,
    parts: &mut [&mut [u8]],
) -> Result<(), DeviceError> {
    if let Some(bytes) = guard.bytes() {
        let mut rest = &bytes[skip as usize..];
        for part in parts {
            let (head, tail) = rest.split_at(part.len());
            part.copy_from_slice(head);
            rest = tail;
        }
        return Ok(());
    }
    let Some((span, gpu)) = guard.device().zip(guard.gpu()) else { return Ok(()) };
    guard.order(gpu.stream())?;
    let mut offset = skip;
    for part in parts {
        let from = span.slice(offset, part.len() as u64)?;
        copy::device_to_host(gpu.stream(), part, &from, gpu.limit())?;
        offset += part.len() as u64;
    }
    Ok(())
}
