//! Encoding into an arena of a device and decoding out of it: what makes the calls of the device
//! crate safe, and what makes one checkpoint of regions with several codecs.
//!
//! A checkpoint that is being encoded has the bytes of its guard, and those that the checkpoint it
//! comes behind leaves of its own. Nobody else has a guard for either: the one before is an
//! [`Encoding`] as well, which gives its bytes away only with its result, and the caller ends
//! encodings in the order in which they were begun.

mod batch;

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use unspool_codec::twine::{Layout, Spec as TwineSpec};
use unspool_core::CheckpointId;
use unspool_cuda::{Context, DeviceError, DeviceSpan, Mark, Stream};
use unspool_gpu_codec::pending::{
    CheckpointResult, DecodeStatus, EncodeError, JobResult, Pending, Start,
};
use unspool_gpu_codec::twine::{Checkpoint, DecodeJob, EncodeJob, JobSpec, Twine};
use unspool_gpu_codec::{
    NvCompCoder, NvCompDecodeJob, NvCompJob, NvCompLayout, ZfpCoder, ZfpDecodeJob, ZfpJob,
    ZfpLayout,
};

use crate::arena::WriteGuard;
use crate::error::TierError;

pub use batch::{Behind, Member};

/// The longest wait for all that was enqueued before a part that could not be.
const LIMIT: Duration = Duration::from_secs(60);

/// Every region begins at a multiple of this.
const UNIT: u64 = 64;

/// The encoders and decoders of one device. Nothing is compiled or loaded before its first use.
#[derive(Debug)]
pub struct Coders {
    twine: Twine,
    zfp: ZfpCoder,
    nvcomp: NvCompCoder,
}

impl Coders {
    /// `folders` are looked into first for the compiler and for nvCOMP.
    #[must_use]
    pub fn new(context: &Context, folders: &[PathBuf]) -> Coders {
        let twine = Twine::new(context, folders.to_vec());
        let zfp = ZfpCoder::looking_in(context, twine.slots(), folders.to_vec());
        let nvcomp = NvCompCoder::looking_in(context, twine.slots(), folders.to_vec());
        Coders { twine, zfp, nvcomp }
    }

    /// The encoder of Unspool's own streams.
    #[must_use]
    pub fn twine(&self) -> &Twine {
        &self.twine
    }

    /// That of zfp at a fixed rate.
    #[must_use]
    pub fn zfp(&self) -> &ZfpCoder {
        &self.zfp
    }

    /// That of nvCOMP.
    #[must_use]
    pub fn nvcomp(&self) -> &NvCompCoder {
        &self.nvcomp
    }
}

/// How a region is stored.
#[derive(Clone, Copy, Debug)]
pub enum Spec<'a> {
    /// As it is.
    Raw {
        /// Its length.
        bytes: u64,
    },
    /// As a Twine stream.
    Twine(&'a TwineSpec),
    /// As a zfp stream of fixed rate.
    Zfp(&'a ZfpLayout),
    /// In a container of nvCOMP.
    NvComp(&'a NvCompLayout),
}

impl Spec<'_> {
    /// Bytes of its values.
    fn bytes(&self) -> u64 {
        match self {
            Spec::Raw { bytes } => *bytes,
            Spec::Twine(spec) => spec.layout.bytes(),
            Spec::Zfp(layout) => layout.bytes(),
            Spec::NvComp(layout) => layout.bytes(),
        }
    }
}

/// The values of one region on a device, dense, and what becomes of them.
#[derive(Clone, Debug)]
pub struct Values<'a> {
    /// Where they are.
    pub span: DeviceSpan,
    /// How they are stored.
    pub spec: Spec<'a>,
}

/// A checkpoint that encoders are at work on: one launch, or one for each run of regions that one
/// encoder takes, each placed behind the one before it.
#[derive(Clone, Debug)]
pub struct Parts(Vec<Pending>);

