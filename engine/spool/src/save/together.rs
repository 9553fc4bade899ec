//! Several checkpoints by one call of an encoder, on the GPU under the spool.

use std::time::Instant;

use unspool_codec::CodecId;
use unspool_core::RequestId;
use unspool_cuda::{DeviceError, DeviceSpan, Fence, Stream};
use unspool_gpu_codec::{After, Values};
use unspool_tiers::WriteGuard;

use super::SaveTicket;
use super::launch::LaunchedTo;
use super::many::Entered;
use super::state::SaveState;
use crate::coding::{Encoded, Encoding, EncodingPlan, Member, Predecessor, Room, values};
use crate::gpu::Gpu;

/// The most regions of one launch.
pub(crate) const MOST_REGIONS: usize = 4096;

/// The codec that encodes all regions of `plan` on a GPU; `None` where nothing is gained by
/// encoding them with others, and for what the run measures, which has its own call. Twine takes
/// the bytes that are kept as they are as well.
pub(crate) fn together(plan: &EncodingPlan) -> Option<CodecId> {
    if plan.auto.is_some_and(|picked| picked.is_timed) {
        return None;
    }
    let mut all = plan.regions.iter().map(|region| match region.layout.as_ref()?.id() {
        CodecId::Raw | CodecId::Twine => Some(CodecId::Twine),
        CodecId::Zfp => None,
        other => Some(other),
    });
    let first = all.next()??;
    all.all(|other| other == Some(first)).then_some(first)
}

/// Enqueues one encoder for all of `group`, which afterwards hold what is under way.
///
/// # Errors
/// When it cannot be enqueued: nothing is on its way, and the group is as it was.
pub(super) fn launch(gpu: &Gpu, group: &mut [Entered<'_>]) -> Result<(), DeviceError> {
    let began = Instant::now();
    let streams = streams(group);
    let Some((stream, others)) = streams.split_last() else { return Ok(()) };
    for one in group.iter_mut() {
        gather(gpu, one)?;
    }
    wait_for_all(gpu, stream, others)?;
    let (guards, coded): (Vec<_>, Vec<_>) =
        group.iter_mut().filter_map(|one| take(&mut one.ticket)).unzip();
    let begun = match sources(stream, &coded, &guards) {
        Ok(values) => {
            let members = members(group, &coded, guards, values);
            Encoding::begin_all(gpu.own_coders(), stream, members)
        }
        Err(cause) => Err(Box::new((guards, cause))),
    };
    let encodings = match begun {
        Ok(encodings) => encodings,
        Err(refused) => {
            let (guards, cause) = *refused;
            for ((one, guard), (encoded, after)) in group.iter_mut().zip(guards).zip(coded) {
                one.ticket.state = SaveState::Coded { room: Room::Arena(guard), encoded, after };
            }
            return Err(cause);
        }
    };
    let time = began.elapsed() / group.len().max(1) as u32;
    let fence = encodings.last().map(|last| last.parts().fence().clone());
    for ((one, encoding), (mut encoded, _)) in group.iter_mut().zip(encodings).zip(coded) {
        encoded.time += time;
        if let Some((_, sources)) = encoded.take_gathered() {
            sources.done(gpu, encoding.parts().fence());
        }
        one.ticket.launched(LaunchedTo::Arena(encoding), encoded);
    }
    if let Some(fence) = fence {
        // A device that fails here fails its encoder too, and the completion thread reports that.
        let _ = others.iter().try_for_each(|other| follow(gpu, other, &fence));
    }
    Ok(())
}

/// Lets what is enqueued on `stream` later wait for what is on `others` now.
pub(super) fn wait_for_all(
    gpu: &Gpu,
    stream: &Stream,
    others: &[&Stream],
) -> Result<(), DeviceError> {
    for other in others {
        let ready = gpu.device().fence(other)?;
        stream.wait_for(&ready)?;
    }
    Ok(())
}

/// Lets `stream` go on only after `fence`: what is enqueued there later may change the arrays.
///
/// # Errors
/// When it may go on before that.
pub(super) fn follow(gpu: &Gpu, stream: &Stream, fence: &Fence) -> Result<(), DeviceError> {
    stream.wait_for(fence).or_else(|_| fence.wait(gpu.device().limit()))
}

/// The streams of all arrays, each once; the last one is that of the last array.
pub(super) fn streams<'c>(group: &[Entered<'c>]) -> Vec<&'c Stream> {
    let mut found: Vec<&Stream> = Vec::new();
    for (_, _, stream) in group.iter().flat_map(|one| one.checkpoint.arrays()) {
        if found.last().is_some_and(|last| last.handle() == stream.handle()) {
            continue;
        }
        found.retain(|known| known.handle() != stream.handle());
        found.push(stream);
    }
    found
}

/// Copies aside what the encoder cannot read in place.
fn gather(gpu: &Gpu, one: &mut Entered<'_>) -> Result<(), DeviceError> {
    let SaveState::Coded { encoded, .. } = &mut one.ticket.state else { return Ok(()) };
    for (index, array, stream) in one.checkpoint.arrays() {
        encoded.give(gpu, index, (array, stream))?;
    }
    Ok(())
}

/// A checkpoint without its room: its encoders, and the save after which it may be placed.
type Coded = (Box<Encoded>, Option<Predecessor>);

/// Takes a checkpoint and its room in an arena out of `ticket`.
fn take(ticket: &mut SaveTicket) -> Option<(WriteGuard, Coded)> {
    match std::mem::replace(&mut ticket.state, SaveState::Over) {
        SaveState::Coded { room: Room::Arena(guard), encoded, after } => {
            Some((guard, (encoded, after)))
        }
        other => {
            ticket.state = other;
            None
        }
    }
}

/// The values of each, after the copies that were made aside.
fn sources(
    stream: &Stream,
    all: &[Coded],
    rooms: &[WriteGuard],
) -> Result<Vec<Vec<Values>>, DeviceError> {
    let each = all.iter().zip(rooms).map(|((encoded, _), guard)| {
        let found = encoded.gathered().zip(guard.device());
        let Some(((_, sources), nothing)): Option<(_, &DeviceSpan)> = found else {
            unreachable!("what is encoded together has values and room on a device")
        };
        values(encoded, stream, sources, nothing)
    });
    each.collect()
}

fn members<'a>(
    group: &[Entered<'_>],
    all: &'a [Coded],
    guards: Vec<WriteGuard>,
    values: Vec<Vec<Values>>,
) -> Vec<Member<'a>> {
    let mut before = None;
    let mut members = Vec::with_capacity(all.len());
    for (((one, (_, predecessor)), guard), values) in group.iter().zip(all).zip(guards).zip(values)
    {
        let grant = &one.ticket.grant;
        let after = predecessor.as_ref().map_or(After::Nothing, |earlier| after(earlier, before));
        before = Some(grant.request);
        members.push(Member { guard, offset: grant.place.offset, values, after });
    }
    members
}

fn after(earlier: &Predecessor, before: Option<RequestId>) -> After<'_> {
    if before == Some(earlier.request) {
        return After::Before(earlier.alignment);
    }
    earlier.end.get().map_or(After::Nothing, |last| After::Earlier(last, earlier.alignment))
}
