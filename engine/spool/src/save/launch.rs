//! Encoding on a GPU: the arrays of a checkpoint are gathered call by call, and with the last one
//! a single launch encodes all of them, straight into the arena where it is that GPU's, else into
//! memory aside from where the exact bytes are copied.

use std::sync::Arc;
use std::time::Instant;

use unspool_codec::Spec;
use unspool_cuda::{DeviceError, Fence, Stream, copy as raw};
use unspool_gpu_codec::{After, CheckpointResult, Request};

use super::SaveTicket;
use super::ticket::SaveState;
use crate::coding::{
    Encoded, Encoding, Given, Member, Planned, Room, Source, Sources, check, check_formats, gather,
    through,
};
use crate::error::Error;
use crate::gpu::{self, Gpu, Joined};
use crate::runtime::shared::Shared;
use crate::runtime::state::Grant;

impl SaveTicket {
    /// Takes arrays of a GPU into an encoded checkpoint. They may be changed by what is enqueued on
    /// their streams later.
    ///
    /// # Errors
    /// As [`SaveTicket::put`].
    pub(crate) fn put_encoded(&mut self, gpu: &Gpu, arrays: &[Given<'_>]) -> Result<(), Error> {
        for (index, array, _) in arrays {
            gpu::check_size(array.bytes(), self.grant.frame.head().regions[*index].bytes)?;
        }
        let joined = Joined::of(arrays.iter().map(|(_, _, stream)| *stream));
        joined.check()?;
        let SaveState::Coded { coded: (encoded, _), .. } = &mut self.state else {
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
        let mut named = vec![false; encoded.regions()];
        arrays.iter().for_each(|(index, ..)| named[*index] = true);
        let is_last = encoded.all(|index| named[index]);
        if !is_last {
            for &(index, array, stream) in arrays {
                encoded.gather(gpu, index, gather(gpu, array, stream)?);
            }
            return Ok(());
        }
        let Some(stream) = joined.begin(gpu)? else { return Ok(()) };
        encoded.give(gpu, stream, arrays)?;
        let fence = self.launch((gpu, stream), arrays)?;
        Ok(joined.end(gpu, fence.as_ref())?)
    }

    /// Launches what is there, where arrays of a GPU and of the host come together.
    ///
    /// # Errors
    /// `Device` when CUDA refuses.
    pub(crate) fn launch_rest(&mut self) -> Result<(), Error> {
        let SaveState::Coded { coded: (encoded, _), .. } = &mut self.state else { return Ok(()) };
        let gpu = match encoded.gathered() {
            Some((gpu, _)) => Some(gpu.clone()),
            // The host could not do it.
            None if encoded.may_launch() && encoded.plan().needs_gpu() => {
                self.shared.some_gpu().filter(|gpu| gpu.coders().is_some())
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
        self.launch((&gpu, stream), &[]).map(drop)
    }

    /// Enqueues the encoder of all regions on `stream`, and gives a fence after it; `None` where
    /// the GPU does not take them. Then the encoders of the host do it, and `arrays`, the last that
    /// were given, are brought there.
    fn launch(
        &mut self,
        (gpu, stream): (&Gpu, &Stream),
        arrays: &[Given<'_>],
    ) -> Result<Option<Fence>, Error> {
        let shared = Arc::clone(&self.shared);
        let launched = if self.state.is_on_device() {
            let launched = launch(&shared, (gpu, stream), &mut [self]);
            launched.map(|fence| (fence, self.take_sources()))
        } else {
            self.launch_aside(gpu, stream)
        };
        let (fence, sources) = match launched {
            Ok(launched) => launched,
            Err(cause) => {
                self.leave_to_host(gpu, cause)?;
                return self.download_all(gpu, arrays).map(|()| None);
            }
        };
        shared.state().counters.launches.add(1);
        if shared.settings.check_codec {
            self.check(gpu, stream, &sources)?;
        }
        sources.done(gpu, &fence);
        Ok(Some(fence))
    }

    /// Notes that the host encodes what the GPU does not take because of `cause`.
    ///
    /// # Errors
    /// That cause, where the host cannot: the save ends with it.
    fn leave_to_host(&mut self, gpu: &Gpu, cause: DeviceError) -> Result<(), Error> {
        let SaveState::Coded { room, coded: (encoded, _) } = &mut self.state else {
            return Err(cause.into());
        };
        if encoded.plan().needs_gpu() || room.is_lost() {
            drop(encoded.take_gathered());
            return Err(cause.into());
        }
        gpu.coder_failed(&cause);
        note_on_host(&self.shared, &cause);
        Ok(())
    }

    /// Takes it out of the ticket as a member of a launch; `None` when its room is not an arena.
    fn take_member(&mut self) -> Option<Member> {
        match self.state.take() {
            SaveState::Coded { room: Room::Arena(guard), coded: (encoded, after) } => {
                let Grant { request, place, .. } = self.grant;
                Some(Member { guard, offset: place.offset, request, encoded, after })
            }
            other => {
                self.state = other;
                None
            }
        }
    }

    fn put_back(&mut self, member: Member) {
        let Member { guard, encoded, after, .. } = member;
        self.state = SaveState::Coded { room: Room::Arena(guard), coded: (encoded, after) };
    }

    /// The values that an encoder in flight reads.
    pub(super) fn take_sources(&mut self) -> Sources {
        let SaveState::InFlight(encoding) = &mut self.state else { return Sources::default() };
        encoding.encoded.take_gathered().map(|(_, sources)| sources).unwrap_or_default()
    }

    /// Encodes into memory of the device, waits for the size, and copies the exact bytes to the
    /// room. Gives the fence after that, and what was read.
    fn launch_aside(&mut self, gpu: &Gpu, on: &Stream) -> Result<(Fence, Sources), DeviceError> {
        let began = Instant::now();
        let SaveState::Coded { room, coded: (encoded, _) } = &mut self.state else {
            unreachable!("a save is launched once")
        };
        let (fence, result) = encode_aside(&self.shared, encoded, (gpu, on), room)?;
        encoded.time += began.elapsed();
        Ok((fence, encoded.set_made(result)))
    }

    /// Brings all values to the host, where they are encoded at commit.
    pub(crate) fn download_all(&mut self, gpu: &Gpu, arrays: &[Given<'_>]) -> Result<(), Error> {
        let SaveState::Coded { coded: (encoded, _), .. } = &mut self.state else { return Ok(()) };
        for (index, array, stream) in arrays {
            gpu::download(gpu, encoded.memory(*index)?, array, stream)?;
        }
        encoded.download(gpu, gpu.device().limit())
    }

    /// Looks at what was launched. A checkpoint that breaks its bound is given up, whatever is
    /// called next.
    fn check(&mut self, gpu: &Gpu, stream: &Stream, sources: &Sources) -> Result<(), Error> {
        let looked = match &self.state {
            SaveState::InFlight(_) => self.look(gpu, stream, sources),
            _ => self.look_aside(gpu, stream, sources),
        };
        if looked.is_err() {
            self.give_up();
            self.state = SaveState::Violated;
        }
        looked
    }

    /// Decodes what went aside to main memory and compares every value.
    fn look_aside(&mut self, gpu: &Gpu, on: &Stream, sources: &Sources) -> Result<(), Error> {
        let SaveState::Coded { room, coded: (encoded, _) } = &mut self.state else { return Ok(()) };
        let Some(payload) = room.bytes() else { return Ok(()) };
        for (index, region) in encoded.plan().regions.iter().enumerate() {
            let Some(Some(source)) = sources.given.get(index) else { continue };
            let mut values = gpu::staged(&self.shared.buffers, region.bytes)?;
            raw::device_to_host(on, &mut values, source.items.span(), gpu.device().limit())?;
            let only_there = region.layout.as_ref().filter(|_| region.codec.needs_gpu());
            if let Some((layout, coders)) = only_there.zip(gpu.coders()) {
                // Only a GPU decodes it.
                let mut decoded = gpu::staged(&self.shared.buffers, region.bytes)?;
                through(gpu, coders, encoded.made_of(index, payload)?, layout, &mut decoded)?;
                check(encoded.plan().version, region, &values, &decoded)?;
            } else {
                encoded.look(index, &values, payload)?;
            }
        }
        Ok(())
    }

    /// Waits for what was launched, decodes it and compares every value.
    fn look(&mut self, gpu: &Gpu, stream: &Stream, sources: &Sources) -> Result<(), Error> {
        let version = self.version();
        let SaveState::InFlight(encoding) = &self.state else { return Ok(()) };
        let limit = gpu.device().limit();
        let result =
            encoding.wait(limit).map_err(|cause| Error::from(cause.into_device_error()))?;
        for (index, region) in encoding.encoded.plan().regions.iter().enumerate() {
            let Some(layout) = region.layout.as_ref().filter(|_| is_promised(region)) else {
                continue;
            };
            let job = &result.result.jobs[index];
            let back = gpu.scratch(region.bytes, stream)?;
            let Some(coders) = gpu.coders() else { return Ok(()) };
            let back_items = back.span().into();
            let to = (layout, &back_items);
            encoding.decode(coders, stream, (&result, job), to)?.wait(limit)?;
            let mut values = gpu::staged(&self.shared.buffers, region.bytes)?;
            let mut decoded = gpu::staged(&self.shared.buffers, region.bytes)?;
            let Some(Some(source)) = sources.given.get(index) else { continue };
            raw::device_to_host(stream, &mut values, source.items.span(), limit)?;
            raw::device_to_host(stream, &mut decoded, &back.span(), limit)?;
            back.done(gpu, gpu.fence(stream)?);
            check(version, region, &values, &decoded)?;
        }
        Ok(())
    }
}

/// Notes that the host encodes what the GPU does not take.
pub(super) fn note_on_host(shared: &Shared, cause: &DeviceError) {
    shared.note_once(&format!(
        "Regions are encoded on the host, because the GPU could not do it: {cause}"
    ));
}

/// Enqueues one encoder on `stream` for all of `saves`, whose values are on the device and whose
/// rooms are in its arena. Gives a fence after it.
///
/// # Errors
/// When it cannot be enqueued: nothing is on its way, and the saves are as they were.
pub(super) fn launch(
    shared: &Shared,
    (gpu, stream): (&Gpu, &Stream),
    saves: &mut [&mut SaveTicket],
) -> Result<Fence, DeviceError> {
    let began = Instant::now();
    let members: Vec<_> = saves.iter_mut().filter_map(|save| save.take_member()).collect();
    let watched = members.iter().find_map(|member| member.encoded.watched());
    let begin = || Encoding::begin(gpu.own_coders(), stream, members);
    let encodings = match shared.timed(watched, (gpu, stream), begin) {
        Ok(encodings) => encodings,
        Err(refused) => {
            let (members, cause) = *refused;
            saves.iter_mut().zip(members).for_each(|(save, member)| save.put_back(member));
            return Err(cause);
        }
    };
    let Some(fence) = encodings.last().map(|last| last.parts().fence().clone()) else {
        unreachable!("nothing is launched without a save")
    };
    let time = began.elapsed() / saves.len() as u32;
    for (save, mut encoding) in saves.iter_mut().zip(encodings) {
        encoding.encoded.time += time;
        let _ = save.grant.launched.set(encoding.parts().last().clone());
        save.state = SaveState::InFlight(encoding);
    }
    Ok(fence)
}

fn encode_aside(
    shared: &Shared,
    encoded: &Encoded,
    (gpu, stream): (&Gpu, &Stream),
    room: &mut Room,
) -> Result<(Fence, CheckpointResult), DeviceError> {
    let limit = gpu.device().limit();
    let lease = gpu.scratch(encoded.most(), stream)?;
    let mut values = Vec::with_capacity(encoded.regions());
    encoded.values(stream, &lease.span(), &mut values)?;
    let request = Request { values: &values, room: lease.span(), after: After::Nothing };
    let encode = || gpu.own_coders().encode(stream, &[request]);
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
