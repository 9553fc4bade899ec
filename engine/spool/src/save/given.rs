//! A save of an array that its owner gives away: its memory is the copy in the device tier, and no
//! copy within the device is made.

use std::sync::Arc;

use unspool_codec::RegionSpec;
use unspool_tiers::{Arena, GivenArray};

use super::Prepared;
use super::room::wait_for_room;
use crate::coding::Codecs;
use crate::error::Error;
use crate::gpu::{DeviceArray, check_size, check_stream};
use crate::runtime::shared::Shared;
use crate::wait::Wait;

/// Whether the memory of `array`, kept as `codecs` say, can be a copy in the device tier.
pub(crate) fn takes(shared: &Shared, array: &DeviceArray, codecs: &Codecs) -> bool {
    let on = given_to(shared).and_then(Arena::gpu).map(|gpu| gpu.ordinal());
    on == Some(array.ordinal()) && array.is_dense() && array.bytes() > 0 && codecs.is_raw()
}

/// The arena that arrays can be given to: that of the device tier, on a GPU.
fn given_to(shared: &Shared) -> Option<&Arena> {
    shared.fastest_arena().filter(|arena| arena.is_of_device())
}

/// Saves an array that [`takes`] has taken, whose memory is `given`. Where the device tier has no
/// room for it, it is copied elsewhere. The array is let go of in each case, as soon as the spool
/// is done with it.
///
/// # Errors
/// As [`Spool::save`](crate::Spool::save) and [`SaveTicket::put`](super::SaveTicket::put).
pub(crate) fn save_given(
    shared: &Arc<Shared>,
    version: i64,
    region: RegionSpec,
    (array, given): (&DeviceArray, GivenArray),
    wait: &Wait<'_>,
) -> Result<(), Error> {
    let prepared = Prepared::of(shared, version, vec![region], &Codecs::default())?;
    check_size(array.bytes(), prepared.head().payload_bytes)?;
    check_stream(given.stream())?;
    let saved = loop {
        // An arena loses room once at most.
        match save_once(shared, &prepared, (array, &given), wait) {
            Ok(false) => {}
            saved => break saved.map(drop),
        }
    };
    shared.let_go();
    saved
}

/// Saves it, unless the room was lost in between.
fn save_once(
    shared: &Arc<Shared>,
    prepared: &Prepared,
    (array, given): (&DeviceArray, &GivenArray),
    wait: &Wait<'_>,
) -> Result<bool, Error> {
    let (ticket, stream) = (wait_for_room(shared, prepared, wait)?, given.stream());
    if shared.arena(ticket.grant.place).is_some_and(Arena::is_of_device) {
        let Some(ticket) = ticket.adopt(given)? else { return Ok(false) };
        return ticket.commit_on(stream).map(|()| true);
    }
    let Some(mut ticket) = ticket.enter()? else { return Ok(false) };
    let copied = ticket.put(0, array, stream);
    // Also a copy that failed half way may have enqueued work.
    leave(shared, array, given)?;
    copied?;
    ticket.commit().map(|()| true)
}

/// An array that was copied is let go of after what is on its stream.
fn leave(shared: &Shared, array: &DeviceArray, given: &GivenArray) -> Result<(), Error> {
    let fence = shared.gpu_of(array.ordinal())?.fence(given.stream());
    // Without a fence nobody knows when the copy is done: the memory stays.
    let fence = fence.inspect_err(|_| std::mem::forget(given.clone()))?;
    if let Some(arena) = given_to(shared) {
        arena.leave(given.clone().leaving(vec![fence]));
    }
    Ok(())
}
