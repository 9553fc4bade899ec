//! What survives: flushes, and which checkpoints are durable after one.

use std::collections::HashSet;

use unspool_core::{CheckpointId, CopyState, Core, Version};
use unspool_transfer::sync::MutexGuard;

use crate::error::{Error, ErrorKind};
use crate::runtime::completion::take_deferred;
use crate::runtime::memory;
use crate::runtime::shared::Shared;
use crate::runtime::state::State;
use crate::runtime::syncing::{self, Limit};
use crate::runtime::waiting::{Answered, Asked, Until};
use crate::time::nanos;
use crate::wait::Wait;

/// Brings every checkpoint to its slowest tier, and makes that tier durable if it can be.
pub(crate) fn flush<'a>(
    shared: &'a Shared,
    state: MutexGuard<'a, State>,
    wait: &Wait<'_>,
) -> Result<(), Error> {
    write_all(shared, state, wait, Until::Closing).map_err(|error| match error.kind() {
        ErrorKind::Full | ErrorKind::Io => {
            let message = format!(
                "{error} What is not flushed stays where it is: free space or repair the medium, \
                 then flush again."
            );
            error.saying(message)
        }
        _ => error,
    })
}

/// As [`flush`]; its errors say nothing of what comes next. When the medium refuses something, what
/// has arrived is made durable all the same.
pub(crate) fn write_all<'a>(
    shared: &'a Shared,
    state: MutexGuard<'a, State>,
    wait: &Wait<'_>,
    until: Until,
) -> Result<(), Error> {
    memory::check_for_list(&state)?;
    let timeout = wait.timeout.unwrap_or(shared.settings.timeout);
    let deadline = shared.clock.now().plus(nanos(timeout));
    let (mut state, refused) = match shared.ask(state, Asked::Flush, wait, until) {
        Ok(Answered { state, .. }) => (state, None),
        Err(error) if matches!(error.kind(), ErrorKind::Full | ErrorKind::Io) => {
            (shared.state(), Some(error))
        }
        Err(error) => return Err(error),
    };
    if until == Until::Closing && refused.is_none() {
        take_deferred(&mut state).map_or(Ok(()), Err)?;
    }
    let flushed = in_durable_tiers(shared, &state);
    let too_large = too_large_to_last(shared, &state);
    drop(state);
    let synced = sync(shared, &flushed, &Limit { wait, timeout, deadline });
    refused.map_or(Ok(()), Err).and(synced)?;
    too_large.map_or(Ok(()), Err)
}

/// The error for a checkpoint that has reached the slowest tier which can hold it, and that is no
/// durable one.
fn too_large_to_last(shared: &Shared, state: &State) -> Option<Error> {
    let tier = shared.tier(*shared.durable_tiers.last()?).describe();
    let core = state.driver.core();
    let mut versions = state.checkpoints().map(|(version, _)| version);
    let version = versions.find(|&v| core.is_flushed(v) && !is_in_durable_tier(shared, core, v))?;
    let message = format!(
        "Version {} is larger than the {} tier at {} ({} bytes), so it cannot be made durable; all \
         smaller ones were. Give that tier more room (option `{}`), or save the version in parts.",
        version.0, tier.kind, tier.location, tier.capacity, tier.kind,
    );
    Some(Error::new(ErrorKind::TooLarge, message))
}

fn is_in_durable_tier(shared: &Shared, core: &Core, version: Version) -> bool {
    let copies = core.copies(version);
    let mut copies = shared.durable_tiers.iter().map(|tier| copies[usize::from(tier.0)]);
    copies.any(|copy| copy.is_some_and(CopyState::is_complete))
}

/// The checkpoints that have a complete copy in a durable tier.
fn in_durable_tiers(shared: &Shared, state: &State) -> Vec<CheckpointId> {
    let core = state.driver.core();
    let there = state.checkpoints();
    there.filter(|(v, _)| is_in_durable_tier(shared, core, *v)).map(|(_, id)| id).collect()
}

/// The checkpoints of a durable spool that would not survive a crash of the machine now, without
/// those of which no tier has a copy any more; none in any other spool.
pub(crate) fn not_durable(shared: &Shared, state: &State) -> Vec<(i64, CheckpointId)> {
    if shared.durable_tiers.is_empty() {
        return Vec::new();
    }
    let core = state.driver.core();
    let is_there = |version| core.copies(version).into_iter().flatten().any(CopyState::is_complete);
    let all = state.checkpoints();
    let pending = all.filter(|(v, id)| !state.frames.is_durable(*id) && is_there(*v));
    pending.map(|(version, id)| (version.0, id)).collect()
}

/// What the durable tiers hold.
pub(crate) fn stored(shared: &Shared) -> HashSet<CheckpointId> {
    let lists = shared.durable_tiers.iter().filter_map(|tier| shared.tier(*tier).list().ok());
    lists.flatten().map(|stored| stored.id).collect()
}

/// Makes durable what was put before, and notes it for `flushed`.
fn sync(shared: &Shared, flushed: &[CheckpointId], limit: &Limit<'_>) -> Result<(), Error> {
    for tier in &shared.durable_tiers {
        syncing::sync(shared, *tier, limit)?.map_err(|cause| {
            let message = format!("The history cannot be made durable: {cause}");
            Error::new(ErrorKind::Io, message).caused_by(cause)
        })?;
    }
    let mut state = shared.state();
    for id in flushed {
        state.frames.set_durable(*id);
    }
    Ok(())
}
