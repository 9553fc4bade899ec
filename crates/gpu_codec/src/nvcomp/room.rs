//! The device memory that one container is made or read in: the arrays that nvCOMP wants, its
//! temporary memory, and room for chunks before they are packed. One piece, made once for a shape.

use super::layout::{CHUNK, NvCompLayout};
use super::table::Alignments;
use unspool_cuda::Context;
use unspool_cuda::DeviceError;
use unspool_cuda::DeviceMemory;
use unspool_cuda::DeviceSpan;

/// Bytes of the kernels' `Control`, with room to a multiple of 64.
const CONTROL_BYTES: u64 = 64;
/// Every part begins at a multiple of this.
const ALIGNMENT: u64 = 256;
/// Where the spare chunks begin behind their two lengths.
const SPARE_AT: u64 = 64;

/// What a piece is good for.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Shape {
    pub(super) layout: NvCompLayout,
    /// Whether it is for decoding.
    pub(super) decodes: bool,
    /// Whether values pass through it because an array is not aligned.
    pub(super) staged: bool,
    /// For how many arrays of that layout; a power of two.
    pub(super) count: u64,
}

/// Lengths of what depends on the library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Needs {
    /// Bytes from one chunk's output to the next.
    pub(super) stride: u64,
    /// Chunks of one call, and its temporary memory.
    pub(super) batch: u64,
    pub(super) temporary: u64,
    pub(super) alignments: Alignments,
}

impl Needs {
    /// Whether a piece that was made for one fits the other: the memory for a larger batch is
    /// enough for a smaller one.
    pub(super) fn are_like(&self, other: &Needs) -> bool {
        (self.stride, self.alignments) == (other.stride, other.alignments)
    }
}

/// One piece, and where its parts begin.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) shape: Shape,
    pub(super) needs: Needs,
    memory: DeviceMemory,
    parts: Parts,
}

/// Offsets of the parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Parts {
    from: u64,
    lengths: u64,
    rooms: u64,
    found: u64,
    to: u64,
    statuses: u64,
    spare: u64,
    temporary: u64,
    outputs: u64,
    staged: u64,
    end: u64,
}

impl Shape {
    /// Whether a piece for `self` is good for `other` too.
    pub(super) fn serves(&self, other: &Shape) -> bool {
        let alike = (self.decodes, self.staged) == (other.decodes, other.staged);
        alike && self.layout == other.layout && self.count >= other.count
    }

    /// Chunks of all arrays.
    pub(super) fn chunks(&self) -> u64 {
        self.layout.chunks() * self.count
    }

    /// Bytes from one dense copy to the next.
    fn staged_bytes(&self) -> u64 {
        self.layout.bytes().next_multiple_of(ALIGNMENT)
    }
}

impl Parts {
    fn of(shape: &Shape, needs: &Needs) -> Parts {
        let (chunks, mut end) = (shape.chunks(), CONTROL_BYTES * shape.count);
        let mut next = |bytes: u64| {
            let begin = end.next_multiple_of(ALIGNMENT);
            end = begin + bytes;
            begin
        };
        let spare = if shape.decodes { SPARE_AT + 2 * needs.stride + 2 * CHUNK } else { 0 };
        Parts {
            from: next(8 * chunks.max(2)),
            lengths: next(8 * chunks.max(2)),
            rooms: next(8 * chunks),
            found: next(8 * chunks.max(2)),
            to: next(8 * chunks.max(2)),
            statuses: next(4 * chunks.max(2)),
            spare: next(spare),
            temporary: next(needs.temporary),
            outputs: next(if shape.decodes { 0 } else { needs.stride * chunks }),
            staged: next(if shape.staged { shape.staged_bytes() * shape.count } else { 0 }),
            end,
        }
    }
}

impl Room {
    pub(super) fn new(context: &Context, shape: Shape, needs: Needs) -> Result<Room, DeviceError> {
        let parts = Parts::of(&shape, &needs);
        let memory = DeviceMemory::new(context, parts.end)?;
        Ok(Room { shape, needs, memory, parts })
    }

    /// Frees it at once: nobody uses it any more.
    pub(super) fn free_unused(self) {
        self.memory.free_unused();
    }

    fn at(&self, offset: u64) -> u64 {
        self.memory.span().address() + offset
    }

    /// What has to be 0 before the first use.
    pub(super) fn control_span(&self) -> Result<DeviceSpan, DeviceError> {
        self.memory.span().slice(0, CONTROL_BYTES * self.shape.count)
    }

    /// That of array `index`.
    pub(super) fn control(&self, index: u64) -> u64 {
        self.at(CONTROL_BYTES * index)
    }

    /// Addresses of the chunks that are read.
    pub(super) fn from(&self) -> u64 {
        self.at(self.parts.from)
    }

    /// Their bytes.
    pub(super) fn lengths(&self) -> u64 {
        self.at(self.parts.lengths)
    }

    /// Room for each decoded chunk.
    pub(super) fn rooms(&self) -> u64 {
        self.at(self.parts.rooms)
    }

    /// Bytes of what was made of each chunk.
    pub(super) fn found(&self) -> u64 {
        self.at(self.parts.found)
    }

    /// Addresses to which chunks go.
    pub(super) fn to(&self) -> u64 {
        self.at(self.parts.to)
    }

    pub(super) fn statuses(&self) -> u64 {
        self.at(self.parts.statuses)
    }

    /// Bytes of the two spare chunks.
    pub(super) fn spare_lengths(&self) -> u64 {
        self.at(self.parts.spare)
    }

    /// The two spare chunks, `stride` apart.
    pub(super) fn spare_chunks(&self) -> u64 {
        self.at(self.parts.spare + SPARE_AT)
    }

    /// Two chunks of zeros, of which the spare ones are made.
    pub(super) fn zeros_span(&self) -> Result<DeviceSpan, DeviceError> {
        let offset = self.parts.spare + SPARE_AT + 2 * self.needs.stride;
        self.memory.span().slice(offset, 2 * CHUNK)
    }

    pub(super) fn temporary(&self) -> u64 {
        self.at(self.parts.temporary)
    }

    /// Compressed chunks, `stride` apart.
    pub(super) fn outputs(&self) -> u64 {
        self.at(self.parts.outputs)
    }

    /// A dense copy of array `index`.
    pub(super) fn staged_span(&self, index: u64) -> Result<DeviceSpan, DeviceError> {
        let offset = self.parts.staged + index * self.shape.staged_bytes();
        self.memory.span().slice(offset, self.shape.layout.bytes())
    }
}
