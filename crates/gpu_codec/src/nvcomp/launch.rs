//! The kernels that go with nvCOMP's own, with their parameters.

use std::ffi::c_void;

use super::layout::{CHUNK, NvCompLayout};
use super::library::NvCompLibrary;
use super::room::Room;
use crate::pending::Slot;
use crate::start::Anchor;
use unspool_cuda::DeviceError;
use unspool_cuda::Stream;
use unspool_cuda::kernels::Module;

/// Threads of a block, and of the one block that adds up.
const THREADS: u32 = 256;
const SCAN: u32 = 1024;
/// The most blocks of a launch whose threads go on until all is done.
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

/// Launches for one array on one stream.
pub(super) struct Launcher<'a> {
    module: &'a Module,
    stream: &'a Stream,
    layout: &'a NvCompLayout,
    head: [u64; 4],
    /// Which of several arrays of that layout.
    index: u64,
}

/// Pointers to parameters that live in the calling function.
macro_rules! launch {
    ($self:ident, $name:literal, $shape:expr, $($value:expr),*) => {{
        let mut list: Vec<*mut c_void> = Vec::new();
        launch!(@each $self, $name, $shape, list, $($value),*)
    }};
    (@each $self:ident, $name:literal, $shape:expr, $list:ident, $first:expr $(, $rest:expr)*) => {{
        let mut value = $first;
        $list.push((&raw mut value).cast());
        launch!(@each $self, $name, $shape, $list $(, $rest)*)
    }};
    (@each $self:ident, $name:literal, $shape:expr, $list:ident) => {
        // SAFETY: the values are the kernel's parameters by type and order; who launches answers
        // for the memory that they name.
        unsafe { $self.module.launch_with($self.stream, $name, $shape, &mut $list) }
    };
}

impl<'a> Launcher<'a> {
    pub(super) fn new(
        module: &'a Module,
        stream: &'a Stream,
        layout: &'a NvCompLayout,
        library: &NvCompLibrary,
    ) -> Launcher<'a> {
        Launcher { module, stream, layout, head: layout.head(library.version().0), index: 0 }
    }

    /// The stream that it launches on.
    pub(super) fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// For array `index` of those that share a room.
    pub(super) fn of(mut self, index: u64) -> Launcher<'a> {
        self.index = index;
        self
    }

    /// Its first chunk among those of all.
    fn first(&self) -> u64 {
        self.index * self.layout.chunks()
    }

    fn parts(&self, array: u64) -> Parts {
        let (bytes, count) = (self.layout.bytes(), self.layout.chunks());
        Parts { array, bytes, chunk: CHUNK, count }
    }

    /// The arrays for compressing the array at `from`.
    ///
    /// # Safety
    /// The room is used by nobody else.
    pub(super) unsafe fn arrays(&self, room: &Room, from: u64) -> Result<(), DeviceError> {
        let stride = room.needs.stride;
        let outputs = (room.at.outputs + stride * self.first(), stride);
        // SAFETY: the caller's duty.
        unsafe { self.arrays_of(room, self.parts(from), outputs) }
    }

    /// The arrays for compressing the two spare chunks from zeros.
    ///
    /// # Safety
    /// The room is used by nobody else.
    pub(super) unsafe fn spare_arrays(&self, room: &Room, zeros: u64) -> Result<(), DeviceError> {
        let bytes = CHUNK + self.layout.last_chunk();
        let parts = Parts { array: zeros, bytes, chunk: CHUNK, count: 2 };
        // SAFETY: the caller's duty.
        unsafe { self.arrays_of(room, parts, (room.spare_chunks(), room.needs.stride)) }
    }

    /// # Safety
    /// The room is used by nobody else.
    unsafe fn arrays_of(
        &self,
        room: &Room,
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
    /// The array is there, and so is the memory from the anchor to its limit, for nobody else.
    pub(super) unsafe fn pack(
        &self,
        room: &Room,
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

    /// Tells the result of an encoding.
    ///
    /// # Safety
    /// Room and slot are used by nobody else.
    pub(super) unsafe fn finish(
        &self,
        room: &Room,
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

    /// Checks a container and makes the arrays for decompressing it to `to`.
    ///
    /// # Safety
    /// The container is there, and the room is used by nobody else.
    pub(super) unsafe fn unpack(
        &self,
        room: &Room,
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

    /// Tells the result of a decoding.
    ///
    /// # Safety
    /// Room and slot are used by nobody else.
    pub(super) unsafe fn decoded(&self, room: &Room, slot: &Slot) -> Result<(), DeviceError> {
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

    /// Tells the result for a container of values as they are.
    ///
    /// # Safety
    /// The container is there, and the slot is used by nobody else.
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

/// A thread for each of so many.
fn spread(count: u64) -> (u32, u32) {
    (count.div_ceil(u64::from(THREADS)) as u32, THREADS)
}
