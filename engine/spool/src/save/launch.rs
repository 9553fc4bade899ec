//! Encoding on a GPU: the arrays of a checkpoint are gathered call by call, and with the last one
//! a single launch encodes all of them, straight into the arena where it is that GPU's, else into
//! memory aside from where the exact bytes are copied.

use std::sync::Arc;
use std::time::Instant;

use unspool_codec::Spec;
use unspool_cuda::{DeviceError, Fence, Stream, copy as raw};
use unspool_gpu_codec::{After, CheckpointResult, Request};
use unspool_tiers::WriteGuard;

use super::SaveTicket;
use super::state::SaveState;
use crate::coding::{
    Encoded, Encoding, Given, Member, Planned, Predecessor, Room, Source, Sources, check,
    check_formats, gather, through, values,
};
use crate::error::Error;
use crate::gpu::{self, Gpu};
use crate::runtime::shared::Shared;

impl SaveTicket {
    /// Takes arrays of a GPU into an encoded checkpoint. They may be changed by what is enqueued on
    /// their streams later.
    ///
    /// # Errors
    /// As [`SaveTicket::put`].
    pub(crate) fn put_encoded(&mut self, gpu: &Gpu, arrays: &[Given<'_>]) -> Result<(), Error> {
        for (index, array, stream) in arrays {
            gpu::check_size(array.bytes(), self.grant.frame.head().regions[*index].bytes)?;
            gpu::check_stream(stream)?;
        }
        let SaveState::Coded { encoded, .. } = &mut self.state else {
            // Nothing is left to give but arrays without bytes.
            return arrays.iter().try_for_each(|(index, ..)| self.check_nothing_is_missing(*index));
        };
        check_formats(gpu, encoded.plan())?;
        if encoded.is_made() {
            return arrays.iter().try_for_each(|(index, ..)| encoded.check_nothing(*index));
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
                encoded.gather(gpu, index, gather(gpu, array, stream)?);
            }
        }
        if !is_last {
            return Ok(());
        }
        let Some((_, _, stream)) = arrays.last() else { return Ok(()) };
        for (_, _, other) in arrays.iter().filter(|(_, _, s)| s.handle() != stream.handle()) {
            let ready = gpu.fence(other)?;
            stream.wait_for(&ready)?;
        }
        match self.launch(gpu, stream) {
            Ok(fence) => {
                let mut others = arrays.iter().filter(|(_, _, s)| s.handle() != stream.handle());
                others.try_for_each(|(_, _, other)| other.wait_for(&fence))?;
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
        let SaveState::Coded { encoded, .. } = &mut self.state else { return Ok(()) };
        let gpu = match encoded.gathered() {
            Some((gpu, _)) => Some(gpu.clone()),
            // The host could not do it.
            None if encoded.may_launch() && encoded.plan().needs_gpu() => {
                self.grant.shared.some_gpu().filter(|gpu| gpu.coders().is_some())
            }
            None => None,
        };
        let Some(gpu) = gpu else { return Ok(()) };
        check_formats(&gpu, encoded.plan())?;
        let stream = gpu.stream();
        for index in 0..encoded.regions() {
            if encoded.has(index) || encoded.bytes_of(index) == 0 {
                continue;
            }
            let lease = gpu.scratch(encoded.bytes_of(index), stream)?;
            let bytes = encoded.memory(index)?;
            raw::host_to_device(stream, &lease.span(), bytes, gpu.device().limit())?;
            let ready = gpu.fence(stream)?;
            encoded.gather(&gpu, index, Source::copied(lease, ready));
        }
        match self.launch(&gpu, stream) {
            Ok(_) => Ok(()),
            Err(Refused::Final(error)) => Err(error),
            Err(Refused::Launch) => self.download_all(&gpu, &[]),
        }
    }

    /// Enqueues the encoder of all regions on `stream`.
    fn launch(&mut self, gpu: &Gpu, stream: &Stream) -> Result<Fence, Refused> {
        let began = Instant::now();
        let state = std::mem::replace(&mut self.state, SaveState::Over);
        let SaveState::Coded { room, mut encoded, after } = state else {
            self.state = state;
            return Err(Refused::Launch);
        };
        let (_, sources) = encoded.take_gathered().unwrap_or((gpu.clone(), Sources::default()));
        let shared = Arc::clone(&self.grant.shared);
        let launched = match room {
            Room::Arena(guard) if guard.device().is_some() => {
                let to = (guard, self.grant.place.offset);
                into_arena(&shared, &encoded, (gpu, stream), to, &sources, after.as_ref())
            }
            room => aside(&shared, &encoded, (gpu, stream), room, &sources),
        };
        match launched {
            Ok((launched, fence)) => {
                encoded.time += began.elapsed();
                self.launched(launched, encoded);
                shared.state().counters.launches.add(1);
                if shared.settings.check_codec {
                    self.check(gpu, stream, &sources)?;
                }
                sources.done(gpu, &fence);
                Ok(fence)
            }
            Err(refused) => {
                let (room, cause) = *refused;
                let ends = encoded.plan().needs_gpu() || room.is_lost();
                if !ends {
                    encoded.put_back(gpu, sources);
                }
                self.state = SaveState::Coded { room, encoded, after };
                if ends {
                    return Err(cause.into());
                }
                gpu.coder_failed(&cause);
                shared.note_once(&format!(
                    "Regions are encoded on the host, because the GPU could not do it: {cause}"
                ));
                Err(Refused::Launch)
            }
        }
    }

    /// The state after a launch.
    pub(super) fn launched(&mut self, launched: LaunchedTo, mut encoded: Box<Encoded>) {
        self.state = match launched {
            LaunchedTo::Arena(encoding) => {
                let _ = self.grant.launched.set(encoding.parts().last().clone());
                SaveState::InFlight { encoding, encoded }
            }
            LaunchedTo::Aside(room, result) => {
                encoded.set_made(result);
                SaveState::Coded { room, encoded, after: None }
            }
        };
    }

    /// Brings all values to the host, where they are encoded at commit.
    pub(crate) fn download_all(&mut self, gpu: &Gpu, arrays: &[Given<'_>]) -> Result<(), Error> {
        let SaveState::Coded { encoded, .. } = &mut self.state else { return Ok(()) };
        for (index, array, stream) in arrays {
            gpu::download(gpu, encoded.memory(*index)?, array, stream)?;
        }
        encoded.download(gpu, gpu.device().limit())
    }

    /// Looks at what was launched. A checkpoint that breaks its bound is given up, whatever is
    /// called next.
    fn check(&mut self, gpu: &Gpu, stream: &Stream, sources: &Sources) -> Result<(), Refused> {
        let looked = match &self.state {
            SaveState::InFlight { .. } => self.look(gpu, stream, sources),
            _ => self.look_aside(gpu, stream, sources),
        };
        if looked.is_err() {
            if let Some(room) = self.state.take_room() {
                self.grant.give_up(room);
            }
            // The error is that of the check.
            let _ = self.leave_to_completion(true);
            self.state = SaveState::Violated;
        }
        looked
    }

    /// Decodes what went aside to main memory and compares every value.
    fn look_aside(&mut self, gpu: &Gpu, on: &Stream, sources: &Sources) -> Result<(), Refused> {
        let SaveState::Coded { room, encoded, .. } = &mut self.state else { return Ok(()) };
        let Some(payload) = room.bytes() else { return Ok(()) };
        for (index, region) in encoded.plan().regions.iter().enumerate() {
            let Some(Some(source)) = sources.given.get(index) else { continue };
            let mut values = gpu::staged(&self.grant.shared.buffers, region.bytes)?;
            raw::device_to_host(on, &mut values, &source.span, gpu.device().limit())?;
            let only_there = region.layout.as_ref().filter(|_| region.codec.needs_gpu());
            if let Some((layout, coders)) = only_there.zip(gpu.coders()) {
                // Only a GPU decodes it.
                let mut decoded = gpu::staged(&self.grant.shared.buffers, region.bytes)?;
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
        let version = self.version();
        let SaveState::InFlight { encoding, encoded } = &self.state else { return Ok(()) };
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
            let mut values = gpu::staged(&self.grant.shared.buffers, region.bytes)?;
            let mut decoded = gpu::staged(&self.grant.shared.buffers, region.bytes)?;
            let Some(Some(source)) = sources.given.get(index) else { continue };
            raw::device_to_host(stream, &mut values, &source.span, limit)?;
            raw::device_to_host(stream, &mut decoded, &back.span(), limit)?;
            back.done(gpu, gpu.fence(stream)?);
            let (dtype, codec) = (&region.spec.dtype, &region.codec);
            if let Some(found) = check::compare(dtype, codec, &values, &decoded) {
                return Err(check::violated(version, &region.spec.name, &found).into());
            }
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

/// Where a launch encodes to.
pub(super) enum LaunchedTo {
    /// The arena, later.
    Arena(Encoding),
    /// Memory aside, from where the bytes are in the room by now.
    Aside(Room, CheckpointResult),
}

/// What was launched, and the fence after it; or the room, and why nothing was.
type Launch = Result<(LaunchedTo, Fence), Box<(Room, DeviceError)>>;

fn into_arena(
    shared: &Shared,
    encoded: &Encoded,
    (gpu, stream): (&Gpu, &Stream),
    (guard, offset): (WriteGuard, u64),
    sources: &Sources,
    predecessor: Option<&Predecessor>,
) -> Launch {
    let found = gpu.coders().zip(guard.device().cloned());
    let Some((coders, room)) = found else { unreachable!("both were looked at") };
    let values = match values(encoded, stream, sources, &room) {
        Ok(values) => values,
        Err(cause) => return Err(Box::new((Room::Arena(guard), cause))),
    };
    let before = predecessor.and_then(|before| Some((before.end.get()?, before.alignment)));
    let after = before.map_or(After::Nothing, |(last, align)| After::Earlier(last, align));
    let member = Member { guard, offset, values, after };
    let begin = || Encoding::begin(coders, stream, member);
    match shared.timed(encoded.watched(), (gpu, stream), begin) {
        Ok(encoding) => {
            let fence = encoding.parts().fence().clone();
            Ok((LaunchedTo::Arena(encoding), fence))
        }
        Err(refused) => {
            let (guard, cause) = *refused;
            Err(Box::new((Room::Arena(guard), cause)))
        }
    }
}

/// Encodes into memory of the device, waits for the size, and copies the exact bytes to `room`.
fn aside(
    shared: &Shared,
    encoded: &Encoded,
    on: (&Gpu, &Stream),
    mut room: Room,
    sources: &Sources,
) -> Launch {
    match encode_aside(shared, encoded, on, &mut room, sources) {
        Ok((fence, result)) => Ok((LaunchedTo::Aside(room, result), fence)),
        Err(cause) => Err(Box::new((room, cause))),
    }
}

fn encode_aside(
    shared: &Shared,
    encoded: &Encoded,
    (gpu, stream): (&Gpu, &Stream),
    room: &mut Room,
    sources: &Sources,
) -> Result<(Fence, CheckpointResult), DeviceError> {
    let Some(coders) = gpu.coders() else { unreachable!("they were looked at") };
    let limit = gpu.device().limit();
    let lease = gpu.scratch(encoded.most(), stream)?;
    let values = values(encoded, stream, sources, &lease.span())?;
    let request = Request { values: &values, room: lease.span(), after: After::Nothing };
    let encode = || coders.encode(stream, &[request]);
    let mut all = shared.timed(encoded.watched(), (gpu, stream), encode)?;
    let Some(parts) = all.pop() else { unreachable!("one request gives one result") };
    let fence = parts.fence().clone();
    let result = parts.wait(limit).map_err(|error| error.into_device_error())?;
    let from = lease.span().slice(0, result.bytes)?;
    match room {
        Room::Arena(guard) => gpu::bring(gpu, guard, &from, stream)?,
        Room::Staged(to) => {
            raw::device_to_host(stream, &mut to[..result.bytes as usize], &from, limit)?;
        }
    }
    lease.done(gpu, fence.clone());
    Ok((fence, result))
}

/// Whether its codec promises anything of the values.
fn is_promised(region: &Planned) -> bool {
    !matches!(region.codec, Spec::Raw | Spec::Zfp(_))
}