impl Parts {
    /// The last part: what is placed behind the checkpoint comes behind it.
    #[must_use]
    pub fn last(&self) -> &Pending {
        self.0.last().unwrap_or_else(|| unreachable!("a checkpoint has a part"))
    }

    /// A mark behind the launches.
    #[must_use]
    pub fn mark(&self) -> &Mark {
        self.last().mark()
    }

    /// The result, or `None` while the device has not written all of it. Makes no call of the
    /// driver.
    #[must_use]
    pub fn try_result(&self) -> Option<Result<CheckpointResult, EncodeError>> {
        let known: Option<Vec<_>> = self.0.iter().map(Pending::try_result).collect();
        Some(known?.into_iter().collect::<Result<Vec<_>, _>>().map(joined))
    }

    /// The result, after at most `limit`.
    ///
    /// # Errors
    /// When a part could not be encoded, the device failed, or the limit has passed.
    pub fn wait(&self, limit: Duration) -> Result<CheckpointResult, EncodeError> {
        let began = Instant::now();
        let results = self.0.iter().map(|part| part.wait(limit.saturating_sub(began.elapsed())));
        results.collect::<Result<Vec<_>, _>>().map(joined)
    }
}

/// Parts that lie behind each other, as one checkpoint.
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

/// A checkpoint on its way into an arena of a device. See the module.
#[must_use = "dropping it forgets the entry"]
pub struct Encoding {
    guard: WriteGuard,
    parts: Parts,
    /// The address of the first byte of the guard, and its place in the arena.
    first: (u64, u64),
}

/// Where an encoded checkpoint lies in its arena.
#[derive(Clone, PartialEq, Debug)]
pub struct Encoded {
    /// Its first byte.
    pub offset: u64,
    /// Its bytes and its regions.
    pub result: CheckpointResult,
}

