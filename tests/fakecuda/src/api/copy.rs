//! Copies and fills: checked and enqueued here, executed by the device later.

use std::ffi::{c_int, c_uint, c_void};

use crate::api::synchronize;
use crate::call::{Held, driver_calls};
use crate::codes::{Code, Outcome};
use crate::memory::Owner;
use crate::stream::{Bytes, Rows, Side, Work};
use crate::world::World;

/// `CU_MEMORYTYPE_HOST`, `_DEVICE`, `_UNIFIED`.
const HOST: c_int = 1;
const DEVICE: c_int = 2;
const UNIFIED: c_int = 4;

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Copy2D {
    source: End,
    target: End,
    width: usize,
    height: usize,
}

/// One end of a `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct End {
    x: usize,
    y: usize,
    kind: c_int,
    host: u64,
    device: u64,
    array: u64,
    pitch: usize,
}

impl End {
    /// Address of its first row, and the distance between rows.
    fn place(&self, width: usize) -> Outcome<(u64, u64)> {
        let base = match self.kind {
            HOST => self.host,
            DEVICE | UNIFIED => self.device,
            _ => return Err(Code::NOT_SUPPORTED),
        };
        let pitch = if self.pitch == 0 { width } else { self.pitch };
        if pitch < width {
            return Err(Code::INVALID_VALUE);
        }
        Ok((base + (self.y * pitch + self.x) as u64, pitch as u64))
    }

    /// The expected owner of its bytes.
    fn wanted(&self) -> Wanted {
        match self.kind {
            HOST => Wanted::Host,
            DEVICE => Wanted::Device,
            _ => Wanted::Any,
        }
    }
}

/// The expected owner of the bytes of an end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Device,
    Host,
    Any,
}

