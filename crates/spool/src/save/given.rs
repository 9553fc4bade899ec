//! A save of an array that its owner gives away: its memory is the copy in the device tier, and no
//! copy within the device is made.

use std::sync::Arc;

use unspool_codec::RegionSpec;
use unspool_tiers::{AnyTier, Arena, GivenArray};

use super::wait_for_room;
use crate::coding::Codecs;
use crate::error::Error;
use crate::gpu::DeviceArray;
use crate::runtime::shared::Shared;
use crate::wait::Wait;

/// Whether the memory of `array`, kept as `codecs` say, can be a copy in the device tier.
pub(crate) fn takes(shared: &Shared, array: &DeviceArray, codecs: &Codecs) -> bool {
    let on = given_to(shared).and_then(Arena::gpu).map(|gpu| gpu.ordinal());
    on == Some(array.ordinal()) && array.is_dense() && array.bytes() > 0 && codecs.is_raw()
}

/// The arena that arrays can be given to: that of the device tier, on a GPU.
fn given_to(shared: &Shared) -> Option<&Arena> {
    let arena = shared.tiers.first().and_then(AnyTier::arena)?;
    arena.is_of_device().then_some(arena)
}

/// Saves an array that [`takes`] has taken, whose memory is `given`. Where the device tier has no
/// room for it, it is copied elsewhere. The array is let go of in each case, as soon as the spool is
/// done with it.
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
    let prepared = shared.prepare(version, vec![region], &Codecs::default())?;
    let stream = given.stream();
    crate::gpu::check_size(array.bytes(), prepared.head().payload_bytes)?;
    crate::gpu::check_stream(stream)?;
    loop {
        // An arena loses room once at most.
        let granted = wait_for_room(shared, version, &prepared, wait)?;
        if shared.arena(granted.grant.place).is_some_and(Arena::is_of_device) {
            let Some(ticket) = granted.adopt(&given)? else { continue };
            let saved = ticket.commit_on(stream);
            shared.let_go();
            return saved;
        }
        let Some(mut ticket) = granted.enter()? else { continue };
        let copied = ticket.put(0, array, stream)?;
        if let Some(arena) = given_to(shared) {
            arena.leave(given.clone().leaving(copied.into_iter().collect()));
        }
        let saved = ticket.commit();
        shared.let_go();
        return saved;
    }
}
