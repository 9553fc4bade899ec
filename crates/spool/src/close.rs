//! The end of a spool: bounded, once, whoever calls.

use std::time::Duration;

use unspool_core::Nanos;
use unspool_transfer::Shutdown;

use crate::durability;
use crate::error::{Error, ErrorKind};
use crate::hub::{Hub, check_open};
use crate::state::Phase;
use crate::tally::{duration, nanos};
use crate::wait::Wait;
use crate::waiting::Until;

/// Closes `hub` within about `timeout`; a second call does nothing.
pub(crate) fn close(hub: &Hub, timeout: Duration) -> Result<(), Error> {
    let mut state = hub.state();
    if state.phase != Phase::Open {
        return Ok(());
    }
    let deadline = hub.clock.now().plus(nanos(timeout));
    let intact = check_open(&state);
    state.phase = Phase::Closing;
    state.wake_all();
    drop(state);
    // While the core still listens.
    let settled = hub.settle_all(duration(deadline.since(hub.clock.now())));
    let drained = if is_durable(hub) && intact.is_ok() {
        let left = duration(deadline.since(hub.clock.now()));
        durability::flush(hub, hub.state(), &Wait::at_most(left), Until::Answered)
    } else {
        Ok(())
    };
    let mut state = hub.state();
    state.phase = Phase::Closed;
    state.brain.end_record();
    let told = hub.tell_failure(&mut state);
    drop(state);
    hub.end_settling();
    hub.end_preparing(duration(deadline.since(hub.clock.now())));
    let decoded = hub.settle_decoders(duration(deadline.since(hub.clock.now())));
    let settled = settled.and(told).and(decoded);
    let stopped = stop_workers(hub, deadline);
    // Closing the disk waits for calls under way, which here might last for ever. It then closes
    // by itself, after the last worker.
    let released = if stopped.is_ok() { release(hub) } else { Ok(()) };
    let ordered = hub.order.as_ref().map_or(Ok(()), |check| check.verdict());
    intact.and(settled).and(drained).and(stopped).and(released).and(ordered)
}

fn is_durable(hub: &Hub) -> bool {
    !hub.durable_tiers.is_empty()
}

/// Ends the workers. What they still have to do matters to a durable spool only: deletions, or
/// discarded checkpoints would come back.
fn stop_workers(hub: &Hub, deadline: Nanos) -> Result<(), Error> {
    let left = duration(deadline.since(hub.clock.now())).max(Duration::from_millis(100));
    let how = if is_durable(hub) { Shutdown::Drain } else { Shutdown::Cancel };
    hub.engine.shutdown(how, left).map_err(|cause| {
        let message = format!("The spool is closed, but not all of its work has ended. {cause}");
        Error::new(ErrorKind::Timeout, message).caused_by(cause)
    })
}

/// Gives back the memory of the arenas and what lies outside this process.
fn release(hub: &Hub) -> Result<(), Error> {
    for arena in hub.tiers.iter().filter_map(|tier| tier.memory()) {
        // While the caller still holds a ticket in it, its memory stays until the spool is dropped.
        let _ = arena.retire();
    }
    let Some(disk) = &hub.disk else { return Ok(()) };
    disk.close().map_err(|cause| {
        Error::new(ErrorKind::Io, format!("The disk tier cannot be closed: {cause}"))
            .caused_by(cause)
    })
}
