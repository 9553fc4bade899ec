//! What survives: flushes, and which checkpoints are durable after one.

use unspool_core::CheckpointId;
use unspool_tiers::Tier;
use unspool_transfer::sync::MutexGuard;

use crate::error::{Error, ErrorKind};
use crate::hub::Hub;
use crate::spool::checkpoints;
use crate::state::State;
use crate::wait::Wait;
use crate::waiting::{Answered, Asked, Until};

/// Brings every checkpoint to its slowest tier, and makes that tier durable if it can be.
pub(crate) fn flush<'a>(
    hub: &'a Hub,
    state: MutexGuard<'a, State>,
    wait: &Wait<'_>,
    until: Until,
) -> Result<(), Error> {
    let Answered { state, .. } = hub.ask(state, Asked::Flush, wait, until)?;
    let flushed = on_disk(hub, &state);
    drop(state);
    sync(hub, &flushed)
}

/// The checkpoints whose copy on the durable disk is complete; none without such a disk.
fn on_disk(hub: &Hub, state: &State) -> Vec<CheckpointId> {
    if !is_durable(hub) {
        return Vec::new();
    }
    let disk = hub.tiers.len() - 1;
    let core = state.brain.core();
    let complete = |copies: [Option<unspool_core::CopyState>; unspool_core::MAX_TIERS]| {
        copies[disk].is_some_and(unspool_core::CopyState::is_complete)
    };
    let there =
        checkpoints(state).into_iter().filter(|(version, _)| complete(core.copies(*version)));
    there.map(|(_, id)| id).collect()
}

pub(crate) fn is_durable(hub: &Hub) -> bool {
    hub.settings.disk.as_ref().is_some_and(|disk| disk.durable)
}

/// Makes durable what was put before, and notes it for `flushed`.
fn sync(hub: &Hub, flushed: &[CheckpointId]) -> Result<(), Error> {
    let Some(disk) = hub.disk.as_ref().filter(|_| is_durable(hub)) else { return Ok(()) };
    disk.sync().map_err(|cause| {
        let message = format!("The history cannot be made durable: {cause}");
        Error::new(ErrorKind::Io, message).caused_by(cause)
    })?;
    let mut state = hub.state();
    for id in flushed {
        state.catalogue.set_durable(*id);
    }
    Ok(())
}
