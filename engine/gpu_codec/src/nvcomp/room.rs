//! The device memory in which one container is encoded or decoded: nvCOMP's arguments, its
//! temporary memory, and space for chunks before they are packed. One piece, made once per shape.

use super::formats::{Alignments, CHUNK, Format};
use super::layout::NvCompLayout;
use unspool_cuda::Context;
use unspool_cuda::DeviceError;
use unspool_cuda::DeviceMemory;
use unspool_cuda::DeviceSpan;
use unspool_cuda::Stream;

/// Bytes of the kernels' `Control`, rounded up to a multiple of 64.
const CONTROL_BYTES: u64 = 64;
/// Alignment of every part.
const ALIGNMENT: u64 = 256;
/// Offset of the spare chunks, which follow their two lengths.
const SPARE_AT: u64 = 64;

/// What a piece can be used for.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Shape {
    pub(super) layout: NvCompLayout,
    /// Whether it is used for decoding.
    pub(super) decodes: bool,
    /// Whether values are copied into it because an array is not aligned.
    pub(super) staged: bool,
    /// Number of arrays of that layout; a power of two.
    pub(super) count: u64,
}

/// Sizes that depend on the library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Needs {
    /// Bytes from one chunk's output to the next.
    pub(super) stride: u64,
    /// Chunks of one call, and the size of its temporary memory.
    pub(super) batch: u64,
    pub(super) temporary: u64,
    pub(super) alignments: Alignments,
}

impl Needs {
    /// Whether a piece that was made for one serves the other: memory for a larger batch also
    /// serves a smaller one.
    pub(super) fn are_like(&self, other: &Needs) -> bool {
        (self.stride, self.alignments) == (other.stride, other.alignments)
    }
}

/// One piece of memory and the addresses of its parts.
#[derive(Debug)]
pub(super) struct WorkMemory {
    pub(super) shape: Shape,
    pub(super) needs: Needs,
    pub(super) at: WorkParts,
    memory: DeviceMemory,
}

/// Addresses of the parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WorkParts {
    /// State that kernels share about each array.
    control: u64,
    /// Addresses and lengths of the chunks that are read.
    pub(super) from: u64,
    pub(super) lengths: u64,
    /// Sizes of the decoded chunks.
    pub(super) rooms: u64,
    /// Sizes of the resulting chunks, their addresses, and their statuses.
    pub(super) found: u64,
    pub(super) to: u64,
    pub(super) statuses: u64,
    /// Sizes of the two spare chunks, which follow.
    pub(super) spare: u64,
    /// Temporary memory of the library.
    pub(super) temporary: u64,
    /// Compressed chunks, `stride` apart.
    pub(super) outputs: u64,
    /// Dense copies of arrays.
    staged: u64,
    end: u64,
}

impl Shape {
    /// Whether a piece for `self` also serves `other`.
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

impl WorkParts {
    /// The parts of a piece at the address `first`.
    fn of(first: u64, shape: &Shape, needs: &Needs) -> WorkParts {
        let (chunks, mut end) = (shape.chunks(), 0u64);
        let mut next = |bytes: u64| {
            let begin = end.next_multiple_of(ALIGNMENT);
            end = begin + bytes;
            first + begin
        };
        let spare = if shape.decodes { SPARE_AT + 2 * needs.stride + 2 * CHUNK } else { 0 };
        WorkParts {
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

impl WorkMemory {
    pub(super) fn new(
        context: &Context,
        shape: Shape,
        needs: Needs,
    ) -> Result<WorkMemory, DeviceError> {
        let memory = DeviceMemory::new(context, WorkParts::of(0, &shape, &needs).end)?;
        let at = WorkParts::of(memory.span().address(), &shape, &needs);
        Ok(WorkMemory { shape, needs, at, memory })
    }

    /// Compresses `count` chunks from the chunk `first` on, whose sizes then lie at `found`.
    ///
    /// # Safety
    /// The arrays of the room name that many chunks.
    pub(super) unsafe fn compress(
        &self,
        stream: &Stream,
        format: &Format,
        (first, count): (u64, u64),
        found: u64,
    ) -> Result<(), DeviceError> {
        // SAFETY: the arrays have that many entries, and the memory has the length that the
        // library requires; the caller guarantees the chunks.
        let code = unsafe {
            (format.compress)(
                self.at.from + 8 * first,
                self.at.lengths + 8 * first,
                CHUNK as usize,
                count as usize,
                self.at.temporary,
                self.needs.temporary as usize,
                self.at.to + 8 * first,
                found + 8 * first,
                format.compressing.options,
                self.at.statuses + 4 * first,
                stream.raw().cast(),
            )
        };
        format.done("compressing", code)
    }

    /// Decompresses `count` chunks from the chunk `first` on.
    ///
    /// # Safety
    /// The arrays of the room name complete chunks.
    pub(super) unsafe fn decompress(
        &self,
        stream: &Stream,
        format: &Format,
        (first, count): (u64, u64),
    ) -> Result<(), DeviceError> {
        // SAFETY: as in `compress`.
        let code = unsafe {
            (format.decompress)(
                self.at.from + 8 * first,
                self.at.lengths + 8 * first,
                self.at.rooms + 8 * first,
                self.at.found + 8 * first,
                count as usize,
                self.at.temporary,
                self.needs.temporary as usize,
                self.at.to + 8 * first,
                format.decompressing.options,
                self.at.statuses + 4 * first,
                stream.raw().cast(),
            )
        };
        format.done("decompressing", code)
    }

    /// First chunk and number of chunks of each call for the chunks of `arrays` arrays.
    pub(super) fn batches(&self, arrays: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (batch, chunks) = (self.needs.batch, self.shape.layout.chunks() * arrays);
        (0..chunks).step_by(batch as usize).map(move |first| (first, batch.min(chunks - first)))
    }

    /// Frees it at once: it has no users left.
    pub(super) fn free_unused(self) {
        self.memory.free_unused();
    }

    /// Address of the shared state of array `index`.
    pub(super) fn control(&self, index: u64) -> u64 {
        self.at.control + CONTROL_BYTES * index
    }

    /// The two spare chunks, `stride` apart.
    pub(super) fn spare_chunks(&self) -> u64 {
        self.at.spare + SPARE_AT
    }

    /// The memory that has to be 0 before the first use.
    pub(super) fn control_span(&self) -> Result<DeviceSpan, DeviceError> {
        self.span(self.at.control, CONTROL_BYTES * self.shape.count)
    }

    /// Two chunks of zeros, from which the spare ones are made.
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
