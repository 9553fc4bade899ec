//! Launches of the kernels that prepare for and follow nvCOMP's own.

use std::ffi::c_void;
use std::ptr;

use super::formats::{CHUNK, Format};
use super::layout::NvCompLayout;
use super::room::WorkMemory;
use crate::pending::Slot;
use crate::start::Anchor;
use unspool_cuda::DeviceError;
use unspool_cuda::Stream;
use unspool_cuda::kernels::Module;

/// Threads of a block, and of the single block that computes sums.
const THREADS: u32 = 256;
const SCAN: u32 = 1024;
/// Maximum number of blocks of a launch whose threads loop until all items are done.
const MOST_BLOCKS: u64 = 2048;

/// The kernels' `Parts`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Parts {
    array: u64,
    bytes: u64,
    chunk: u64,
    count: u64,
}

/// The kernels' `Spare`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Spare {
    chunks: u64,
    stride: u64,
    lengths: u64,
}

/// The launches for one array on one stream.
pub(super) struct Launcher<'a> {
    module: &'a Module,
    stream: &'a Stream,
    layout: &'a NvCompLayout,
    head: [u64; 4],
    /// Index of the array among those of the same layout in a call.
    index: u64,
}

/// Launches a kernel with pointers to its parameters, which live until the call is done.
macro_rules! launch {
    ($self:ident, $name:literal, $shape:expr, $($value:expr),* $(,)?) => {
        // SAFETY: the values are the kernel's parameters by type and order, which the driver reads
        // during the call; the caller of this function guarantees the memory that they name.
        unsafe {
            $self.module.launch_with(
                $self.stream,
                $name,
                $shape,
                &mut [$(ptr::from_ref(&$value).cast_mut().cast::<c_void>()),*],
            )
        }
    };
}