/// The end at an address, as the driver classifies it.
fn end_at(world: &World, address: u64, extent: u64, wanted: Wanted) -> Outcome<Bytes> {
    let own = world.current()?;
    match (world.memory.owner(address, extent)?, wanted) {
        (Owner::Device(device), Wanted::Device | Wanted::Any) if device == own => {
            Ok(Bytes::Device(address))
        }
        (Owner::Pinned, Wanted::Host | Wanted::Any) => Ok(Bytes::Pinned(address)),
        (Owner::Pageable, Wanted::Host | Wanted::Any) if address != 0 => {
            Ok(Bytes::Pageable(address))
        }
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Enqueues a copy. Pageable memory is read or written before this returns.
fn enqueue(world: &mut Held, mut rows: Rows, stream: u64) -> Outcome {
    let stream = world.stream(stream)?;
    if rows.len() == 0 {
        return Ok(());
    }
    let to_pageable = matches!(rows.to.bytes, Bytes::Pageable(_));
    if let Bytes::Pageable(from) = rows.from.bytes {
        let len = rows.extent(rows.from.pitch) as usize;
        // SAFETY: the caller of the exported function guarantees its memory.
        let bytes = unsafe { std::slice::from_raw_parts(from as *const u8, len) };
        rows.from.bytes = Bytes::Staged(bytes.to_vec());
    }
    world.enqueue(stream, Work::Copy(rows))?;
    world.changed();
    if to_pageable { synchronize(world, stream) } else { Ok(()) }
}

/// A copy of one row between ends of these kinds.
fn copy(
    world: &mut Held,
    (to, wanted_to): (u64, Wanted),
    (from, wanted_from): (u64, Wanted),
    bytes: usize,
    stream: u64,
) -> Outcome {
    let len = bytes as u64;
    world.stream(stream)?;
    if len == 0 {
        return Ok(());
    }
    let to = end_at(world, to, len, wanted_to)?;
    let from = end_at(world, from, len, wanted_from)?;
    enqueue(world, Rows::plain(to, from, len), stream)
}

fn copy_2d(world: &mut Held, copy: *const Copy2D, stream: u64) -> Outcome {
    if copy.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller of the exported function guarantees the structure.
    let copy = unsafe { copy.read() };
    world.stream(stream)?;
    let (width, height) = (copy.width as u64, copy.height as u64);
    if width == 0 || height == 0 {
        return Ok(());
    }
    let side = |end: &End| -> Outcome<Side> {
        let (address, pitch) = end.place(copy.width)?;
        let extent = (height - 1) * pitch + width;
        Ok(Side { bytes: end_at(world, address, extent, end.wanted())?, pitch })
    };
    let rows = Rows { to: side(&copy.target)?, from: side(&copy.source)?, width, height };
    enqueue(world, rows, stream)
}

/// Waits for a copy on the default stream: the calls without a stream do so when an end is on the
/// host.
fn and_wait(world: &mut Held) -> Outcome {
    let legacy = world.stream(0)?;
    synchronize(world, legacy)
}

fn fill(world: &mut Held, to: u64, pattern: &[u8], count: usize, stream: u64) -> Outcome {
    let (len, stream) = ((pattern.len() * count) as u64, world.stream(stream)?);
    if len == 0 {
        return Ok(());
    }
    if !to.is_multiple_of(pattern.len() as u64) {
        return Err(Code::INVALID_VALUE);
    }
    end_at(world, to, len, Wanted::Device)?;
    world.enqueue(stream, Work::Fill { to, pattern: pattern.to_vec(), len })?;
    world.changed();
    Ok(())
}

driver_calls! {
    /// Device to host.
    fn cuMemcpyDtoHAsync_v2(world, to: *mut c_void, from: u64, bytes: usize, stream: u64) {
        copy(world, (to as u64, Wanted::Host), (from, Wanted::Device), bytes, stream)
    }

    /// Host to device.
    fn cuMemcpyHtoDAsync_v2(world, to: u64, from: *const c_void, bytes: usize, stream: u64) {
        copy(world, (to, Wanted::Device), (from as u64, Wanted::Host), bytes, stream)
    }

    /// Within the device.
    fn cuMemcpyDtoDAsync_v2(world, to: u64, from: u64, bytes: usize, stream: u64) {
        copy(world, (to, Wanted::Device), (from, Wanted::Device), bytes, stream)
    }

    /// Between any two addresses.
    fn cuMemcpyAsync(world, to: u64, from: u64, bytes: usize, stream: u64) {
        copy(world, (to, Wanted::Any), (from, Wanted::Any), bytes, stream)
    }

    /// Device to host; the host waits.
    fn cuMemcpyDtoH_v2(world, to: *mut c_void, from: u64, bytes: usize) {
        copy(world, (to as u64, Wanted::Host), (from, Wanted::Device), bytes, 0)?;
        and_wait(world)
    }

    /// Host to device; the host waits.
    fn cuMemcpyHtoD_v2(world, to: u64, from: *const c_void, bytes: usize) {
        copy(world, (to, Wanted::Device), (from as u64, Wanted::Host), bytes, 0)?;
        and_wait(world)
    }

    /// Within the device, on the default stream. The host does not wait, as documented for copies
    /// between device memory.
    fn cuMemcpyDtoD_v2(world, to: u64, from: u64, bytes: usize) {
        copy(world, (to, Wanted::Device), (from, Wanted::Device), bytes, 0)
    }

    /// Rows.
    fn cuMemcpy2DAsync_v2(world, rows: *const Copy2D, stream: u64) {
        copy_2d(world, rows, stream)
    }

    /// Sets bytes.
    fn cuMemsetD8Async(world, to: u64, byte: u8, count: usize, stream: u64) {
        fill(world, to, &[byte], count, stream)
    }

    /// Sets words of 4 bytes.
    fn cuMemsetD32Async(world, to: u64, word: c_uint, count: usize, stream: u64) {
        fill(world, to, &word.to_ne_bytes(), count, stream)
    }

    /// Sets bytes, on the default stream. The host does not wait.
    fn cuMemsetD8_v2(world, to: u64, byte: u8, count: usize) {
        fill(world, to, &[byte], count, 0)
    }
}
