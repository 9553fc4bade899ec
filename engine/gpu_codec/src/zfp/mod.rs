//! zfp at a fixed rate on the device: float32 and float64, one to three dimensions, any rate. The
//! stream equals the one that crate `codec` makes in host memory, byte for byte, and libzfp decodes
//! it.
//!
//! Sizes are known before anything is encoded, so blocks are coded independently of each other and
//! the host alone places a checkpoint, unless it begins after one whose size is not known. zfp
//! cannot represent NaN and infinities: the result of a checkpoint with such values is a refusal.

pub(crate) mod layout;

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;

use crate::codec::{DecodeJob, EncodeJob, GpuCodec, GpuLayout, StoredCheckpoint};
use crate::pending::{DecodeStatus, Pending, Slot, Slots, Start};
use crate::scratch::ScratchPieces;
use crate::start::{Anchor, one_by_one};
use unspool_cuda::AccessedBytes as Touched;
use unspool_cuda::Context;
use unspool_cuda::DeviceMemory;
use unspool_cuda::FencePool;
use unspool_cuda::Stream;
use unspool_cuda::copy;
use unspool_cuda::kernels::{Kernels, Module};
use unspool_cuda::{DeviceError, DeviceErrorKind};

pub use layout::ZfpLayout;

/// The names of the kernels in the text.
pub(crate) const KERNELS: &[&str] = &[
    "zfp_encode_f32_1",
    "zfp_decode_f32_1",
    "zfp_encode_f32_2",
    "zfp_decode_f32_2",
    "zfp_encode_f32_3",
    "zfp_decode_f32_3",
    "zfp_encode_f64_1",
    "zfp_decode_f64_1",
    "zfp_encode_f64_2",
    "zfp_decode_f64_2",
    "zfp_encode_f64_3",
    "zfp_decode_f64_3",
    "zfp_finish",
    "zfp_decoded",
];
pub(crate) const SOURCE: &str = include_str!("../../kernels/zfp.cu");

const THREADS: u32 = 128;
/// Alignment of streams.
const ALIGNMENT: u64 = 64;
/// Bytes of the kernels' `Seen`.
const SEEN_BYTES: u64 = 24;
/// Words of a result before those of its jobs, and words of each job.
const RESULT_HEAD: u64 = 4;
const RESULT_JOB: u64 = 6;

/// A region of a checkpoint.
#[derive(Clone, Copy, Debug)]
struct ZfpRegion<'a> {
    address: u64,
    layout: &'a ZfpLayout,
}

/// Encodes and decodes arrays with zfp on one device.
#[derive(Debug)]
pub struct ZfpCoder {
    context: Context,
    kernels: Kernels<()>,
    slots: Arc<Slots>,
    fences: Arc<FencePool>,
    /// The kernels' sums of errors: zeros between two uses.
    seen: ScratchPieces<DeviceMemory>,
}

/// The kernels' `Job`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct KernelJob {
    offset: u64,
    /// Number of words of zeros after the stream.
    gap: u64,
    seen: u64,
    result: u64,
}

impl ZfpCoder {
    /// Nothing is loaded before the first use. Results go into `slots`, which other codecs of the
    /// context share, so that their checkpoints can begin after each other. The compiler is
    /// searched for in `folders` first, such as Python's `sys.path`.
    #[must_use]
    pub fn new(context: &Context, slots: &Arc<Slots>, folders: Vec<PathBuf>) -> ZfpCoder {
        ZfpCoder {
            context: context.clone(),
            kernels: Kernels::new(context, folders),
            slots: Arc::clone(slots),
            fences: FencePool::new(context),
            seen: ScratchPieces::new(usize::MAX),
        }
    }

