//! Several checkpoints that are kept as they are, in the memory of the GPU that their arrays are
//! on: small ones are copied by one launch, all have one fence, and are reported under one lock.

use std::sync::Arc;

use unspool_core::Event;
use unspool_cuda::DenseCopy;

use super::many::Entered;
use super::state::SaveState;
use super::together::{follow, streams, wait_for_all};
use crate::coding::Room;
use crate::error::Error;
use crate::gpu::{self, Gpu};
use crate::runtime::counters::Call;
use crate::runtime::shared::{Shared, check_open};

/// Whether `one` can be copied together with others.
pub(super) fn can_join(gpu: &Gpu, one: &Entered<'_>) -> bool {
    matches!(one.ticket.state, SaveState::Plain { room: Room::Arena(_), .. })
        && one.checkpoint.is_all_on(gpu.ordinal())
        && one.checkpoint.arrays().all(|(_, array, _)| array.is_dense())
}

/// Copies the arrays of all of `group` into their rooms, after what is on their streams.
///
/// # Errors
/// `Device` when CUDA refuses. What is under way then is before the fences of the rooms, or these
/// are lost, and refuse to be filled in another way.
pub(super) fn copy_all(gpu: &Gpu, group: &mut [Entered<'_>]) -> Result<(), Error> {
    let streams = streams(group);
    let Some((stream, others)) = streams.split_last() else { return Ok(()) };
    wait_for_all(gpu, stream, others)?;
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
        others.iter().try_for_each(|other| follow(gpu, other, &fence))
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

fn rooms<'g>(
    group: &'g mut [Entered<'_>],
) -> impl Iterator<Item = &'g mut unspool_tiers::WriteGuard> {
    group.iter_mut().filter_map(|one| match &mut one.ticket.state {
        SaveState::Plain { room: Room::Arena(guard), .. } => Some(guard),
        _ => None,
    })
}

/// Reports all of `group`, whose rooms are filled, or will be before their fences.
///
/// # Errors
/// `Closed` when the spool was closed meanwhile: nothing was saved then.
pub(super) fn commit_all(shared: &Arc<Shared>, group: &mut [Entered<'_>]) -> Result<(), Error> {
    shared.check_process()?;
    let mut state = shared.state();
    check_open(&state)?;
    for one in group.iter_mut() {
        if let Some(Room::Arena(guard)) = one.ticket.state.take_room() {
            guard.commit();
        }
        let request = one.ticket.grant.request;
        shared.feed(&mut state, Event::Saved { request, kept: None });
    }
    drop(state);
    group.iter().for_each(|one| one.ticket.grant.end_span("done"));
    if let Some(last) = group.last() {
        shared.count_kernels(Call::Save, last.checkpoint.version());
    }
    Ok(())
}
