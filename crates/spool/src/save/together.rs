//! Several checkpoints by one call of an encoder, on the GPU under the spool.

use std::time::Instant;

use unspool_codec::CodecId;
use unspool_core::RequestId;
use unspool_cuda::{DeviceError, DeviceSpan, Mark, Stream};
use unspool_gpu_codec::{After, Values};
use unspool_tiers::WriteGuard;

use super::many::Granted;
use super::{Room, SaveTicket};
use crate::coding::{Chain, Encoding, Member, Plan, values};
use crate::gpu::Gpu;

/// The most regions of one launch.
pub(crate) const MOST_REGIONS: usize = 4096;

/// The codec that encodes all regions of `plan` on a GPU; `None` where nothing is gained by encoding
/// them with others, and for what the run measures, which has its own call. Twine takes the bytes
/// that are kept as they are as well.
pub(crate) fn together(plan: &Plan) -> Option<CodecId> {
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
pub(super) fn launch(gpu: &Gpu, group: &mut [Granted<'_>]) -> Result<(), DeviceError> {
    let began = Instant::now();
    let streams = streams(group);
    let Some((stream, others)) = streams.split_last() else { return Ok(()) };
    for one in group.iter_mut() {
        gather(gpu, one)?;
    }
    for other in others {
        let ready = gpu.device().mark(other)?;
        stream.wait_for(&ready)?;
    }
    let guards: Vec<_> = group.iter_mut().filter_map(|one| take_guard(&mut one.ticket)).collect();
    let begun = match sources(stream, group, &guards) {
        Ok(values) => {
            let members = members(group, guards, values);
            Encoding::begin_all(gpu.own_coders(), stream, members)
        }
        Err(cause) => Err(Box::new((guards, cause))),
    };
    let encodings = begun.map_err(|refused| {
        let (guards, cause) = *refused;
        for (one, guard) in group.iter_mut().zip(guards) {
            one.ticket.room = Some(Room::Arena(guard));
        }
        cause
    })?;
    let time = began.elapsed() / group.len().max(1) as u32;
    let mark = encodings.last().map(|last| last.parts().mark().clone());
    for (one, encoding) in group.iter_mut().zip(encodings) {
        begun_on(gpu, &mut one.ticket, encoding);
        if let Some(encoded) = &mut one.ticket.encoded {
            encoded.time += time;
        }
    }
    if let Some(mark) = mark {
        others.iter().for_each(|other| follow(gpu, other, &mark));
    }
    Ok(())
}

/// Lets `stream` go on only after `mark`: what is enqueued there later may change the arrays.
fn follow(gpu: &Gpu, stream: &Stream, mark: &Mark) {
    // A device that fails here fails its encoder too, and the completion thread reports that.
    let _ = stream.wait_for(mark).or_else(|_| mark.wait(gpu.device().limit()));
}

/// The streams of all arrays, each once; the last one is that of the last array.
fn streams<'c>(group: &[Granted<'c>]) -> Vec<&'c Stream> {
    let mut found: Vec<&Stream> = Vec::new();
    for (_, _, stream) in group.iter().flat_map(|one| one.checkpoint.arrays()) {
        found.retain(|known| known.handle() != stream.handle());
        found.push(stream);
    }
    found
}

/// Copies aside what the encoder cannot read in place.
fn gather(gpu: &Gpu, one: &mut Granted<'_>) -> Result<(), DeviceError> {
    let Some(encoded) = &mut one.ticket.encoded else { return Ok(()) };
    encoded.gpu = Some(gpu.clone());
    for (index, array, stream) in one.checkpoint.arrays() {
        encoded.give(gpu, index, (array, stream))?;
    }
    Ok(())
}

fn take_guard(ticket: &mut SaveTicket) -> Option<WriteGuard> {
    match ticket.room.take() {
        Some(Room::Arena(guard)) => Some(guard),
        other => {
            ticket.room = other;
            None
        }
    }
}

/// The values of each, after the copies that were made aside.
fn sources(
    stream: &Stream,
    group: &[Granted<'_>],
    rooms: &[WriteGuard],
) -> Result<Vec<Vec<Values>>, DeviceError> {
    let each = group.iter().zip(rooms).map(|(one, guard)| {
        let found = one.ticket.encoded.as_ref().zip(guard.device());
        let Some((encoded, nothing)): Option<(_, &DeviceSpan)> = found else {
            unreachable!("what is encoded together has room on a device")
        };
        values(encoded, stream, &encoded.sources, nothing)
    });
    each.collect()
}

fn members<'a>(
    group: &'a [Granted<'_>],
    guards: Vec<WriteGuard>,
    values: Vec<Vec<Values>>,
) -> Vec<Member<'a>> {
    let mut before = None;
    let all = group.iter().zip(guards).zip(values).map(|((one, guard), values)| {
        let chain = one.ticket.chain.as_ref();
        let after = chain.map_or(After::Nothing, |chain| after(chain, before));
        before = Some(one.ticket.request);
        Member { guard, offset: one.ticket.place.offset, values, after }
    });
    all.collect()
}

fn after(chain: &Chain, before: Option<RequestId>) -> After<'_> {
    if before == Some(chain.request) {
        return After::Before(chain.alignment);
    }
    chain.behind.get().map_or(After::Nothing, |last| After::Earlier(last, chain.alignment))
}

/// The encoder of a save is under way.
fn begun_on(gpu: &Gpu, ticket: &mut SaveTicket, encoding: Encoding) {
    let mark: Mark = encoding.parts().mark().clone();
    let _ = ticket.launched.set(encoding.parts().last().clone());
    ticket.room = Some(Room::Encoding(encoding));
    if let Some(encoded) = &mut ticket.encoded {
        encoded.is_launched = true;
        std::mem::take(&mut encoded.sources).done(gpu, &mark);
    }
}
