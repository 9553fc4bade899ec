//! What survives: flushes, and which checkpoints are durable after one.

use unspool_core::{CheckpointId, CopyState};
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
    let flushed = in_durable_tiers(hub, &state);
    drop(state);
    sync(hub, &flushed)
}

/// The checkpoints that have a complete copy in a durable tier.
fn in_durable_tiers(hub: &Hub, state: &State) -> Vec<CheckpointId> {
    if hub.durable_tiers.is_empty() {
        return Vec::new();
    }
    let core = state.brain.core();
    let complete = |version| {
        let copies = core.copies(version);
        let mut copies = hub.durable_tiers.iter().map(|tier| copies[usize::from(tier.0)]);
        copies.any(|copy| copy.is_some_and(CopyState::is_complete))
    };
    let there = checkpoints(state).into_iter().filter(|(version, _)| complete(*version));
    there.map(|(_, id)| id).collect()
}

/// Makes durable what was put before, and notes it for `flushed`.
fn sync(hub: &Hub, flushed: &[CheckpointId]) -> Result<(), Error> {
    for tier in &hub.durable_tiers {
        hub.tier(*tier).sync().map_err(|cause| {
            let message = format!("The history cannot be made durable: {cause}");
            Error::new(ErrorKind::Io, message).caused_by(cause)
        })?;
    }
    let mut state = hub.state();
    for id in flushed {
        state.catalogue.set_durable(*id);
    }
    Ok(())
}