impl Encoding {
    /// Enqueues the encoders on `stream`, which the values are ready on. The checkpoint begins with
    /// the bytes of `guard`, which are `offset` and following of its arena, or behind the end of
    /// `behind` at a multiple of `align`: that is the checkpoint whose room ends where the guard
    /// begins.
    ///
    /// # Errors
    /// When it cannot be enqueued: the guard comes back, and nothing is on its way.
    ///
    /// # Panics
    /// When the guard is of an arena in main memory, and when there are no values.
    pub fn begin(
        coders: &Coders,
        stream: &Stream,
        (mut guard, offset): (WriteGuard, u64),
        values: &[Values<'_>],
        behind: Option<(&Pending, u64)>,
    ) -> Result<Encoding, Box<(WriteGuard, DeviceError)>> {
        let Some(span) = guard.device().cloned() else {
            panic!("a device encodes into the arena of a device")
        };
        if let Err(error) = guard.order(stream) {
            return Err(Box::new((guard, error)));
        }
        let limit = span.address() + guard.len();
        let start = match behind {
            Some((pending, align)) if pending.limit() <= span.address() => {
                Start::After { pending, align }
            }
            _ => Start::At(span.address()),
        };
        match enqueue(coders, stream, values, start, limit) {
            Ok(parts) => {
                guard.leave_mark(parts.mark().clone());
                Ok(Encoding { guard, parts, first: (span.address(), offset) })
            }
            Err(error) => Err(Box::new((guard, error))),
        }
    }

    /// Whose entry it is.
    #[must_use]
    pub fn id(&self) -> CheckpointId {
        self.guard.id()
    }

    /// What is still to come.
    #[must_use]
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Where the checkpoint lies, once that is known. Makes no call of the driver.
    #[must_use]
    pub fn try_result(&self) -> Option<Result<Encoded, EncodeError>> {
        self.parts.try_result().map(|result| result.map(|result| self.placed(result)))
    }

    /// The same, after at most `limit`.
    ///
    /// # Errors
    /// When the checkpoint could not be encoded, the device failed, or the limit has passed.
    pub fn wait(&self, limit: Duration) -> Result<Encoded, EncodeError> {
        self.parts.wait(limit).map(|result| self.placed(result))
    }

    fn placed(&self, result: CheckpointResult) -> Encoded {
        let (address, offset) = self.first;
        Encoded { offset: (offset + result.start).wrapping_sub(address), result }
    }

    /// Decodes one region of it to `target`, which has room for its values.
    ///
    /// # Errors
    /// Those of [`decode`].
    pub fn decode(
        &self,
        coders: &Coders,
        stream: &Stream,
        (encoded, job): (&Encoded, &JobResult),
        (layout, target): (Stored<'_>, DeviceSpan),
    ) -> Result<DecodeStatus, DeviceError> {
        let Some(gpu) = self.guard.gpu() else { unreachable!("it is in the memory of a device") };
        stream.wait_for(self.parts.mark())?;
        let address = encoded.result.start + job.offset;
        // SAFETY: the memory is the arena's, which stays while the guard lives; it is freed behind
        // what is on the device then.
        let from = unsafe { DeviceSpan::foreign(gpu.context(), address, job.stored) };
        decode(coders, stream, &from, layout, &target)
    }

    /// The checkpoint is there: its entry can be read from now on.
    ///
    /// # Errors
    /// Those of [`WriteGuard::commit_at`].
    pub fn commit(self, encoded: &Encoded) -> Result<(), TierError> {
        self.guard.commit_at(encoded.offset, encoded.result.bytes)
    }

    /// Forgets the entry of a checkpoint that could not be encoded. Its bytes are never lent again
    /// when the device may still write to them.
    pub fn forget(mut self) {
        if self.parts.try_result().is_none() {
            self.guard.stick();
        }
    }
}

impl fmt::Debug for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoding").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// Encodes `values` to the start of `to`, memory that nobody else uses until the result is there.
///
/// # Errors
/// When it cannot be enqueued.
///
/// # Panics
/// When there are no values.
pub fn encode_aside(
    coders: &Coders,
    stream: &Stream,
    values: &[Values<'_>],
    to: &DeviceSpan,
) -> Result<Parts, DeviceError> {
    let start = Start::At(to.address());
    enqueue(coders, stream, values, start, to.address() + to.len())
}

/// Which encoder takes a region; those of one launch are neighbours.
#[derive(PartialEq, Eq)]
enum Kind {
    Twine,
    Zfp,
    /// One array for each call.
    NvComp(usize),
}

fn kind((index, values): (usize, &Values<'_>)) -> Kind {
    match values.spec {
        Spec::Raw { .. } | Spec::Twine(_) => Kind::Twine,
        Spec::Zfp(_) => Kind::Zfp,
        Spec::NvComp(_) => Kind::NvComp(index),
    }
}

fn enqueue(
    coders: &Coders,
    stream: &Stream,
    values: &[Values<'_>],
    start: Start<'_>,
    limit: u64,
) -> Result<Parts, DeviceError> {
    assert!(!values.is_empty(), "a checkpoint that is encoded has a region");
    values.iter().try_for_each(|v| v.span.slice(0, v.spec.bytes()).map(drop))?;
    let mut parts: Vec<Pending> = Vec::new();
    let mut first = 0;
    while first < values.len() {
        let own = kind((first, &values[first]));
        let end = (first..values.len()).find(|&i| kind((i, &values[i])) != own);
        let run = &values[first..end.unwrap_or(values.len())];
        let last = parts.last().cloned();
        let start = match &last {
            Some(pending) => Start::After { pending, align: UNIT },
            None => start,
        };
        match encode_run(coders, stream, run, start, limit) {
            Ok(part) => parts.push(part),
            Err(error) => {
                // Whoever gets the bytes now must not meet the parts before, and the last of them
                // is done after the others.
                if let Some(last) = parts.last() {
                    let _ = last.wait(LIMIT);
                }
                return Err(error);
            }
        }
        first += run.len();
    }
    Ok(Parts(parts))
}

/// Encodes regions that one encoder takes.
fn encode_run(
    coders: &Coders,
    stream: &Stream,
    run: &[Values<'_>],
    start: Start<'_>,
    limit: u64,
) -> Result<Pending, DeviceError> {
    if let [Values { span, spec: Spec::NvComp(layout) }] = run {
        let job = NvCompJob { source: span.address(), layout };
        // SAFETY: as for Twine below.
        return unsafe { coders.nvcomp.encode(stream, &job, start, limit) };
    }
    let zfp: Vec<ZfpJob<'_>> = run
        .iter()
        .filter_map(|Values { span, spec }| match spec {
            Spec::Zfp(layout) => Some(ZfpJob { source: span.address(), layout }),
            _ => None,
        })
        .collect();
    if !zfp.is_empty() {
        // SAFETY: as for Twine below.
        return unsafe { coders.zfp.encode(stream, &zfp, start, limit) };
    }
    let jobs: Vec<EncodeJob<'_>> = run
        .iter()
        .map(|Values { span, spec }| EncodeJob { source: span.address(), spec: job(*spec) })
        .collect();
    let checkpoint = Checkpoint { jobs: &jobs, start, limit };
    // SAFETY: spans name memory that stays while it is used. What is written is the caller's own:
    // a guard's bytes, behind what it was ordered after, or what the checkpoint before it leaves,
    // which nobody else is lent before both are done (see the module).
    let mut pending = unsafe { coders.twine.encode(stream, &[checkpoint]) }?;
    Ok(pending.pop().unwrap_or_else(|| unreachable!("one checkpoint gives one result")))
}

fn job(spec: Spec<'_>) -> JobSpec<'_> {
    match spec {
        Spec::Twine(spec) => JobSpec::Twine(spec),
        other => JobSpec::Raw { bytes: other.bytes() },
    }
}

/// What a stream was made from.
#[derive(Clone, Copy, Debug)]
pub enum Stored<'a> {
    /// A Twine stream.
    Twine(&'a Layout),
    /// A zfp stream of fixed rate.
    Zfp(&'a ZfpLayout),
    /// A container of nvCOMP.
    NvComp(&'a NvCompLayout),
}

/// Decodes the bytes of `from` to `to`, dense, behind what is on `stream`. The host does not wait
/// (for nvCOMP's Bitcomp it does); a stream that is damaged is told by the status later.
///
/// # Errors
/// When `to` is too short, and when it cannot be enqueued.
pub fn decode(
    coders: &Coders,
    stream: &Stream,
    from: &DeviceSpan,
    layout: Stored<'_>,
    to: &DeviceSpan,
) -> Result<DecodeStatus, DeviceError> {
    let needed = match layout {
        Stored::Twine(layout) => layout.bytes(),
        Stored::Zfp(layout) => layout.bytes(),
        Stored::NvComp(layout) => layout.bytes(),
    };
    to.slice(0, needed)?;
    let (address, stored, target) = (from.address(), from.len(), to.address());
    // SAFETY: spans name memory that stays while it is used. The caller's stream orders this with
    // other accesses to them: it waits for what wrote the streams, and what is enqueued on it
    // later comes after.
    unsafe {
        match layout {
            Stored::Twine(layout) => {
                let job = DecodeJob { stream: address, stored, layout, target };
                coders.twine.decode(stream, &[job])
            }
            Stored::Zfp(layout) => {
                let job = ZfpDecodeJob { stream_address: address, stored, layout, target };
                coders.zfp.decode(stream, &[job])
            }
            Stored::NvComp(layout) => {
                let job = NvCompDecodeJob { stream_address: address, stored, layout, target };
                coders.nvcomp.decode(stream, &job)
            }
        }
    }
}
