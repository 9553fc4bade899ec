//! The end of a spool: bounded, once, whoever calls.

use std::time::Duration;

use unspool_core::Nanos;
use unspool_tiers::AnyTier;
use unspool_transfer::Shutdown;

use crate::durability;
use crate::error::{Error, ErrorKind};
use crate::runtime::completion::take_deferred;
use crate::runtime::deferred;
use crate::runtime::shared::{Hub, check_open};
use crate::runtime::state::Phase;
use crate::runtime::waiting::Until;
use crate::time::{duration, nanos};
use crate::wait::Wait;

/// Threads are given so long to end, also when no time is left.
const LEAST: Duration = Duration::from_millis(100);

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
    // While the core still listens. What is late may come until it is given up, and is named then.
    let _ = hub.settle_all(duration(deadline.since(hub.clock.now())));
    let drained = if is_durable(hub) && intact.is_ok() {
        let left = duration(deadline.since(hub.clock.now()));
        durability::flush(hub, hub.state(), &Wait::at_most(left), Until::Answered)
    } else {
        Ok(())
    };
    let left = duration(deadline.since(hub.clock.now())).max(LEAST);
    let given_up = hub.end_settling(left);
    let mut state = hub.state();
    state.phase = Phase::Closed;
    state.driver.end_record();
    let deferred = take_deferred(&mut state);
    drop(state);
    let late = (!given_up.is_empty()).then(|| deferred::given_up(&given_up, timeout));
    let settled = both(late, deferred);
    let decoded = hub.decoding.settle(duration(deadline.since(hub.clock.now())));
    let settled = settled.and(decoded);
    let stopped = stop_workers(hub, deadline);
    // Closing the disk waits for calls under way, which here might last for ever. It then closes
    // by itself, after the last worker.
    let released = if stopped.is_ok() { release(hub) } else { Ok(()) };
    let ordered = hub.order.as_ref().map_or(Ok(()), |check| check.verdict());
    intact.and(settled).and(drained).and(stopped).and(released).and(ordered)
}

/// What is late and what has failed.
fn both(late: Option<Error>, failed: Option<Error>) -> Result<(), Error> {
    match (late, failed) {
        (Some(late), Some(failed)) => Err(late.besides(&failed)),
        (late, failed) => late.or(failed).map_or(Ok(()), Err),
    }
}

fn is_durable(hub: &Hub) -> bool {
    !hub.durable_tiers.is_empty()
}

/// Ends the workers. What they still have to do matters to a durable spool only: deletions, or
/// discarded checkpoints would come back.
fn stop_workers(hub: &Hub, deadline: Nanos) -> Result<(), Error> {
    let left = duration(deadline.since(hub.clock.now())).max(LEAST);
    let how = if is_durable(hub) { Shutdown::Drain } else { Shutdown::Cancel };
    hub.engine.shutdown(how, left).map_err(|cause| {
        let message = format!("The spool is closed, but not all of its work has ended. {cause}");
        Error::new(ErrorKind::Timeout, message).caused_by(cause)
    })
}

/// Gives back the memory of the arenas and what lies outside this process.
fn release(hub: &Hub) -> Result<(), Error> {
    for arena in hub.tiers.iter().filter_map(AnyTier::arena) {
        // While the caller still holds a ticket in it, its memory stays until the spool is dropped.
        let _ = arena.retire();
    }
    let Some(disk) = &hub.disk else { return Ok(()) };
    disk.close().map_err(|cause| {
        Error::new(ErrorKind::Io, format!("The disk tier cannot be closed: {cause}"))
            .caused_by(cause)
    })
}
