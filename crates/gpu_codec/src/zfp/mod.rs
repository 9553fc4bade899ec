//! zfp at a fixed rate on the device: float32 and float64, one to three dimensions, any rate. The
//! stream is the one that crate `codec` makes in host memory, byte for byte, and libzfp decodes it.
//!
//! Sizes are known before anything is encoded, so blocks are coded independently of each other and
//! a checkpoint is placed by the host alone, unless it begins behind one whose size is not known.
//! NaN and infinities have no place in zfp: a checkpoint with some is refused in its result.

mod layout;

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;

use crate::pending::{DecodeStatus, Pending, Slot, Slots, Start};
use crate::scratch::Scratch;
use crate::start::Anchor;
use unspool_cuda::Context;
use unspool_cuda::DeviceMemory;
use unspool_cuda::Marks;
use unspool_cuda::Place as Touched;
use unspool_cuda::Stream;
use unspool_cuda::copy;
use unspool_cuda::kernels::{Kernels, Module};
use unspool_cuda::{DeviceError, DeviceErrorKind};

pub use layout::ZfpLayout;

/// The text of the kernels, and these.
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
/// Streams begin at multiples of this.
const ALIGNMENT: u64 = 64;
/// Bytes of the kernels' `Seen`.
const SEEN_BYTES: u64 = 24;
/// Words of a result before those of its jobs, and of each job.
const RESULT_HEAD: u64 = 4;
const RESULT_JOB: u64 = 6;

/// An array to be encoded.
#[derive(Clone, Copy, Debug)]
pub struct ZfpJob<'a> {
    /// The device address of its first value; the array is dense.
    pub source: u64,
    /// Its shape and rate.
    pub layout: &'a ZfpLayout,
}

/// A stream to be decoded.
#[derive(Clone, Copy, Debug)]
pub struct ZfpDecodeJob<'a> {
    /// The device address of the stream, a multiple of 8.
    pub stream_address: u64,
    /// Its bytes.
    pub stored: u64,
    /// What it has to hold; anything else is refused.
    pub layout: &'a ZfpLayout,
    /// The device address of the first value of the dense array.
    pub target: u64,
}

/// Encodes and decodes on one device.
#[derive(Debug)]
pub struct ZfpCoder {
    context: Context,
    kernels: Kernels<()>,
    slots: Arc<Slots>,
    marks: Arc<Marks>,
    /// What the kernels add up while they encode: zeros between two uses.
    seen: Scratch<DeviceMemory>,
}

/// The kernels' `Job`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct KernelJob {
    offset: u64,
    /// Words of zeros behind the stream.
    gap: u64,
    seen: u64,
    result: u64,
}

impl ZfpCoder {
    /// Loads nothing yet: that is done at the first use. Results go into `slots`, which other codecs
    /// of the context share, so that their checkpoints can begin behind each other.
    #[must_use]
    pub fn new(context: &Context, slots: &Arc<Slots>) -> ZfpCoder {
        ZfpCoder::looking_in(context, slots, Vec::new())
    }

    /// The same, with folders to look for the compiler in first, such as Python's `sys.path`.
    #[must_use]
    pub fn looking_in(context: &Context, slots: &Arc<Slots>, folders: Vec<PathBuf>) -> ZfpCoder {
        ZfpCoder {
            context: context.clone(),
            kernels: Kernels::new(context, folders),
            slots: Arc::clone(slots),
            marks: Marks::new(context),
            seen: Scratch::new(usize::MAX),
        }
    }

    /// The bytes that a checkpoint of these arrays takes.
    #[must_use]
    pub fn bytes(layouts: &[&ZfpLayout]) -> u64 {
        offsets(layouts.iter().map(|layout| layout.stored())).1
    }

