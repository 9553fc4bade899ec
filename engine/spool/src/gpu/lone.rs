//! Arrays of a GPU by themselves, without a checkpoint: encoded into pinned memory of the host, and
//! decoded from it.
//!
//! An encoder writes to memory of the device, as nobody knows before how many bytes it makes; only
//! those that it made go over the link.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use unspool_codec::{Dtype, EncodedStream, Spec};
use unspool_cuda::{DeviceSpan, Fence, PinnedMemory, Stream, copy as raw};
use unspool_gpu_codec::{After, DecodeStatus, GpuLayout, Items, Request, Values};
use unspool_tiers::Gpu as Device;

use super::copies::{check_size, check_stream};
use super::{DeviceArray, Gpu, ScratchLease, items};
use crate::error::{Error, ErrorKind};

/// An array on a GPU, the stream on which it is in order, and what its bytes are encoded with.
#[derive(Clone, Copy, Debug)]
pub struct LoneArray<'a> {
    /// Its memory.
    pub array: &'a DeviceArray,
    /// Where the work on it is enqueued.
    pub stream: &'a Stream,
    /// The type of its items.
    pub dtype: &'a Dtype,
    /// Its dimensions, slowest first.
    pub shape: &'a [u64],
    /// The lossless codec, one with a bound, or the bytes as they are.
    pub codec: &'a Spec,
}

/// An array that is being decoded, and reads from pinned memory until then.
#[derive(Debug)]
pub struct LoneDecoding {
    fence: Fence,
    status: Option<DecodeStatus>,
}

impl Gpu {
    /// The device `ordinal`; nothing on it is waited for longer than `limit`. `folders` are looked
    /// into first for the compiler of kernels.
    ///
    /// # Errors
    /// `NoDevice` when it cannot be used.
    pub fn open(ordinal: u32, folders: Vec<PathBuf>, limit: Duration) -> Result<Gpu, Error> {
        let device = Device::open(ordinal, limit).map_err(|cause| {
            let message = format!(
                "CUDA device {ordinal} cannot be used: {cause} `unspool doctor` tells more."
            );
            Error::new(ErrorKind::NoDevice, message).caused_by(cause)
        })?;
        Ok(Gpu::new(device, folders))
    }

    /// Pinned memory of the host for `bytes` bytes.
    ///
    /// # Errors
    /// `Device` when the host does not have or pin so much.
    pub fn pinned(&self, bytes: u64) -> Result<PinnedMemory, Error> {
        Ok(PinnedMemory::new(self.context(), bytes)?)
    }

    /// Encodes the array, after what is on its stream, to `room` from `offset` on. The bytes are
    /// there when this returns: it waits at most `limit`, for their number and for their copy.
    /// Nothing may use that part of `room` meanwhile.
    ///
    /// # Errors
    /// `Invalid` when the codec does not take the array, `Device` when the room is too small or
    /// CUDA refuses, `Timeout` after `limit`.
    pub fn encode_alone(
        &self,
        lone: &LoneArray<'_>,
        (room, offset): (&PinnedMemory, u64),
        limit: Duration,
    ) -> Result<EncodedStream, Error> {
        let (began, layout) = (Instant::now(), layout_of(lone)?);
        let (source, aside) = self.place(lone, &layout, false)?;
        if let Some(aside) = &aside {
            lone.array.gather(&self.strided, lone.stream, &aside.span())?;
        }
        let (made, from, scratch) = self.encode_there(lone.stream, source, layout, limit)?;
        raw::device_to_pinned(lone.stream, room, offset, &from)?;
        let fence = self.fence(lone.stream)?;
        fence.wait(limit.saturating_sub(began.elapsed()))?;
        [aside, scratch].into_iter().flatten().for_each(|lease| lease.done(self, fence.clone()));
        Ok(made)
    }

