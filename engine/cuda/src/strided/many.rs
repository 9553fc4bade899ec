//! Copies of dense bytes, many by one launch: a call of the driver costs the host as much as one of
//! some hundred kilobytes costs the device.

use std::ffi::c_void;

use super::{StridedCopies, THREADS};
use crate::access::AccessedBytes;
use crate::copy::{device_to_device, fill};
use crate::ends::same_length;
use crate::error::DeviceError;
use crate::kernels::Module;
use crate::span::DeviceSpan;
use crate::stream::Stream;

/// The most copies of one launch: the parameters of a kernel have at most 4 KiB. A table in device
/// memory would have no such limit, but the launch takes less time than listing these arrays does.
pub(super) const MOST: usize = 168;

/// The largest copy that goes by a launch. The driver's own copy of more is as cheap, and as fast
/// without the threads of a kernel.
const LARGEST: u64 = 16 << 20;

/// What a block copies: four units of 16 bytes a thread.
pub(super) const TILE_BYTES: u32 = 4 * 16 * THREADS;

const WITHIN: &str = "a copy within the device, one of many";

/// The bytes of one copy, as the kernel has them, and the number of its first tile. Zeros come from
/// the address 0.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Dense {
    pub(super) to: u64,
    pub(super) from: u64,
    pub(super) bytes: u32,
    pub(super) tile: u32,
}

/// The parameter of the kernel.
#[repr(C)]
pub(super) struct Many {
    count: u32,
    tile_bytes: u32,
    copies: [Dense; MOST],
}

impl Many {
    /// An empty list; a block copies `tile_bytes` bytes.
    pub(super) fn of_tiles(tile_bytes: u32) -> Many {
        Many { count: 0, tile_bytes, copies: [Dense::default(); MOST] }
    }

    /// Adds a copy of at least one byte; there are at most [`MOST`].
    pub(super) fn add(&mut self, (to, from): (u64, u64), bytes: u32) {
        let tile = self.tiles();
        self.copies[self.count as usize] = Dense { to, from, bytes, tile };
        self.count += 1;
    }

    /// The blocks of a launch.
    pub(super) fn tiles(&self) -> u32 {
        let last = self.count.checked_sub(1).map(|last| self.copies[last as usize]);
        last.map_or(0, |last| last.tile + last.bytes.div_ceil(self.tile_bytes))
    }
}

/// A copy within a device: to, from.
pub type DenseCopy = (DeviceSpan, DeviceSpan);

impl StridedCopies {
    /// Copies bytes within the device, where the copies do not overlap: small ones many by one
    /// launch, larger ones, and all where there are no kernels, one by one. Enqueued only: done
    /// when an event recorded after it is done.
    ///
    /// # Errors
    /// When the two sides of a copy have different lengths, the device is another one, or the
    /// driver refuses. Copies may be under way then.
    pub fn copy_many(&self, stream: &Stream, copies: &[DenseCopy]) -> Result<(), DeviceError> {
        copies.iter().try_for_each(|(to, from)| same_length(to.len(), from.len()))?;
        self.write_many(stream, copies.iter().map(|(to, from)| (to, Some(from))))
    }

    /// As [`copy_many`](Self::copy_many), with zeros, few of them at each place.
    ///
    /// # Errors
    /// When the device is another one, or the driver refuses.
    pub fn clear_many(&self, stream: &Stream, places: &[DeviceSpan]) -> Result<(), DeviceError> {
        self.write_many(stream, places.iter().map(|place| (place, None)))
    }

    fn write_many<'a>(
        &self,
        stream: &Stream,
        all: impl Iterator<Item = Written<'a>>,
    ) -> Result<(), DeviceError> {
        self.context.require(stream.context().ordinal(), "the stream")?;
        let (small, large): (Vec<_>, Vec<_>) =
            all.filter(|(to, _)| !to.is_empty()).partition(|(to, _)| to.len() <= LARGEST);
        let wanted = small.len() > 1 && !self.is_missing();
        match wanted.then(|| self.module().ok()).flatten() {
            Some(module) => small.chunks(MOST).try_for_each(|some| launch(&module, stream, some)),
            None => small.iter().try_for_each(|one| alone(stream, one)),
        }?;
        large.iter().try_for_each(|one| alone(stream, one))
    }
}

/// A place, and what is copied to it; `None` for zeros.
type Written<'a> = (&'a DeviceSpan, Option<&'a DeviceSpan>);

fn alone(stream: &Stream, (to, from): &Written<'_>) -> Result<(), DeviceError> {
    match from {
        Some(from) => device_to_device(stream, to, from),
        None => fill(stream, to, 0),
    }
}

fn launch(module: &Module, stream: &Stream, all: &[Written<'_>]) -> Result<(), DeviceError> {
    let mut many = Many::of_tiles(TILE_BYTES);
    for (to, from) in all {
        for side in [Some(*to), *from].into_iter().flatten() {
            stream.context().require(side.ordinal(), "the memory")?;
        }
        let from = from.map_or(0, DeviceSpan::address);
        many.add((to.address(), from), to.len() as u32);
    }
    let shape = (many.tiles(), THREADS);
    let mut list: [*mut c_void; 1] = [(&raw mut many).cast()];
    // SAFETY: the kernel takes this parameter and accesses the bytes of its copies; spans keep
    // their memory in place, and were found to be of this device and to have these lengths.
    unsafe { module.launch_with(stream, "copy_many", shape, &mut list) }?;
    for (to, from) in all {
        let to = AccessedBytes::of(to);
        match from {
            Some(from) => stream.saw_copy(WITHIN, AccessedBytes::of(from), to),
            None => stream.saw_write(WITHIN, to),
        }
    }
    Ok(())
}