    /// Enqueues the encoding of `jobs` as one checkpoint: each begins at a multiple of 64 from the
    /// start, with zeros between them. Nothing at or beyond the address `limit` is written.
    ///
    /// # Errors
    /// When the kernels cannot be had, the stream belongs to another device, or the driver refuses.
    /// What becomes of the values is told by the result.
    ///
    /// # Safety
    /// The arrays are device memory and stay as they are until the encoding is done; from the start
    /// to `limit` is device memory that nobody else uses until then.
    pub unsafe fn encode(
        &self,
        stream: &Stream,
        jobs: &[ZfpJob<'_>],
        start: Start<'_>,
        limit: u64,
    ) -> Result<Pending, DeviceError> {
        self.context.require(stream.context().ordinal(), "the stream")?;
        let module = self.module()?;
        let mut slot = self.slots.begin(jobs.len())?;
        let (offsets, bytes) = offsets(jobs.iter().map(|job| job.layout.stored()));
        let anchor = start.anchor(stream, &mut slot, (limit, bytes))?;
        let mark = self.marks.prepare()?;
        let seen = self.take_seen(stream, jobs.len() as u64)?;
        for (index, job) in jobs.iter().enumerate() {
            let end = offsets.get(index + 1).copied().unwrap_or(bytes);
            let place = kernel_job(&slot, &seen, index, (offsets[index], end), job.layout);
            // SAFETY: the caller's duty.
            unsafe { launch_encode(&module, stream, job, &anchor, place) }?;
            stream.saw_read("encoding with zfp", self.touched(job.source, job.layout.bytes()));
        }
        if let Some(begin) = anchor.known() {
            stream.saw_write("encoding with zfp", self.touched(begin, bytes));
        }
        // SAFETY: the slot and what was seen are there until the result is.
        unsafe { launch_finish(&module, stream, &anchor, &slot, &seen, jobs.len()) }?;
        let pending = slot.launched(mark.record(stream)?, limit);
        self.seen.give(seen, &pending);
        Ok(pending)
    }

    /// Enqueues the decoding of `jobs`. The status tells of streams of another layout, whose arrays
    /// stay as they are; no stream makes a kernel read or write beyond what the jobs name.
    ///
    /// # Errors
    /// When a stream has another length than its layout, the kernels cannot be had, the stream
    /// belongs to another device, or the driver refuses.
    ///
    /// # Safety
    /// Streams and targets are device memory of the lengths that the layouts say, and nobody else
    /// uses them until the decoding is done.
    pub unsafe fn decode(
        &self,
        stream: &Stream,
        jobs: &[ZfpDecodeJob<'_>],
    ) -> Result<DecodeStatus, DeviceError> {
        self.context.require(stream.context().ordinal(), "the stream")?;
        jobs.iter().try_for_each(check_length)?;
        let module = self.module()?;
        let slot = self.slots.begin(jobs.len())?;
        let mark = self.marks.prepare()?;
        for (index, job) in jobs.iter().enumerate() {
            // SAFETY: the caller's duty.
            unsafe { launch_decode(&module, stream, job, result_of(&slot, index)) }?;
            let from = self.touched(job.stream_address, job.stored);
            stream.saw_copy("decoding zfp", from, self.touched(job.target, job.layout.bytes()));
        }
        // SAFETY: the slot is there until the result is.
        unsafe { launch_decoded(&module, stream, &slot, jobs.len()) }?;
        Ok(DecodeStatus::new(vec![slot.launched(mark.record(stream)?, 0)]))
    }

    fn touched(&self, first: u64, len: u64) -> Touched {
        Touched::device(self.context.ordinal(), first, len)
    }

    /// Sums for so many jobs, all 0.
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

/// Where streams of these lengths begin, and the end of the last one.
fn offsets(stored: impl Iterator<Item = u64>) -> (Vec<u64>, u64) {
    let (mut offsets, mut end) = (Vec::new(), 0u64);
    for bytes in stored {
        let offset = end.next_multiple_of(ALIGNMENT);
        offsets.push(offset);
        end = offset + bytes;
    }
    (offsets, end)
}

fn check_length(job: &ZfpDecodeJob<'_>) -> Result<(), DeviceError> {
    let expected = job.layout.stored();
    if job.stored == expected {
        return Ok(());
    }
    let message =
        format!("a zfp stream of {} bytes was given where {expected} are expected", job.stored);
    Err(DeviceError::new(DeviceErrorKind::OutOfRange, message)
        .with_advice("Decode it with the shape, dtype and rate that it was encoded with."))
}

/// Where the words of a job are in a result.
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

/// Blocks of threads for so many threads.
fn launch_shape(threads: u64) -> Result<(u32, u32), DeviceError> {
    let blocks = i32::try_from(threads.div_ceil(u64::from(THREADS))).map_err(|_| {
        let message = format!("an array of {threads} blocks is more than zfp takes in one launch");
        DeviceError::new(DeviceErrorKind::OutOfRange, message).with_advice("Split the array.")
    })?;
    Ok((blocks.unsigned_abs(), THREADS))
}

/// # Safety
/// As [`ZfpCoder::encode`].
unsafe fn launch_encode(
    module: &Module,
    stream: &Stream,
    job: &ZfpJob<'_>,
    anchor: &Anchor,
    mut place: KernelJob,
) -> Result<(), DeviceError> {
    let (mut source, mut anchor) = (job.source, *anchor);
    let (mut shape, mut head) = (job.layout.shape(), job.layout.head());
    let mut list = [
        parameter(&mut source),
        parameter(&mut shape),
        parameter(&mut anchor),
        parameter(&mut head),
        parameter(&mut place),
    ];
    let blocks = launch_shape(shape.encoders())?;
    // SAFETY: the parameters are those of the kernel; for the memory the caller answers.
    unsafe { module.launch_with(stream, &job.layout.kernel("encode"), blocks, &mut list) }
}

/// # Safety
/// `slot` and `seen` are used by nobody else until the result is there.
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
    // SAFETY: the parameters are those of the kernel; for the memory the caller answers.
    unsafe { module.launch_with(stream, "zfp_finish", (1, 1), &mut list) }
}

/// # Safety
/// As [`ZfpCoder::decode`].
unsafe fn launch_decode(
    module: &Module,
    stream: &Stream,
    job: &ZfpDecodeJob<'_>,
    mut status: u64,
) -> Result<(), DeviceError> {
    let (mut from, mut to) = (job.stream_address, job.target);
    let (mut shape, mut head) = (job.layout.shape(), job.layout.head());
    let mut list = [
        parameter(&mut from),
        parameter(&mut to),
        parameter(&mut shape),
        parameter(&mut head),
        parameter(&mut status),
    ];
    let blocks = launch_shape(shape.decoders())?;
    // SAFETY: the parameters are those of the kernel; for the memory the caller answers.
    unsafe { module.launch_with(stream, &job.layout.kernel("decode"), blocks, &mut list) }
}

/// # Safety
/// `slot` is used by nobody else until the result is there.
unsafe fn launch_decoded(
    module: &Module,
    stream: &Stream,
    slot: &Slot,
    jobs: usize,
) -> Result<(), DeviceError> {
    let (mut address, mut sequence, mut jobs) = (slot.address(), slot.sequence(), jobs as u64);
    let mut list = [parameter(&mut jobs), parameter(&mut address), parameter(&mut sequence)];
    // SAFETY: the parameters are those of the kernel; for the memory the caller answers.
    unsafe { module.launch_with(stream, "zfp_decoded", (1, 1), &mut list) }
}
