//! All codecs of one device: checkpoints whose regions have several codecs, and a safe interface to
//! [`GpuCodec`].
//!
//! A checkpoint may be written to its own room, and to what the checkpoint before it leaves of its
//! room. Until both are done, the caller uses neither for anything else.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use unspool_cuda::{Context, DeviceError, DeviceErrorKind, DeviceSpan, Fence, Stream};

use crate::codec::{DecodeJob, EncodeJob, GpuCodec, GpuLayout, StoredCheckpoint};
use crate::nvcomp::NvCompCoder;
use crate::pending::{CheckpointResult, DecodeStatus, EncodeError, JobResult, Pending, Start};
use crate::start::end;
use crate::steps::Steps;
use crate::twine::Twine;
use crate::zfp::ZfpCoder;

/// Alignment of regions.
const UNIT: u64 = 64;

/// The encoders and decoders of one device. Kernels and libraries are loaded at the first use.
#[derive(Debug)]
pub struct GpuCodecs {
    twine: Twine,
    zfp: ZfpCoder,
    nvcomp: NvCompCoder,
}

/// The values of an array on a device: its memory, which begins with the first value, and where the
/// others are if they are not one after the other.
#[derive(Clone, Debug)]
pub struct Items {
    span: DeviceSpan,
    steps: Option<Steps>,
}

impl Items {
    /// Values that lie at these steps.
    #[must_use]
    pub fn at(span: DeviceSpan, steps: Steps) -> Items {
        Items { span, steps: Some(steps) }
    }

    /// The memory from the first value to the last.
    #[must_use]
    pub fn span(&self) -> &DeviceSpan {
        &self.span
    }

    /// The address of the first value and the steps, of an array of this layout.
    ///
    /// # Errors
    /// When the memory is too short for it, and when a codec other than Twine is to follow steps.
    fn place(&self, layout: &GpuLayout) -> Result<(u64, Option<Steps>), DeviceError> {
        if self.steps.is_some() && !matches!(layout, GpuLayout::Twine(_)) {
            let message = format!("{:?} takes dense arrays only", layout.id());
            return Err(DeviceError::new(DeviceErrorKind::OutOfRange, message));
        }
        self.span.slice(0, layout.reach(self.steps.as_ref()))?;
        Ok((self.span.address(), self.steps))
    }
}

impl From<DeviceSpan> for Items {
    fn from(span: DeviceSpan) -> Items {
        Items { span, steps: None }
    }
}

/// The values of one region on a device, and their encoding.
#[derive(Clone, Debug)]
pub struct Values {
    /// Where the values are.
    pub items: Items,
    /// How they are encoded.
    pub layout: GpuLayout,
}

/// A checkpoint to be encoded.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Its regions; at least one.
    pub values: &'a [Values],
    /// Its room; the checkpoint ends within it.
    pub room: DeviceSpan,
    /// Where it begins.
    pub after: After<'a>,
}

/// The begin of a checkpoint. After another one it begins at a multiple of the given number, and
/// its room begins where that of the other ends.
#[derive(Clone, Copy, Debug)]
pub enum After<'a> {
    /// At the begin of its own room.
    Nothing,
    /// After a checkpoint of an earlier call.
    Earlier(&'a Pending, u64),
    /// After the checkpoint before it in the same call.
    Before(u64),
}

/// A checkpoint in flight: one launch, or one for each run of regions with the same codec, each
/// placed after the one before it.
#[derive(Clone, Debug)]
pub struct PendingParts {
    parts: Vec<Pending>,
    room: DeviceSpan,
}

/// Adjacent regions of one checkpoint with the same codec.
struct CodecRun<'a> {
    /// Index of the checkpoint in the call.
    owner: usize,
    codec: usize,
    jobs: Vec<EncodeJob>,
    /// `Start::Next` for a run that follows another of the same checkpoint.
    start: Start<'a>,
    limit: u64,
}

impl GpuCodecs {
    /// `folders` are searched first for the compiler and for nvCOMP.
    #[must_use]
    pub fn new(context: &Context, folders: &[PathBuf]) -> GpuCodecs {
        let twine = Twine::new(context, folders.to_vec());
        let zfp = ZfpCoder::new(context, twine.slots(), folders.to_vec());
        let nvcomp = NvCompCoder::looking_in(context, twine.slots(), folders.to_vec());
        GpuCodecs { twine, zfp, nvcomp }
    }

    /// All codecs. A new codec is a folder of this crate, and an entry here.
    fn all(&self) -> [&dyn GpuCodec; 3] {
        [&self.twine, &self.zfp, &self.nvcomp]
    }

    /// The encoder of nvCOMP.
    #[must_use]
    pub fn nvcomp(&self) -> &NvCompCoder {
        &self.nvcomp
    }

