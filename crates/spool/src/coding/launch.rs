//! Encoding on a GPU: the arrays of a checkpoint are gathered call by call, and with the last one
//! a single launch encodes all of them, straight into the arena where it is that GPU's, else into
//! memory aside from where the exact bytes are copied.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use unspool_codec::Spec;
use unspool_core::RequestId;
use unspool_cuda::{DeviceError, DeviceSpan, Mark, Stream, copy as raw};
use unspool_gpu_codec::{After, CheckpointResult, GpuLayout, Pending, Request, Values};
use unspool_tiers::{DeviceArray, WriteGuard};

use super::check;
use super::decoded::through;
use super::encoded::Encoded;
use super::encoding::{Encoding, Member};
use super::plan::{Plan, Planned};
use crate::error::{Error, ErrorKind};
use crate::gpu::{self, Gpu, Lent};
use crate::hub::Hub;
use crate::save::{Room, SaveTicket};

/// One array on its way into a checkpoint: its region, where it is, and the stream it is ready on.
pub(crate) type Given<'a> = (usize, &'a DeviceArray, &'a Stream);

/// The values that are on a GPU so far, by region.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    given: Vec<Option<Source>>,
}

/// The values of one region: dense.
#[derive(Debug)]
pub(crate) struct Source {
    span: DeviceSpan,
    /// The memory, where it is ours, and what it is filled behind.
    aside: Option<(Lent, Mark)>,
}

impl Source {
    fn copied(lent: Lent, ready: Mark) -> Source {
        Source { span: lent.span(), aside: Some((lent, ready)) }
    }
}

impl Sources {
    fn put(&mut self, index: usize, source: Source) {
        if self.given.len() <= index {
            self.given.resize_with(index + 1, || None);
        }
        self.given[index] = Some(source);
    }

    pub(crate) fn has(&self, index: usize) -> bool {
        self.given.get(index).is_some_and(Option::is_some)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.given.iter().all(Option::is_none)
    }

    /// The memory of ours can be used again behind `mark`.
    pub(crate) fn done(self, gpu: &Gpu, mark: &Mark) {
        for (memory, _) in self.given.into_iter().flatten().filter_map(|source| source.aside) {
            memory.done(gpu, mark.clone());
        }
    }
}

/// Whether a GPU can encode every region of `plan`.
pub(crate) fn is_for_gpu(plan: &Plan) -> bool {
    plan.regions.iter().all(|region| region.layout.is_some())
}

/// Whether its codec promises anything of the values.
fn is_promised(region: &Planned) -> bool {
    !matches!(region.codec, Spec::Raw | Spec::Zfp(_))
}

