//! Regions that a GPU decodes into arrays of its own, as many as possible by one launch.

use std::time::Instant;

use unspool_codec::{CodecId, Region};
use unspool_cuda::{DeviceError, DeviceSpan};
use unspool_gpu_codec::{DecodeStatus, GpuCodecs, GpuLayout, Items};

use super::RestoreTicket;
use super::decoded::not_decoded;
use crate::coding::{Decoding, Given, Watched};
use crate::error::Error;
use crate::gpu::{
    self, Data, DeviceArray, Direction, Gpu, Joined, Part, ScratchLease, Stream, UNIT, part,
};

/// The most bytes of memory aside, about, for regions that are decoded together.
const ASIDE: u64 = 128 << 20;

/// A region that a GPU decodes.
struct There<'a> {
    region: &'a Region,
    layout: GpuLayout,
    to: &'a DeviceArray,
    /// Its items, if the decoder can write them itself.
    items: Option<Items>,
}

impl RestoreTicket {
    /// Decodes regions into arrays of a GPU, after what is on their streams: on that GPU where it
    /// can, and then the host does not wait.
    ///
    /// # Errors
    /// As [`RestoreTicket::get`].
    pub(super) fn get_decoded(&mut self, gpu: &Gpu, arrays: &[Given<'_>]) -> Result<(), Error> {
        for (index, array, _) in arrays {
            gpu::check_size(array.bytes(), self.head().regions[*index].bytes)?;
        }
        let joined = Joined::of(arrays.iter().map(|(_, _, stream)| *stream));
        joined.check()?;
        let Some(on) = joined.begin(gpu)? else { return Ok(()) };
        let done = self.decode_all(gpu, on, arrays);
        // Also what failed half way may have enqueued work.
        joined.end_of(gpu, on)?;
        done
    }

    fn decode_all(&mut self, gpu: &Gpu, on: &Stream, arrays: &[Given<'_>]) -> Result<(), Error> {
        let frame = self.served.frame.clone();
        let (mut there, mut here) = (Vec::new(), Vec::new());
        for &(index, to, _) in arrays {
            match self.on_gpu(index).filter(|_| gpu.coders().is_some()) {
                Some(layout) => {
                    let items = gpu::to_write(gpu.context(), &layout, to);
                    let region = &frame.head().regions[index];
                    there.push((index, There { region, layout, to, items }));
                }
                None => here.push((index, to)),
            }
        }
        let (indices, there): (Vec<_>, Vec<_>) = there.into_iter().unzip();
        let mut rest = &there[..];
        while let Some(coders) = gpu.coders().filter(|_| !rest.is_empty()) {
            let (some, others) = rest.split_at(self.together(rest));
            match self.decode_some(coders, (gpu, on), some) {
                Ok(status) => self.follow(some, gpu, status)?,
                Err(cause) => {
                    if let Some(one) = some.iter().find(|one| one.region.codec.needs_gpu()) {
                        return Err(not_decoded(self.version(), &one.region.name, cause));
                    }
                    // The decoders of the host do it.
                    gpu.coder_failed(&cause);
                    break;
                }
            }
            rest = others;
        }
        let left = indices.into_iter().zip(&there).skip(there.len() - rest.len());
        here.extend(left.map(|(index, one)| (index, one.to)));
        for (index, to) in here {
            gpu::upload(gpu, &self.decode_aside(index)?, to, on)?;
        }
        Ok(())
    }

    /// How many of the first regions are decoded together, at least 1.
    fn together(&self, all: &[There<'_>]) -> usize {
        let is_on_device = self.state.data().is_some_and(Data::is_on_device);
        let mut bytes = 0;
        let fits = |one: &&There<'_>| {
            bytes += if is_on_device { 0 } else { one.region.stored };
            bytes += if one.items.is_some() { 0 } else { one.region.bytes };
            bytes <= ASIDE
        };
        all.iter().take_while(fits).count().max(1)
    }

    /// Enqueues all that decodes these regions.
    fn decode_some(
        &mut self,
        coders: &GpuCodecs,
        (gpu, on): (&Gpu, &Stream),
        all: &[There<'_>],
    ) -> Result<DecodeStatus, DeviceError> {
        let began = Instant::now();
        let enqueued = self.enqueue(coders, (gpu, on), all);
        // Also what failed half way may have enqueued work.
        if let Some(Data::Arena(guard)) = self.state.data_mut() {
            guard.leave(on)?;
        }
        let (status, leases) = enqueued?;
        for lease in leases.into_iter().flatten() {
            lease.done(gpu, gpu.device().fence(on)?);
        }
        self.count_enqueued(all, began);
        Ok(status)
    }

    /// Enqueues the decoder, and the copies to arrays that it cannot write; gives the memory that
    /// they use.
    fn enqueue(
        &self,
        coders: &GpuCodecs,
        (gpu, on): (&Gpu, &Stream),
        all: &[There<'_>],
    ) -> Result<(DecodeStatus, [Option<ScratchLease>; 2]), DeviceError> {
        let (streams, sent) = self.streams((gpu, on), all)?;
        let (targets, values) = targets((gpu, on), all)?;
        let jobs = streams.into_iter().zip(all).zip(&targets);
        let jobs = jobs.map(|((from, one), to)| (from, one.layout.clone(), to.clone()));
        let jobs: Vec<_> = jobs.collect();
        let decode = || coders.decode_all(on, &jobs);
        let status = self.served.shared.timed(self.watched(all), (gpu, on), decode)?;
        let aside = targets.iter().zip(all).filter(|(_, one)| one.items.is_none());
        let aside: Vec<_> = aside.map(|(from, one)| (from.span().clone(), one.to)).collect();
        gpu::copy_all(gpu, on, &aside, Direction::Scatter)?;
        Ok((status, [sent, values]))
    }

    /// The encoded bytes of regions in memory of the device: in the arena, or sent there, those
    /// that lie side by side by one copy.
    fn streams(
        &self,
        (gpu, on): (&Gpu, &Stream),
        all: &[There<'_>],
    ) -> Result<(Vec<DeviceSpan>, Option<ScratchLease>), DeviceError> {
        let parts: Vec<Part> = all.iter().map(|one| part(one.region)).collect();
        if let Some(Data::Arena(guard)) = self.state.data()
            && let Some(span) = guard.device()
        {
            guard.order(on)?;
            let streams = parts.iter().map(|part| span.slice(part.offset, part.len));
            return Ok((streams.collect::<Result<_, _>>()?, None));
        }
        let bytes = parts.iter().map(|part| part.len.next_multiple_of(UNIT)).sum();
        let lease = gpu.scratch(bytes, on)?;
        let (mut streams, mut at) = (Vec::with_capacity(all.len()), 0);
        for run in parts.chunk_by(|one, next| one.meets(*next)) {
            let whole = Part::whole(run[0], run[run.len() - 1]);
            let to = lease.span().slice(at, whole.len)?;
            gpu::send(gpu, self.state.data(), whole, &to, on)?;
            for part in run {
                streams.push(to.slice(part.offset - whole.offset, part.len)?);
            }
            at += whole.len.next_multiple_of(UNIT);
        }
        Ok((streams, Some(lease)))
    }

    /// Whose time is taken when a GPU decodes these regions.
    fn watched(&self, all: &[There<'_>]) -> Option<Watched> {
        let is_timed = all.iter().all(|one| one.region.codec == CodecId::Twine)
            && self.served.shared.state().counters.experience.times_decoder();
        let bytes = all.iter().map(|one| one.region.bytes).sum();
        is_timed.then_some(Watched { bytes, is_decoder: true })
    }

    /// The decoders of these regions were enqueued.
    fn count_enqueued(&self, all: &[There<'_>], began: Instant) {
        let time = began.elapsed() / all.len() as u32;
        let mut state = self.served.shared.state();
        all.iter().for_each(|one| state.counters.codecs.decoded(one.region.codec, time));
    }

    /// Remembers what is being decoded; with a check it is waited for.
    fn follow(&self, all: &[There<'_>], gpu: &Gpu, status: DecodeStatus) -> Result<(), Error> {
        let names: Vec<&str> = all.iter().map(|one| one.region.name.as_str()).collect();
        let decoding = Decoding::new(self.version(), &names, status);
        let limit = gpu.device().limit();
        if self.served.shared.settings.check_codec {
            return decoding.wait(limit);
        }
        self.served.shared.decoding.follow(decoding, limit)
    }
}

/// Where the decoder writes the values of regions: the arrays, or memory aside.
fn targets(
    (gpu, on): (&Gpu, &Stream),
    all: &[There<'_>],
) -> Result<(Vec<Items>, Option<ScratchLease>), DeviceError> {
    let aside = all.iter().filter(|one| one.items.is_none());
    let bytes = aside.map(|one| one.region.bytes.next_multiple_of(UNIT)).sum();
    let lease = if bytes == 0 { None } else { Some(gpu.scratch(bytes, on)?) };
    let mut at = 0;
    let target = |one: &There<'_>| match (&one.items, &lease) {
        (None, Some(lease)) => {
            let here = lease.span().slice(at, one.region.bytes);
            at += one.region.bytes.next_multiple_of(UNIT);
            here.map(Items::from)
        }
        (items, _) => Ok(items.clone().unwrap_or_else(|| one.to.span(gpu.context()).into())),
    };
    let targets = all.iter().map(target).collect::<Result<_, _>>()?;
    Ok((targets, lease))
}
