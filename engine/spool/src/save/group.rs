//! Checkpoints that are saved together on the GPU under the spool: encoded by one launch, or, where
//! they are kept as they are, copied by one.

use std::sync::Arc;

use unspool_codec::CodecId;
use unspool_cuda::{DenseCopy, DeviceError, Stream};
use unspool_tiers::WriteGuard;

use super::launch::{follow_all, launch, wait_for_all};
use super::ticket::SaveState;
use super::{Checkpoint, SaveTicket};
use crate::coding::{EncodingPlan, Room};
use crate::error::Error;
use crate::gpu::{self, Gpu};

/// The most regions of one launch.
pub(crate) const MOST_REGIONS: usize = 4096;

/// One checkpoint and its save.
pub(super) struct Entered<'c> {
    pub(super) checkpoint: Checkpoint<'c>,
    pub(super) ticket: SaveTicket,
}

/// How a checkpoint is saved together with others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Together {
    /// It is kept as it is.
    Copied,
    /// By this codec.
    Encoded(CodecId),
}

/// Checkpoints that are saved together.
#[derive(Default)]
pub(super) struct LaunchGroup<'c> {
    /// `None` while there are none.
    pub(super) way: Option<Together>,
    pub(super) members: Vec<Entered<'c>>,
    regions: usize,
}

impl Together {
    /// `None` for what is saved by itself.
    pub(super) fn of(gpu: &Gpu, one: &mut Entered<'_>) -> Option<Together> {
        if !one.ticket.state.is_on_device() {
            return None;
        }
        match one.ticket.state {
            SaveState::Plain { .. } if can_be_copied(gpu, &one.checkpoint) => {
                Some(Together::Copied)
            }
            _ => one.checkpoint.together(gpu).map(Together::Encoded),
        }
    }
}

impl<'c> LaunchGroup<'c> {
    pub(super) fn of(way: Together, one: Entered<'c>) -> LaunchGroup<'c> {
        let mut group = LaunchGroup::default();
        group.push(way, one);
        group
    }

    /// Whether `one`, saved in this `way`, can be added.
    pub(super) fn takes(&self, way: Together, one: &Entered<'_>) -> bool {
        self.way == Some(way) && self.regions + regions(one) <= MOST_REGIONS
    }

    pub(super) fn push(&mut self, way: Together, one: Entered<'c>) {
        self.way = Some(way);
        self.regions += regions(&one);
        self.members.push(one);
    }
}

fn regions(one: &Entered<'_>) -> usize {
    one.checkpoint.head().regions.len()
}

/// The codec that encodes all regions of `plan` on a GPU; `None` where nothing is gained by
/// encoding them with others, and for what the run measures, which has its own call. Twine takes
/// the bytes that are kept as they are as well.
pub(super) fn together(plan: &EncodingPlan) -> Option<CodecId> {
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

fn can_be_copied(gpu: &Gpu, checkpoint: &Checkpoint<'_>) -> bool {
    checkpoint.is_all_on(gpu.ordinal()) && checkpoint.arrays().all(|(_, array, _)| array.is_dense())
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

/// Enqueues one encoder for all of `group`, which afterwards hold what is under way.
///
/// # Errors
/// When it cannot be enqueued: nothing is on its way, and the group is as it was.
pub(super) fn encode(gpu: &Gpu, group: &mut [Entered<'_>]) -> Result<(), DeviceError> {
    let streams = streams(group);
    let Some((stream, others)) = streams.split_last() else { return Ok(()) };
    for one in group.iter_mut() {
        // Copies aside what the encoder cannot read in place.
        let SaveState::Coded { coded: (encoded, _), .. } = &mut one.ticket.state else { continue };
        let mut arrays = one.checkpoint.arrays();
        arrays.try_for_each(|(index, array, on)| encoded.give(gpu, index, (array, on)))?;
    }
    wait_for_all(gpu, stream, others.iter().copied())?;
    let mut saves: Vec<_> = group.iter_mut().map(|one| &mut one.ticket).collect();
    let Some(shared) = saves.first().map(|save| Arc::clone(&save.shared)) else { return Ok(()) };
    let fence = launch(&shared, (gpu, stream), &mut saves)?;
    shared.state().counters.launches.add(saves.len() as u64);
    saves.into_iter().for_each(|save| save.take_sources().done(gpu, &fence));
    // A device that fails here fails its encoder too, and the completion thread reports that.
    let _ = follow_all(gpu, others.iter().copied(), &fence);
    Ok(())
}

/// Copies the arrays of all of `group` into their rooms, after what is on their streams.
///
/// # Errors
/// `Device` when CUDA refuses. What is under way then is before the fences of the rooms, or these
/// are lost, and refuse to be filled in another way.
pub(super) fn copy(gpu: &Gpu, group: &mut [Entered<'_>]) -> Result<(), Error> {
    let streams = streams(group);
    let Some((stream, others)) = streams.split_last() else { return Ok(()) };
    wait_for_all(gpu, stream, others.iter().copied())?;
    let copies = group.iter().map(|one| copies_of(gpu, one)).collect::<Result<Vec<_>, _>>()?;
    for guard in rooms(group) {
        guard.order(stream)?;
    }
    let done = gpu.strided().copy_many(stream, &copies.concat());
    // Also copies that failed half way may have enqueued work.
    let recorded = gpu.device().fence_or_wait(stream);
    let followed = recorded.and_then(|fence| {
        let Some(fence) = fence else { return Ok(()) };
        rooms(group).for_each(|guard| guard.leave_fence(fence.clone()));
        follow_all(gpu, others.iter().copied(), &fence)
    });
    followed.inspect_err(|why| rooms(group).for_each(|guard| guard.lose(why)))?;
    Ok(done?)
}

fn copies_of(gpu: &Gpu, one: &Entered<'_>) -> Result<Vec<DenseCopy>, Error> {
    let SaveState::Plain { room: Room::Arena(guard), .. } = &one.ticket.state else {
        return Ok(Vec::new());
    };
    let copy = |(index, array, _): (usize, &gpu::DeviceArray, _)| {
        let part = gpu::part(&one.checkpoint.head().regions[index]);
        let span = guard.device().map(|span| span.slice(part.offset, part.len)).transpose()?;
        Ok(span.map(|to| (to, array.span(gpu.context()))))
    };
    one.checkpoint.arrays().filter_map(|array| copy(array).transpose()).collect()
}

fn rooms<'g>(group: &'g mut [Entered<'_>]) -> impl Iterator<Item = &'g mut WriteGuard> {
    group.iter_mut().filter_map(|one| match one.ticket.state.room() {
        Some(Room::Arena(guard)) => Some(guard),
        _ => None,
    })
}
