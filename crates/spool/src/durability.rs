//! What survives: flushes, and which checkpoints are durable after one.

use unspool_core::{CheckpointId, CopyState, Core, Version};
use unspool_transfer::sync::MutexGuard;

use crate::error::{Error, ErrorKind};
use crate::runtime::completion::take_deferred;
use crate::runtime::shared::Hub;
use crate::runtime::state::State;
use crate::runtime::waiting::{Answered, Asked, Until};
use crate::spool::checkpoints;
use crate::wait::Wait;

/// Brings every checkpoint to its slowest tier, and makes that tier durable if it can be.
pub(crate) fn flush<'a>(
    hub: &'a Hub,
    state: MutexGuard<'a, State>,
    wait: &Wait<'_>,
    until: Until,
) -> Result<(), Error> {
    let Answered { mut state, .. } = hub.ask(state, Asked::Flush, wait, until)?;
    if until == Until::Closing {
        take_deferred(&mut state).map_or(Ok(()), Err)?;
    }
    let flushed = in_durable_tiers(hub, &state);
    let too_large = too_large_to_last(hub, &state);
    drop(state);
    sync(hub, &flushed)?;
    too_large.map_or(Ok(()), Err)
}

/// The error for a checkpoint that has reached the slowest tier which can hold it, and that is no
/// durable one.
fn too_large_to_last(hub: &Hub, state: &State) -> Option<Error> {
    let tier = hub.tier(*hub.durable_tiers.last()?).describe();
    let core = state.driver.core();
    let mut versions = checkpoints(state).into_iter().map(|(version, _)| version);
    let version = versions.find(|&v| core.is_flushed(v) && !is_in_durable_tier(hub, core, v))?;
    let message = format!(
        "Version {} is larger than the {} tier at {} ({} bytes), so it cannot be made durable; all \
         smaller ones were. Give that tier more room (option `{}`), or save the version in parts.",
        version.0, tier.kind, tier.location, tier.capacity, tier.kind,
    );
    Some(Error::new(ErrorKind::TooLarge, message))
}

fn is_in_durable_tier(hub: &Hub, core: &Core, version: Version) -> bool {
    let copies = core.copies(version);
    let mut copies = hub.durable_tiers.iter().map(|tier| copies[usize::from(tier.0)]);
    copies.any(|copy| copy.is_some_and(CopyState::is_complete))
}

/// The checkpoints that have a complete copy in a durable tier.
fn in_durable_tiers(hub: &Hub, state: &State) -> Vec<CheckpointId> {
    let core = state.driver.core();
    let there = checkpoints(state).into_iter();
    there.filter(|(v, _)| is_in_durable_tier(hub, core, *v)).map(|(_, id)| id).collect()
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
        state.frames.set_durable(*id);
    }
    Ok(())
}