    /// Loads or compiles the kernels for `checkpoints` checkpoints of such regions, so that a later
    /// launch does not have to.
    ///
    /// # Errors
    /// When kernels have to be compiled and there is no compiler, or it refuses.
    pub fn prepare(&self, layouts: &[GpuLayout], checkpoints: usize) -> Result<(), DeviceError> {
        for codec in self.all() {
            let taken = layouts.iter().filter(|layout| codec.takes(layout));
            let jobs: Vec<EncodeJob> = taken
                .map(|layout| EncodeJob { source: 0, steps: None, layout: layout.clone() })
                .collect();
            if !jobs.is_empty() {
                let one = StoredCheckpoint { jobs: &jobs, start: Start::At(0), limit: u64::MAX };
                codec.prepare(&vec![one; checkpoints])?;
            }
        }
        Ok(())
    }

    /// Encodes checkpoints after what is on `stream`, on which their values are ready, with one
    /// call for those that need only one codec. The results are in the order of the requests.
    ///
    /// # Errors
    /// When a checkpoint has no values, a span is shorter than its layout, or one of them cannot be
    /// enqueued. Then nothing is in flight, unless the error
    /// [leaves work](DeviceError::leaves_work).
    pub fn encode(
        &self,
        stream: &Stream,
        requests: &[Request<'_>],
    ) -> Result<Vec<PendingParts>, DeviceError> {
        let runs = self.runs(requests)?;
        let mut done: Vec<Pending> = Vec::with_capacity(runs.len());
        for group in runs.chunk_by(|one, next| one.codec == next.codec) {
            match self.encode_group(stream, group, done.last().cloned()) {
                Ok(pending) => done.extend(pending),
                Err(error) => return Err(end(&done, error)),
            }
        }
        let mut all: Vec<PendingParts> = requests
            .iter()
            .map(|request| PendingParts { parts: Vec::new(), room: request.room.clone() })
            .collect();
        for (run, pending) in runs.iter().zip(done) {
            all[run.owner].parts.push(pending);
        }
        Ok(all)
    }

    fn runs<'a>(&self, requests: &[Request<'a>]) -> Result<Vec<CodecRun<'a>>, DeviceError> {
        let (mut runs, mut before): (Vec<CodecRun<'a>>, _) = (Vec::new(), None);
        for (owner, request) in requests.iter().enumerate() {
            let limit = request.room.address() + request.room.len();
            let mut start = Some(request.start(before));
            for values in request.values {
                let (source, steps) = values.items.place(&values.layout)?;
                let codec = self.codec_of(&values.layout)?;
                let job = EncodeJob { source, steps, layout: values.layout.clone() };
                let most = self.all()[codec].most_regions();
                let last = runs
                    .last_mut()
                    .filter(|run| start.is_none() && run.codec == codec && run.jobs.len() < most);
                if let Some(run) = last {
                    run.jobs.push(job);
                    continue;
                }
                let start = start.take().unwrap_or(Start::Next { align: UNIT });
                runs.push(CodecRun { owner, codec, jobs: vec![job], start, limit });
            }
            if start.is_some() {
                return Err(without_regions());
            }
            before = Some(limit);
        }
        Ok(runs)
    }

    fn codec_of(&self, layout: &GpuLayout) -> Result<usize, DeviceError> {
        self.all().iter().position(|codec| codec.takes(layout)).ok_or_else(|| {
            let message = format!("no codec of the device takes {layout:?}");
            DeviceError::new(DeviceErrorKind::OutOfRange, message)
        })
    }

    /// Enqueues runs of one codec with one call; the first may follow `before`.
    fn encode_group(
        &self,
        stream: &Stream,
        group: &[CodecRun<'_>],
        before: Option<Pending>,
    ) -> Result<Vec<Pending>, DeviceError> {
        let checkpoints = group.iter().enumerate().map(|(index, run)| {
            let start = match (run.start, &before) {
                (Start::Next { align }, Some(pending)) if index == 0 => {
                    Start::After { pending, align }
                }
                (start, _) => start,
            };
            StoredCheckpoint { jobs: &run.jobs, start, limit: run.limit }
        });
        let checkpoints: Vec<StoredCheckpoint<'_>> = checkpoints.collect();
        // SAFETY: spans keep their memory allocated while it is used. Only the caller's own room is
        // written, or what the checkpoint before it leaves, which the caller uses for nothing else
        // until both are done (see the module).
        unsafe { self.all()[group[0].codec].encode(stream, &checkpoints) }
    }

    /// Decodes the bytes of `from` to `to`, after what is on `stream`. The host does not
    /// wait (except for nvCOMP's Bitcomp); the status reports a damaged stream later.
    ///
    /// # Errors
    /// When `to` is too short, and when it cannot be enqueued.
    pub fn decode(
        &self,
        stream: &Stream,
        from: &DeviceSpan,
        layout: &GpuLayout,
        to: &Items,
    ) -> Result<DecodeStatus, DeviceError> {
        self.decode_all(stream, &[(from.clone(), layout.clone(), to.clone())])
    }

    /// As [`decode`](Self::decode), for several streams, each with its layout and its target: with
    /// one call for each codec.
    ///
    /// # Errors
    /// Those of `decode`. Some of them may be under way then.
    pub fn decode_all(
        &self,
        stream: &Stream,
        all: &[(DeviceSpan, GpuLayout, Items)],
    ) -> Result<DecodeStatus, DeviceError> {
        let mut jobs = self.all().map(|codec| (codec, Vec::new()));
        for (from, layout, to) in all {
            let (target, steps) = to.place(layout)?;
            let of_codec = &mut jobs[self.codec_of(layout)?].1;
            let (stream, stored, layout) = (from.address(), from.len(), layout.clone());
            of_codec.push(DecodeJob { stream, stored, layout, target, steps });
        }
        let some = jobs.iter().filter(|(_, jobs)| !jobs.is_empty());
        // SAFETY: spans keep their memory allocated while it is used. The caller's stream orders
        // this with other accesses: it waits for what wrote the streams, and what is enqueued on it
        // later comes after.
        let decoded = some.map(|(codec, jobs)| unsafe { codec.decode(stream, jobs) });
        decoded.collect()
    }
}