    /// Encodes one checkpoint.
    ///
    /// # Safety
    /// That of [`GpuCodec::encode`].
    unsafe fn encode_one(
        &self,
        stream: &Stream,
        jobs: &[ZfpRegion<'_>],
        (start, limit): (Start<'_>, u64),
    ) -> Result<Pending, DeviceError> {
        let module = self.module()?;
        let mut slot = self.slots.begin(jobs.len())?;
        let (offsets, bytes) = offsets(jobs.iter().map(|job| job.layout.stored()));
        let anchor = start.anchor(stream, &mut slot, (limit, bytes))?;
        let fence = self.fences.prepare()?;
        let seen = self.take_seen(stream, jobs.len() as u64)?;
        for (index, job) in jobs.iter().enumerate() {
            let end = offsets.get(index + 1).copied().unwrap_or(bytes);
            let place = kernel_job(&slot, &seen, index, (offsets[index], end), job.layout);
            // SAFETY: the caller's duty.
            let launched = unsafe { launch_encode(&module, stream, job, &anchor, place) };
            launched.map_err(|error| if index > 0 { error.with_work_left() } else { error })?;
            stream.saw_read("encoding with zfp", self.touched(job.address, job.layout.bytes()));
        }
        if let Some(begin) = anchor.known() {
            stream.saw_write("encoding with zfp", self.touched(begin, bytes));
        }
        // SAFETY: the slot and the sums stay allocated until the result is present.
        unsafe { launch_finish(&module, stream, &anchor, &slot, &seen, jobs.len()) }
            .map_err(DeviceError::with_work_left)?;
        let pending = slot.launched_before(fence, stream, limit)?;
        self.seen.give(seen, &pending);
        Ok(pending)
    }

    fn touched(&self, first: u64, len: u64) -> Touched {
        Touched::device(self.context.ordinal(), first, len)
    }

    /// Sums for `jobs` jobs, all 0.
    fn take_seen(&self, stream: &Stream, jobs: u64) -> Result<DeviceMemory, DeviceError> {
        let bytes = SEEN_BYTES * jobs.next_power_of_two().max(8);
        self.seen.take(
            stream,
            |kept| kept.span().len() == bytes,
            || {
                let memory = DeviceMemory::new(&self.context, bytes)?;
                copy::fill(stream, &memory.span(), 0)?;
                Ok(memory)
            },
        )
    }

    fn module(&self) -> Result<Arc<Module>, DeviceError> {
        self.kernels.get((), "zfp.cu", || SOURCE)
    }
}

impl GpuCodec for ZfpCoder {
    fn takes(&self, layout: &GpuLayout) -> bool {
        matches!(layout, GpuLayout::Zfp(_))
    }

    fn prepare(&self, _: &[StoredCheckpoint<'_>]) -> Result<(), DeviceError> {
        self.module().map(drop)
    }

    unsafe fn encode(
        &self,
        stream: &Stream,
        checkpoints: &[StoredCheckpoint<'_>],
    ) -> Result<Vec<Pending>, DeviceError> {
        self.context.require(stream.context().ordinal(), "the stream")?;
        let all = checkpoints.iter().map(|one| one.jobs.iter().map(source).collect());
        let all = all.collect::<Result<Vec<Vec<_>>, _>>()?;
        one_by_one(checkpoints, |index, place| {
            // SAFETY: the caller's duty.
            unsafe { self.encode_one(stream, &all[index], place) }
        })
    }

    /// The status reports streams of another layout, whose arrays keep their content.
    unsafe fn decode(
        &self,
        stream: &Stream,
        jobs: &[DecodeJob],
    ) -> Result<DecodeStatus, DeviceError> {
        self.context.require(stream.context().ordinal(), "the stream")?;
        let layouts = jobs.iter().map(checked).collect::<Result<Vec<_>, _>>()?;
        let module = self.module()?;
        let slot = self.slots.begin(jobs.len())?;
        let fence = self.fences.prepare()?;
        for (index, (job, layout)) in jobs.iter().zip(layouts).enumerate() {
            // SAFETY: the caller's duty.
            unsafe { launch_decode(&module, stream, (job, layout), result_of(&slot, index)) }?;
            let from = self.touched(job.stream, job.stored);
            stream.saw_copy("decoding zfp", from, self.touched(job.target, layout.bytes()));
        }
        // SAFETY: the slot stays allocated until the result is present.
        unsafe { launch_decoded(&module, stream, &slot, jobs.len()) }?;
        Ok(DecodeStatus::new(vec![slot.launched_before(fence, stream, 0)?]))
    }
}

fn source(job: &EncodeJob) -> Result<ZfpRegion<'_>, DeviceError> {
    Ok(ZfpRegion { address: job.source, layout: zfp_layout(&job.layout)? })
}

fn zfp_layout(layout: &GpuLayout) -> Result<&ZfpLayout, DeviceError> {
    match layout {
        GpuLayout::Zfp(layout) => Ok(layout),
        _ => Err(DeviceError::new(DeviceErrorKind::OutOfRange, "an array for another codec")),
    }
}

/// The offsets of streams of these lengths, and the end of the last one.
fn offsets(stored: impl Iterator<Item = u64>) -> (Vec<u64>, u64) {
    let (mut offsets, mut end) = (Vec::new(), 0u64);
    for bytes in stored {
        let offset = end.next_multiple_of(ALIGNMENT);
        offsets.push(offset);
        end = offset + bytes;
    }
    (offsets, end)
}

/// The layout of a stream whose length is right.
fn checked(job: &DecodeJob) -> Result<&ZfpLayout, DeviceError> {
    let layout = zfp_layout(&job.layout)?;
    let expected = layout.stored();
    if job.stored == expected {
        return Ok(layout);
    }
    let message =
        format!("a zfp stream of {} bytes was given where {expected} are expected", job.stored);
    Err(DeviceError::new(DeviceErrorKind::OutOfRange, message)
        .with_advice("Decode it with the shape, dtype and rate that it was encoded with."))
}

/// The address of a job's words in a result.
fn result_of(slot: &Slot, index: usize) -> u64 {
    slot.address() + 8 * (RESULT_HEAD + RESULT_JOB * index as u64)
}

fn kernel_job(
    slot: &Slot,
    seen: &DeviceMemory,
    index: usize,
    (offset, next): (u64, u64),
    layout: &ZfpLayout,
) -> KernelJob {
    let gap = (next - offset - layout.stored()) / 8;
    let seen = seen.span().address() + SEEN_BYTES * index as u64;
    KernelJob { offset, gap, seen, result: result_of(slot, index) }
}

/// A parameter of a kernel.
fn parameter<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

/// Number of blocks, and of threads in each, for `threads` threads.
fn launch_shape(threads: u64) -> Result<(u32, u32), DeviceError> {
    let blocks = i32::try_from(threads.div_ceil(u64::from(THREADS))).map_err(|_| {
        let message = format!("an array of {threads} blocks is more than zfp takes in one launch");
        DeviceError::new(DeviceErrorKind::OutOfRange, message).with_advice("Split the array.")
    })?;
    Ok((blocks.unsigned_abs(), THREADS))
}

/// # Safety
/// As [`GpuCodec::encode`].
unsafe fn launch_encode(
    module: &Module,
    stream: &Stream,
    job: &ZfpRegion<'_>,
    anchor: &Anchor,
    mut place: KernelJob,
) -> Result<(), DeviceError> {
    let (mut source, mut anchor) = (job.address, *anchor);
    let (mut shape, mut head) = (job.layout.shape(), job.layout.head());
    let mut list = [
        parameter(&mut source),
        parameter(&mut shape),
        parameter(&mut anchor),
        parameter(&mut head),
        parameter(&mut place),
    ];
    let blocks = launch_shape(shape.encoders())?;
    // SAFETY: the parameters are those of the kernel; the caller guarantees the memory.
    unsafe { module.launch_with(stream, &job.layout.kernel("encode"), blocks, &mut list) }
}

/// # Safety
/// Nothing else uses `slot` and `seen` until the result is present.
unsafe fn launch_finish(
    module: &Module,
    stream: &Stream,
    anchor: &Anchor,
    slot: &Slot,
    seen: &DeviceMemory,
    jobs: usize,
) -> Result<(), DeviceError> {
    let (mut anchor, mut seen, mut jobs) = (*anchor, seen.span().address(), jobs as u64);
    let (mut address, mut sequence, mut record) = (slot.address(), slot.sequence(), slot.record());
    let mut list = [
        parameter(&mut anchor),
        parameter(&mut seen),
        parameter(&mut jobs),
        parameter(&mut address),
        parameter(&mut sequence),
        parameter(&mut record),
    ];
    // SAFETY: the parameters are those of the kernel; the caller guarantees the memory.
    unsafe { module.launch_with(stream, "zfp_finish", (1, 1), &mut list) }
}

/// # Safety
/// As [`GpuCodec::decode`].
unsafe fn launch_decode(
    module: &Module,
    stream: &Stream,
    (job, layout): (&DecodeJob, &ZfpLayout),
    mut status: u64,
) -> Result<(), DeviceError> {
    let (mut from, mut to) = (job.stream, job.target);
    let (mut shape, mut head) = (layout.shape(), layout.head());
    let mut list = [
        parameter(&mut from),
        parameter(&mut to),
        parameter(&mut shape),
        parameter(&mut head),
        parameter(&mut status),
    ];
    let blocks = launch_shape(shape.decoders())?;
    // SAFETY: the parameters are those of the kernel; the caller guarantees the memory.
    unsafe { module.launch_with(stream, &layout.kernel("decode"), blocks, &mut list) }
}

/// # Safety
/// Nothing else uses `slot` until the result is present.
unsafe fn launch_decoded(
    module: &Module,
    stream: &Stream,
    slot: &Slot,
    jobs: usize,
) -> Result<(), DeviceError> {
    let (mut address, mut sequence, mut jobs) = (slot.address(), slot.sequence(), jobs as u64);
    let mut list = [parameter(&mut jobs), parameter(&mut address), parameter(&mut sequence)];
    // SAFETY: the parameters are those of the kernel; the caller guarantees the memory.
    unsafe { module.launch_with(stream, "zfp_decoded", (1, 1), &mut list) }
}