/// Refuses formats of nvCOMP that cannot be had on `gpu`.
///
/// # Errors
/// `Invalid`.
pub(crate) fn check_formats(gpu: &Gpu, plan: &Plan) -> Result<(), Error> {
    for region in &plan.regions {
        let Spec::NvComp(format) = region.codec else { continue };
        let Some(coders) = gpu.coders() else { continue };
        let (name, dtype) = (&region.spec.name, &region.spec.dtype);
        let library = coders.nvcomp().loaded().map_err(|cause| {
            let message = format!(
                "Region {name:?} cannot be encoded with nvCOMP (`pip install unspool[nvcomp]`): \
                 {cause}"
            );
            Error::new(ErrorKind::Invalid, message).caused_by(cause)
        })?;
        if !library.takes(format, dtype) {
            let message = format!(
                "Region {name:?} has items of dtype {}, which {library:?} cannot take as \
                 {format:?}. Install nvCOMP 6, or choose the lossless codec or a bound.",
                dtype.name(),
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
    }
    Ok(())
}

/// The end of a save that is pending, once it was launched.
pub(crate) type Launched = Arc<OnceLock<Pending>>;

/// A checkpoint may begin behind one that is pending, whose room ends where its own begins.
#[derive(Debug)]
pub(crate) struct Chain {
    /// Empty while that one is not launched, and for ever when it cannot be.
    pub(crate) behind: Launched,
    /// That save.
    pub(crate) request: RequestId,
    pub(crate) alignment: u64,
}

impl SaveTicket {
    /// Takes arrays of a GPU into an encoded checkpoint. They may be changed by what is enqueued on
    /// their streams later.
    ///
    /// # Errors
    /// As [`SaveTicket::put`].
    pub(crate) fn put_encoded(&mut self, gpu: &Gpu, arrays: &[Given<'_>]) -> Result<(), Error> {
        for (index, array, stream) in arrays {
            gpu::check_size(array.bytes(), self.frame.head().regions[*index].bytes)?;
            gpu::check_stream(stream)?;
        }
        let Some(encoded) = &mut self.encoded else { return Ok(()) };
        check_formats(gpu, encoded.plan())?;
        encoded.gpu = Some(gpu.clone());
        if encoded.is_launched {
            // Nothing is left to give but arrays without bytes.
            return arrays.iter().try_for_each(|(index, ..)| encoded.memory(*index).map(drop));
        }
        if gpu.coders().is_none() || !encoded.may_launch() {
            return self.download_all(gpu, arrays);
        }
        let named = |index: usize| arrays.iter().any(|(given, ..)| *given == index);
        let is_last = encoded.all(named);
        for &(index, array, stream) in arrays {
            if is_last {
                encoded.give(gpu, index, (array, stream))?;
            } else {
                encoded.sources.put(index, gather(gpu, array, stream)?);
            }
        }
        if !is_last {
            return Ok(());
        }
        let Some((_, _, stream)) = arrays.last() else { return Ok(()) };
        for (_, _, other) in arrays.iter().filter(|(_, _, s)| s.handle() != stream.handle()) {
            let ready = gpu.mark(other)?;
            stream.wait_for(&ready)?;
        }
        match self.launch(gpu, stream) {
            Ok(mark) => {
                let mut others = arrays.iter().filter(|(_, _, s)| s.handle() != stream.handle());
                others.try_for_each(|(_, _, other)| other.wait_for(&mark))?;
                Ok(())
            }
            Err(Refused::Final(error)) => Err(error),
            // The encoders of the host do it.
            Err(Refused::Launch) => self.download_all(gpu, arrays),
        }
    }

    /// Launches what is there, where arrays of a GPU and of the host come together.
    ///
    /// # Errors
    /// `Device` when CUDA refuses.
    pub(crate) fn launch_rest(&mut self) -> Result<(), Error> {
        let Some(encoded) = &mut self.encoded else { return Ok(()) };
        if encoded.is_launched {
            return Ok(());
        }
        if encoded.sources.is_empty() {
            // The host could not do it.
            let is_for_gpu = encoded.plan().needs_gpu() && encoded.may_launch();
            encoded.gpu = self.hub.some_gpu().filter(|gpu| is_for_gpu && gpu.coders().is_some());
        }
        let Some(gpu) = encoded.gpu.clone() else {
            return Ok(());
        };
        check_formats(&gpu, encoded.plan())?;
        let stream = gpu.stream();
        for index in 0..encoded.regions() {
            if encoded.sources.has(index) || encoded.bytes_of(index) == 0 {
                continue;
            }
            let lent = gpu.scratch(encoded.bytes_of(index), stream)?;
            let bytes = encoded.memory(index)?;
            raw::host_to_device(stream, &lent.span(), bytes, gpu.device().limit())?;
            let ready = gpu.mark(stream)?;
            encoded.sources.put(index, Source::copied(lent, ready));
        }
        match self.launch(&gpu, stream) {
            Ok(_) => Ok(()),
            Err(Refused::Final(error)) => Err(error),
            Err(Refused::Launch) => self.download_all(&gpu, &[]),
        }
    }

    /// Enqueues the encoder of all regions on `stream`.
    fn launch(&mut self, gpu: &Gpu, stream: &Stream) -> Result<Mark, Refused> {
        let began = Instant::now();
        let (Some(encoded), Some(room)) = (&mut self.encoded, self.room.take()) else {
            return Err(Refused::Launch);
        };
        let sources = std::mem::take(&mut encoded.sources);
        let launched = match room {
            Room::Arena(guard) if guard.device().is_some() => {
                let chain = self.chain.take();
                into_arena(
                    &self.hub,
                    encoded,
                    (gpu, stream),
                    (guard, self.place.offset),
                    &sources,
                    chain,
                )
            }
            room => aside(&self.hub, encoded, (gpu, stream), room, &sources),
        };
        match launched {
            Ok((room, mark)) => {
                encoded.time += began.elapsed();
                encoded.is_launched = true;
                if let Room::Encoding(encoding) = &room {
                    let _ = self.launched.set(encoding.parts().last().clone());
                }
                self.room = Some(room);
                self.hub.state().tally.launches.add(1);
                if self.hub.settings.check_codec {
                    self.check(gpu, stream, &sources)?;
                }
                sources.done(gpu, &mark);
                Ok(mark)
            }
            Err(refused) => {
                let (room, cause) = *refused;
                if encoded.plan().needs_gpu() {
                    self.room = Some(room);
                    return Err(cause.into());
                }
                gpu.coder_failed(&cause);
                self.hub.note_once(&format!(
                    "Regions are encoded on the host, because the GPU could not do it: {cause}"
                ));
                self.room = Some(room);
                if let Some(encoded) = &mut self.encoded {
                    encoded.sources = sources;
                }
                Err(Refused::Launch)
            }
        }
    }

    /// Brings all values to the host, where they are encoded at commit.
    pub(crate) fn download_all(&mut self, gpu: &Gpu, arrays: &[Given<'_>]) -> Result<(), Error> {
        let Some(encoded) = &mut self.encoded else { return Ok(()) };
        for (index, array, stream) in arrays {
            gpu::download(gpu, encoded.memory(*index)?, array, stream)?;
        }
        encoded.download(gpu, gpu.device().limit())
    }

    /// Looks at what was launched. A checkpoint that breaks its bound is not saved, whatever is
    /// called next.
    fn check(&mut self, gpu: &Gpu, stream: &Stream, sources: &Sources) -> Result<(), Refused> {
        let is_aside = !matches!(self.room, Some(Room::Encoding(_)));
        let looked = if is_aside {
            self.look_aside(gpu, stream, sources)
        } else {
            self.look(gpu, stream, sources)
        };
        if let (Err(_), Some(encoded)) = (&looked, &mut self.encoded) {
            encoded.is_violated = true;
        }
        looked
    }

    /// Decodes what went aside to main memory and compares every value.
    fn look_aside(&mut self, gpu: &Gpu, on: &Stream, sources: &Sources) -> Result<(), Refused> {
        let (Some(encoded), Some(room)) = (&self.encoded, &mut self.room) else { return Ok(()) };
        let Some(payload) = room.bytes() else { return Ok(()) };
        for (index, region) in encoded.plan().regions.iter().enumerate() {
            let Some(Some(source)) = sources.given.get(index) else { continue };
            let mut values = gpu::staged(&self.hub.buffers, region.bytes)?;
            raw::device_to_host(on, &mut values, &source.span, gpu.device().limit())?;
            let only_there = region.layout.as_ref().filter(|_| region.codec.needs_gpu());
            if let Some((layout, coders)) = only_there.zip(gpu.coders()) {
                // Only a GPU decodes it.
                let mut decoded = gpu::staged(&self.hub.buffers, region.bytes)?;
                through(gpu, coders, encoded.made_of(index, payload)?, layout, &mut decoded)?;
                let dtype = &region.spec.dtype;
                if let Some(found) = check::compare(dtype, &region.codec, &values, &decoded) {
                    let version = encoded.plan().version;
                    return Err(check::violated(version, &region.spec.name, &found).into());
                }
            } else {
                encoded.look(index, &values, payload)?;
            }
        }
        Ok(())
    }

    /// Waits for what was launched, decodes it and compares every value.
    fn look(&mut self, gpu: &Gpu, stream: &Stream, sources: &Sources) -> Result<(), Refused> {
        let version = self.frame.head().version;
        let (Some(encoded), Some(Room::Encoding(encoding))) = (&self.encoded, &self.room) else {
            return Ok(());
        };
        let limit = gpu.device().limit();
        let result =
            encoding.wait(limit).map_err(|cause| Error::from(cause.into_device_error()))?;
        for (index, region) in encoded.plan().regions.iter().enumerate() {
            let Some(layout) = region.layout.as_ref().filter(|_| is_promised(region)) else {
                continue;
            };
            let job = &result.result.jobs[index];
            let back = gpu.scratch(region.bytes, stream)?;
            let Some(coders) = gpu.coders() else { return Ok(()) };
            let back_span = back.span();
            let to = (layout, &back_span);
            encoding.decode(coders, stream, (&result, job), to)?.wait(limit)?;
            let mut values = gpu::staged(&self.hub.buffers, region.bytes)?;
            let mut decoded = gpu::staged(&self.hub.buffers, region.bytes)?;
            let Some(Some(source)) = sources.given.get(index) else { continue };
            raw::device_to_host(stream, &mut values, &source.span, limit)?;
            raw::device_to_host(stream, &mut decoded, &back.span(), limit)?;
            back.done(gpu, gpu.mark(stream)?);
            let (dtype, codec) = (&region.spec.dtype, &region.codec);
            if let Some(found) = check::compare(dtype, codec, &values, &decoded) {
                return Err(check::violated(version, &region.spec.name, &found).into());
            }
        }
        Ok(())
    }
}

impl Encoded {
    /// Takes the values of region `index`, in place where an encoder can read them there. What was
    /// given before stays.
    ///
    /// # Errors
    /// When CUDA refuses to copy them aside.
    pub(crate) fn give(
        &mut self,
        gpu: &Gpu,
        index: usize,
        (array, stream): (&DeviceArray, &Stream),
    ) -> Result<(), DeviceError> {
        if self.sources.has(index) {
            return Ok(());
        }
        let source = if stands_alone(self, index, array) {
            Source { span: array.span(gpu.context()), aside: None }
        } else {
            gather(gpu, array, stream)?
        };
        self.sources.put(index, source);
        Ok(())
    }

    /// Brings the values that were set aside to the host, each within `limit`: it encodes them from
    /// now on.
    ///
    /// # Errors
    /// When CUDA refuses, or there is no memory.
    pub(super) fn download(&mut self, gpu: &Gpu, limit: Duration) -> Result<(), Error> {
        self.on_host = true;
        let sources = std::mem::take(&mut self.sources);
        let stream = gpu.stream();
        for (index, source) in sources.given.into_iter().enumerate() {
            let Some(Source { span, aside: Some((memory, mark)) }) = source else { continue };
            stream.wait_for(&mark)?;
            raw::device_to_host(stream, self.memory(index)?, &span, limit)?;
            memory.done(gpu, gpu.mark(stream)?);
        }
        Ok(())
    }
}

/// Why a launch did not come to be.
enum Refused {
    /// The GPU does not take it: the host can do the same.
    Launch,
    /// The save ends with this.
    Final(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Final(error)
    }
}

impl From<DeviceError> for Refused {
    fn from(cause: DeviceError) -> Refused {
        Refused::Final(cause.into())
    }
}

/// Whether an encoder can read the array where it is.
fn stands_alone(encoded: &Encoded, index: usize, array: &DeviceArray) -> bool {
    let region = &encoded.plan().regions[index];
    let alignment = region.layout.as_ref().map_or(1, GpuLayout::alignment);
    array.is_dense() && array.address().is_multiple_of(alignment)
}

/// Copies the array aside, behind what is on `stream`.
fn gather(gpu: &Gpu, array: &DeviceArray, stream: &Stream) -> Result<Source, DeviceError> {
    let lent = gpu.scratch(array.bytes(), stream)?;
    array.gather(gpu.strided(), stream, &lent.span())?;
    let ready = gpu.device().mark(stream)?;
    Ok(Source::copied(lent, ready))
}

/// What an encoder is told, behind the copies that went before.
pub(crate) fn values(
    encoded: &Encoded,
    stream: &Stream,
    sources: &Sources,
    nothing: &DeviceSpan,
) -> Result<Vec<Values>, DeviceError> {
    let mut values = Vec::with_capacity(encoded.regions());
    for (index, region) in encoded.plan().regions.iter().enumerate() {
        let layout = region.layout.clone().unwrap_or(GpuLayout::Raw { bytes: region.bytes });
        let source = sources.given.get(index).and_then(Option::as_ref);
        if let Some((_, mark)) = source.and_then(|source| source.aside.as_ref()) {
            stream.wait_for(mark)?;
        }
        // A region without bytes was not given.
        let span = source.map_or_else(|| nothing.slice(0, 0), |source| Ok(source.span.clone()))?;
        values.push(Values { span, layout });
    }
    Ok(values)
}

type Begun = Result<(Room, Mark), Box<(Room, DeviceError)>>;

fn into_arena(
    hub: &Hub,
    encoded: &Encoded,
    (gpu, stream): (&Gpu, &Stream),
    (guard, offset): (WriteGuard, u64),
    sources: &Sources,
    chain: Option<Chain>,
) -> Begun {
    let found = gpu.coders().zip(guard.device().cloned());
    let Some((coders, room)) = found else { unreachable!("both were looked at") };
    let values = match values(encoded, stream, sources, &room) {
        Ok(values) => values,
        Err(cause) => return Err(Box::new((Room::Arena(guard), cause))),
    };
    let before = chain.as_ref().and_then(|chain| Some((chain.behind.get()?, chain.alignment)));
    let after = before.map_or(After::Nothing, |(last, align)| After::Earlier(last, align));
    let member = Member { guard, offset, values, after };
    let begin = || Encoding::begin(coders, stream, member);
    match hub.timed(encoded.watched(), (gpu, stream), begin) {
        Ok(encoding) => {
            let mark = encoding.parts().mark().clone();
            Ok((Room::Encoding(encoding), mark))
        }
        Err(refused) => {
            let (guard, cause) = *refused;
            Err(Box::new((Room::Arena(guard), cause)))
        }
    }
}

/// Encodes into memory of the device, waits for the size, and copies the exact bytes to `room`.
fn aside(
    hub: &Hub,
    encoded: &mut Encoded,
    on: (&Gpu, &Stream),
    mut room: Room,
    sources: &Sources,
) -> Begun {
    match encode_aside(hub, encoded, on, &mut room, sources) {
        Ok((mark, result)) => {
            encoded.set_made(result);
            Ok((room, mark))
        }
        Err(cause) => Err(Box::new((room, cause))),
    }
}

fn encode_aside(
    hub: &Hub,
    encoded: &mut Encoded,
    (gpu, stream): (&Gpu, &Stream),
    room: &mut Room,
    sources: &Sources,
) -> Result<(Mark, CheckpointResult), DeviceError> {
    let Some(coders) = gpu.coders() else { unreachable!("they were looked at") };
    let limit = gpu.device().limit();
    let lent = gpu.scratch(encoded.most(), stream)?;
    let values = values(encoded, stream, sources, &lent.span())?;
    let request = Request { values: &values, room: lent.span(), after: After::Nothing };
    let encode = || coders.encode(stream, &[request]);
    let mut all = hub.timed(encoded.watched(), (gpu, stream), encode)?;
    let Some(parts) = all.pop() else { unreachable!("one request gives one result") };
    let mark = parts.mark().clone();
    let result = parts.wait(limit).map_err(|error| error.into_device_error())?;
    let from = lent.span().slice(0, result.bytes)?;
    if let Some(to) = room.bytes() {
        raw::device_to_host(stream, &mut to[..result.bytes as usize], &from, limit)?;
    }
    lent.done(gpu, mark.clone());
    Ok((mark, result))
}

/// The error of a checkpoint that a GPU could not encode, for the call after it.
pub(crate) fn not_encoded(version: i64, cause: &DeviceError) -> Error {
    let message = format!(
        "Version {version} was not saved: the GPU could not encode what it was given after the \
         call had returned: {cause} Save again."
    );
    Error::new(ErrorKind::Device, message).caused_by(cause.clone())
}