    /// What is stored for the values of `source`, and where on the device that is.
    fn encode_there(
        &self,
        stream: &Stream,
        source: Items,
        layout: GpuLayout,
        limit: Duration,
    ) -> Result<(EncodedStream, DeviceSpan, Option<ScratchLease>), Error> {
        if let GpuLayout::Raw { bytes } = layout {
            let made = EncodedStream { bytes, achieved: Default::default() };
            return Ok((made, source.span().clone(), None));
        }
        let scratch = self.scratch(layout.max_bytes(), stream)?;
        let values = [Values { items: source, layout }];
        let request = Request { values: &values, room: scratch.span(), after: After::Nothing };
        let pending = self.coders.encode(stream, &[request])?;
        let found = pending.iter().map(|one| one.wait(limit)).next();
        let done = found.transpose().map_err(|cause| cause.into_device_error())?;
        let (start, job) = done
            .and_then(|done| Some((done.start, *done.jobs.first()?)))
            .unwrap_or_else(|| unreachable!("one array was given to be encoded"));
        let begin = start + job.offset - scratch.span().address();
        let from = scratch.span().slice(begin, job.stored)?;
        let made = EncodedStream { bytes: job.stored, achieved: job.achieved };
        Ok((made, from, Some(scratch)))
    }

    /// Decodes the `stored` bytes of `room` from `offset` on into the array, after what is on its
    /// stream. Only enqueued: until the result is waited for, nothing may write to that part of
    /// `room`.
    ///
    /// # Errors
    /// `Invalid` when the codec does not take the array or sizes differ, `Device` when CUDA
    /// refuses.
    pub fn decode_alone(
        &self,
        lone: &LoneArray<'_>,
        (room, offset): (&PinnedMemory, u64),
        stored: u64,
    ) -> Result<LoneDecoding, Error> {
        let layout = layout_of(lone)?;
        let (target, aside) = self.place(lone, &layout, true)?;
        let (mut coded, mut status) = (None, None);
        if let GpuLayout::Raw { bytes } = layout {
            check_size(stored, bytes)?;
            raw::pinned_to_device(lone.stream, target.span(), room, offset)?;
        } else {
            let lease = self.scratch(stored, lone.stream)?;
            raw::pinned_to_device(lone.stream, &lease.span(), room, offset)?;
            status = Some(self.coders.decode(lone.stream, &lease.span(), &layout, &target)?);
            coded = Some(lease);
        }
        if aside.is_some() {
            lone.array.scatter(&self.strided, lone.stream, target.span())?;
        }
        let fence = self.fence(lone.stream)?;
        [aside, coded].into_iter().flatten().for_each(|lease| lease.done(self, fence.clone()));
        Ok(LoneDecoding { fence, status })
    }

    /// Where a codec finds or writes the items of the array: its own memory, or some that is lent
    /// for a dense copy.
    fn place(
        &self,
        lone: &LoneArray<'_>,
        layout: &GpuLayout,
        is_target: bool,
    ) -> Result<(Items, Option<ScratchLease>), Error> {
        self.require(lone.array.ordinal())?;
        check_stream(lone.stream)?;
        check_size(lone.array.bytes(), layout.bytes())?;
        let find = if is_target { items::to_write } else { items::in_place };
        if let Some(items) = find(self.context(), layout, lone.array) {
            return Ok((items, None));
        }
        let lease = self.scratch(lone.array.bytes(), lone.stream)?;
        Ok((lease.span().into(), Some(lease)))
    }
}

impl LoneDecoding {
    /// Waits until the array is decoded, at most `limit`.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are damaged, `Device` when the device has failed, `Timeout` after
    /// `limit`.
    pub fn wait(&self, limit: Duration) -> Result<(), Error> {
        self.fence.wait(limit)?;
        let Some(status) = &self.status else { return Ok(()) };
        status.wait(limit).map_err(|cause| match cause.kind() {
            unspool_cuda::DeviceErrorKind::Damaged => {
                Error::new(ErrorKind::Corrupt, cause.to_string()).caused_by(cause)
            }
            _ => cause.into(),
        })
    }
}

fn layout_of(lone: &LoneArray<'_>) -> Result<GpuLayout, Error> {
    let invalid = |why: String| Error::new(ErrorKind::Invalid, why);
    let layout = GpuLayout::of(lone.codec, lone.dtype, lone.shape);
    layout.map_err(|cause| invalid(cause.to_string()).caused_by(cause))?.ok_or_else(|| {
        invalid(format!(
            "{} has no encoder on a GPU: use the lossless codec or a bound.",
            lone.codec
        ))
    })
}
