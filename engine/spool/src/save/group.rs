//! Checkpoints that are saved together on the GPU under the spool: encoded by one launch, or, where
//! they are kept as they are, copied by one.

use std::sync::Arc;

use unspool_codec::CodecId;
use unspool_cuda::DeviceError;
use unspool_tiers::WriteGuard;

use super::launch::launch;
use super::ticket::SaveState;
use super::{Checkpoint, SaveTicket};
use crate::coding::{EncodingPlan, Room};
use crate::error::Error;
use crate::gpu::{self, Direction, Gpu, Joined, PlacedArray};

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
            SaveState::Plain { .. } if one.checkpoint.is_all_on(gpu.ordinal()) => {
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

/// The streams of all arrays.
pub(super) fn streams<'c>(group: &[Entered<'c>]) -> Joined<'c> {
    let arrays = group.iter().flat_map(|one| one.checkpoint.arrays());
    Joined::of(arrays.map(|(_, _, stream)| stream))
}

/// Enqueues one encoder for all of `group`, which afterwards hold what is under way.
///
/// # Errors
/// When it cannot be enqueued: nothing is on its way, and the group is as it was.
pub(super) fn encode(gpu: &Gpu, group: &mut [Entered<'_>]) -> Result<(), DeviceError> {
    let streams = streams(group);
    let Some(stream) = streams.begin(gpu)? else { return Ok(()) };
    for one in group.iter_mut() {
        let SaveState::Coded { coded: (encoded, _), .. } = &mut one.ticket.state else { continue };
        let arrays: Vec<_> = one.checkpoint.arrays().collect();
        encoded.give(gpu, stream, &arrays)?;
    }
    let mut saves: Vec<_> = group.iter_mut().map(|one| &mut one.ticket).collect();
    let Some(shared) = saves.first().map(|save| Arc::clone(&save.shared)) else { return Ok(()) };
    let fence = launch(&shared, (gpu, stream), &mut saves)?;
    shared.state().counters.launches.add(saves.len() as u64);
    saves.into_iter().for_each(|save| save.take_sources().done(gpu, &fence));
    // A device that fails here fails its encoder too, and the completion thread reports that.
    let _ = streams.end(gpu, Some(&fence));
    Ok(())
}

/// Copies the arrays of all of `group` into their rooms, after what is on their streams.
///
/// # Errors
/// `Device` when CUDA refuses. What is under way then is before the fences of the rooms, or these
/// are lost, and refuse to be filled in another way.
pub(super) fn copy(gpu: &Gpu, group: &mut [Entered<'_>]) -> Result<(), Error> {
    let streams = streams(group);
    let Some(stream) = streams.begin(gpu)? else { return Ok(()) };
    let copies = group.iter().map(copies_of).collect::<Result<Vec<_>, _>>()?.concat();
    for guard in rooms(group) {
        guard.order(stream)?;
    }
    let done = gpu::copy_all(gpu, stream, &copies, Direction::Gather);
    // Also copies that failed half way may have enqueued work.
    let recorded = gpu.device().fence_or_wait(stream);
    let followed = recorded.and_then(|fence| {
        let left = fence.as_ref().into_iter();
        left.for_each(|fence| rooms(group).for_each(|room| room.leave_fence(fence.clone())));
        streams.end(gpu, fence.as_ref())
    });
    followed.inspect_err(|why| rooms(group).for_each(|guard| guard.lose(why)))?;
    Ok(done?)
}

fn copies_of<'c>(one: &Entered<'c>) -> Result<Vec<PlacedArray<'c>>, Error> {
    let SaveState::Plain { room: Room::Arena(guard), .. } = &one.ticket.state else {
        return Ok(Vec::new());
    };
    let Some(room) = guard.device() else { return Ok(Vec::new()) };
    let copy = |(index, array, _): (usize, &'c gpu::DeviceArray, _)| {
        let part = gpu::part(&one.checkpoint.head().regions[index]);
        Ok((room.slice(part.offset, part.len)?, array))
    };
    one.checkpoint.arrays().map(copy).collect()
}

fn rooms<'g>(group: &'g mut [Entered<'_>]) -> impl Iterator<Item = &'g mut WriteGuard> {
    group.iter_mut().filter_map(|one| match one.ticket.state.room() {
        Some(Room::Arena(guard)) => Some(guard),
        _ => None,
    })
}