impl<'a> Request<'a> {
    /// The begin of the request, where `before` is the limit of the request before it.
    fn start(&self, before: Option<u64>) -> Start<'a> {
        let own = self.room.address();
        match self.after {
            After::Earlier(pending, align) if pending.limit() <= own => {
                Start::After { pending, align }
            }
            After::Before(align) if before.is_some_and(|limit| limit <= own) => {
                Start::Next { align }
            }
            _ => Start::At(own),
        }
    }
}

impl PendingParts {
    /// The last part: the next checkpoint begins after it.
    #[must_use]
    pub fn last(&self) -> &Pending {
        self.parts.last().unwrap_or_else(|| unreachable!("a checkpoint has a region"))
    }

    /// A fence after the launches.
    #[must_use]
    pub fn fence(&self) -> &Fence {
        self.last().fence()
    }

    /// The result, or `None` while the device has not written all of it. Makes no call of the
    /// driver.
    #[must_use]
    pub fn try_result(&self) -> Option<Result<CheckpointResult, EncodeError>> {
        let known: Option<Vec<_>> = self.parts.iter().map(Pending::try_result).collect();
        Some(known?.into_iter().collect::<Result<Vec<_>, _>>().map(joined))
    }

    /// The result, after at most `limit`.
    ///
    /// # Errors
    /// When a part could not be encoded, the device failed, or the limit has passed.
    pub fn wait(&self, limit: Duration) -> Result<CheckpointResult, EncodeError> {
        let began = Instant::now();
        let left = || limit.saturating_sub(began.elapsed());
        let results = self.parts.iter().map(|part| part.wait(left()));
        results.collect::<Result<Vec<_>, _>>().map(joined)
    }

    /// The address at which its own room begins.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.room.address()
    }

    /// Decodes one region of the checkpoint to `target`, after the encoders, for which `stream`
    /// waits.
    ///
    /// # Errors
    /// Those of [`GpuCodecs::decode`].
    pub fn decode(
        &self,
        codecs: &GpuCodecs,
        stream: &Stream,
        (result, job): (&CheckpointResult, &JobResult),
        (layout, target): (&GpuLayout, &Items),
    ) -> Result<DecodeStatus, DeviceError> {
        stream.wait_for(self.fence())?;
        let address = result.start + job.offset;
        // SAFETY: the memory is that of the room, which the span in `self` keeps, or lies before it
        // in the same memory; it is freed after what is on the device then.
        let from = unsafe { DeviceSpan::foreign(stream.context(), address, job.stored) };
        codecs.decode(stream, &from, layout, target)
    }
}

/// The results of adjacent parts as one checkpoint.
fn joined(parts: Vec<CheckpointResult>) -> CheckpointResult {
    let start = parts.first().map_or(0, |part| part.start);
    let mut all = CheckpointResult { start, bytes: 0, jobs: Vec::new() };
    for part in parts {
        let before = part.start - start;
        let jobs = part.jobs.into_iter();
        all.jobs.extend(jobs.map(|job| JobResult { offset: before + job.offset, ..job }));
        all.bytes = before + part.bytes;
    }
    all
}

fn without_regions() -> DeviceError {
    let message = "a checkpoint without regions was given to be encoded";
    DeviceError::new(DeviceErrorKind::OutOfRange, message).with_advice("Give it one at least.")
}