impl<'a> Launcher<'a> {
    pub(super) fn new(
        module: &'a Module,
        stream: &'a Stream,
        layout: &'a NvCompLayout,
        format: &Format,
    ) -> Launcher<'a> {
        Launcher { module, stream, layout, head: layout.head(format), index: 0 }
    }

    /// The stream that it launches on.
    pub(super) fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// Selects array `index` of those that share a room.
    pub(super) fn of(mut self, index: u64) -> Launcher<'a> {
        self.index = index;
        self
    }

    /// Its first chunk among the chunks of all arrays.
    fn first(&self) -> u64 {
        self.index * self.layout.chunks()
    }

    fn parts(&self, array: u64) -> Parts {
        let (bytes, count) = (self.layout.bytes(), self.layout.chunks());
        Parts { array, bytes, chunk: CHUNK, count }
    }

    /// Writes the library's arguments for compressing the array at `from`.
    ///
    /// # Safety
    /// Nothing else uses the room.
    pub(super) unsafe fn arrays(&self, room: &WorkMemory, from: u64) -> Result<(), DeviceError> {
        let stride = room.needs.stride;
        let outputs = (room.at.outputs + stride * self.first(), stride);
        // SAFETY: the caller's duty.
        unsafe { self.arrays_of(room, self.parts(from), outputs) }
    }

    /// Writes the library's arguments for compressing zeros into the two spare chunks.
    ///
    /// # Safety
    /// Nothing else uses the room.
    pub(super) unsafe fn spare_arrays(
        &self,
        room: &WorkMemory,
        zeros: u64,
    ) -> Result<(), DeviceError> {
        let bytes = CHUNK + self.layout.last_chunk();
        let parts = Parts { array: zeros, bytes, chunk: CHUNK, count: 2 };
        // SAFETY: the caller's duty.
        unsafe { self.arrays_of(room, parts, (room.spare_chunks(), room.needs.stride)) }
    }

    /// # Safety
    /// Nothing else uses the room.
    unsafe fn arrays_of(
        &self,
        room: &WorkMemory,
        parts: Parts,
        (outputs, stride): (u64, u64),
    ) -> Result<(), DeviceError> {
        let shape = spread(parts.count);
        let before = 8 * self.first();
        let (from, lengths) = (room.at.from + before, room.at.lengths + before);
        let (to, statuses) = (room.at.to + before, room.at.statuses + before / 2);
        launch!(self, "nvcomp_arrays", shape, parts, outputs, stride, from, lengths, to, statuses)
    }

    /// Packs the compressed chunks of the array at `from` into a container.
    ///
    /// # Safety
    /// The array is allocated, and so is the memory from the anchor to its limit, which nothing
    /// else uses.
    pub(super) unsafe fn pack(
        &self,
        room: &WorkMemory,
        from: u64,
        anchor: &Anchor,
    ) -> Result<(), DeviceError> {
        let (parts, stride) = (self.parts(from), room.needs.stride);
        let (first, control) = (self.first(), room.control(self.index));
        let (lengths, statuses) = (room.at.found + 8 * first, room.at.statuses + 4 * first);
        launch!(
            self,
            "nvcomp_table",
            (1, SCAN),
            *anchor,
            self.head,
            parts,
            stride,
            lengths,
            statuses,
            control
        )?;
        let (outputs, blocks) = (room.at.outputs + stride * first, parts.count as u32);
        launch!(self, "nvcomp_pack", (blocks, THREADS), parts, outputs, stride, lengths, control)
    }

    /// Writes the result of an encoding to the slot.
    ///
    /// # Safety
    /// Nothing else uses room and slot.
    pub(super) unsafe fn finish(
        &self,
        room: &WorkMemory,
        anchor: &Anchor,
        slot: &Slot,
    ) -> Result<(), DeviceError> {
        let (values, largest) = (self.layout.values(), self.layout.largest_error());
        let squares = largest * largest * values as f64;
        let (address, sequence, record) = (slot.address(), slot.sequence(), slot.record());
        launch!(
            self,
            "nvcomp_finish",
            (1, 1),
            *anchor,
            room.control(self.index),
            values,
            largest,
            squares,
            address,
            sequence,
            record
        )
    }

    /// Checks a container and writes the library's arguments for decompressing it to `to`.
    ///
    /// # Safety
    /// The container is allocated, and nothing else uses the room.
    pub(super) unsafe fn unpack(
        &self,
        room: &WorkMemory,
        (container, stored): (u64, u64),
        to: u64,
    ) -> Result<(), DeviceError> {
        let (parts, control) = (self.parts(to), room.control(self.index));
        let words = (stored / 8).div_ceil(u64::from(THREADS) * 4);
        let shape = (words.clamp(1, MOST_BLOCKS) as u32, THREADS);
        launch!(self, "nvcomp_sum", shape, container, stored, control)?;
        let spare = Spare {
            chunks: room.spare_chunks(),
            stride: room.needs.stride,
            lengths: room.at.spare,
        };
        launch!(
            self,
            "nvcomp_unpack",
            spread(parts.count),
            container,
            stored,
            self.head,
            parts,
            spare,
            room.at.from,
            room.at.lengths,
            room.at.rooms,
            room.at.to,
            room.at.statuses,
            control
        )
    }

    /// Writes the result of a decoding to the slot.
    ///
    /// # Safety
    /// Nothing else uses room and slot.
    pub(super) unsafe fn decoded(&self, room: &WorkMemory, slot: &Slot) -> Result<(), DeviceError> {
        let count = self.layout.chunks();
        let (statuses, found, rooms) = (room.at.statuses, room.at.found, room.at.rooms);
        launch!(
            self,
            "nvcomp_decoded",
            (1, SCAN),
            count,
            statuses,
            found,
            rooms,
            room.control(self.index),
            slot.address(),
            slot.sequence()
        )
    }

    /// Writes the result for a container of uncompressed values to the slot.
    ///
    /// # Safety
    /// The container is allocated, and nothing else uses the slot.
    pub(super) unsafe fn copied(
        &self,
        (container, stored): (u64, u64),
        slot: &Slot,
    ) -> Result<(), DeviceError> {
        launch!(
            self,
            "nvcomp_copied",
            (1, 1),
            container,
            stored,
            self.head,
            slot.address(),
            slot.sequence()
        )
    }
}

/// Blocks and threads for `count` threads.
fn spread(count: u64) -> (u32, u32) {
    (count.div_ceil(u64::from(THREADS)) as u32, THREADS)
}
