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

/// One piece of memory, and where its parts are.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) shape: Shape,
    pub(super) needs: Needs,
    pub(super) at: Parts,
    memory: DeviceMemory,
}

/// Addresses of the parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Parts {
    /// What kernels share about each array.
    control: u64,
    /// Addresses of the chunks that are read, and their bytes.
    pub(super) from: u64,
    pub(super) lengths: u64,
    /// Room for each decoded chunk.
    pub(super) rooms: u64,
    /// Bytes of what was made of each chunk, addresses to which chunks go, and how that went.
    pub(super) found: u64,
    pub(super) to: u64,
    pub(super) statuses: u64,
    /// Bytes of the two spare chunks; these follow.
    pub(super) spare: u64,
    /// What the library works in.
    pub(super) temporary: u64,
    /// Compressed chunks, `stride` apart.
    pub(super) outputs: u64,
    /// Dense copies of arrays.
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
    /// From the address `first` on.
    fn of(first: u64, shape: &Shape, needs: &Needs) -> Parts {
        let (chunks, mut end) = (shape.chunks(), 0u64);
        let mut next = |bytes: u64| {
            let begin = end.next_multiple_of(ALIGNMENT);
            end = begin + bytes;
            first + begin
        };
        let spare = if shape.decodes { SPARE_AT + 2 * needs.stride + 2 * CHUNK } else { 0 };
        Parts {
            control: next(CONTROL_BYTES * shape.count),
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
            end: first + end,
        }
    }
}

impl Room {
    pub(super) fn new(context: &Context, shape: Shape, needs: Needs) -> Result<Room, DeviceError> {
        let memory = DeviceMemory::new(context, Parts::of(0, &shape, &needs).end)?;
        let at = Parts::of(memory.span().address(), &shape, &needs);
        Ok(Room { shape, needs, at, memory })
    }

    /// Frees it at once: nobody uses it any more.
    pub(super) fn free_unused(self) {
        self.memory.free_unused();
    }

    /// What kernels share about array `index`.
    pub(super) fn control(&self, index: u64) -> u64 {
        self.at.control + CONTROL_BYTES * index
    }

    /// The two spare chunks, `stride` apart.
    pub(super) fn spare_chunks(&self) -> u64 {
        self.at.spare + SPARE_AT
    }

    /// What has to be 0 before the first use.
    pub(super) fn control_span(&self) -> Result<DeviceSpan, DeviceError> {
        self.span(self.at.control, CONTROL_BYTES * self.shape.count)
    }

    /// Two chunks of zeros, of which the spare ones are made.
    pub(super) fn zeros_span(&self) -> Result<DeviceSpan, DeviceError> {
        self.span(self.spare_chunks() + 2 * self.needs.stride, 2 * CHUNK)
    }

    /// A dense copy of array `index`.
    pub(super) fn staged_span(&self, index: u64) -> Result<DeviceSpan, DeviceError> {
        self.span(self.at.staged + index * self.shape.staged_bytes(), self.shape.layout.bytes())
    }

    fn span(&self, address: u64, bytes: u64) -> Result<DeviceSpan, DeviceError> {
        self.memory.span().slice(address - self.memory.span().address(), bytes)
    }
}
