//! The way from the workers into the core.

use std::sync::{Arc, OnceLock, Weak};

use unspool_core::{CheckpointId, Event, Failure};
use unspool_transfer::sync::lock;
use unspool_transfer::{Sink, Span, TransferError};

use crate::runtime::counters::Route;
use crate::runtime::shared::Shared;
use crate::runtime::state::State;

/// Where workers leave their reports. It does not keep the shared alive.
#[derive(Default)]
pub(crate) struct Inbox {
    shared: OnceLock<Weak<Shared>>,
}

impl Inbox {
    /// From now on reports go to `shared`; nothing is reported before.
    pub(crate) fn belongs_to(&self, shared: &Arc<Shared>) {
        let first = self.shared.set(Arc::downgrade(shared));
        debug_assert!(first.is_ok(), "an inbox has one shared");
    }

    /// The shared; none while the spool is made and after it is gone.
    fn shared(&self) -> Option<Arc<Shared>> {
        self.shared.get().and_then(Weak::upgrade)
    }
}

impl Sink for Inbox {
    fn event(&self, event: Event, error: Option<TransferError>) {
        if let Some(shared) = self.shared() {
            shared.report(event, error);
        }
    }

    fn span(&self, span: Span) {
        if let Some(timeline) = self.shared().as_ref().and_then(|shared| shared.timeline.as_ref()) {
            lock(timeline).push(span);
        }
    }
}

impl Shared {
    /// Takes in what a worker reports.
    fn report(&self, event: Event, error: Option<TransferError>) {
        if matches!(event, Event::TransferFailed { .. }) {
            self.finds_device_lost();
        }
        let mut state = self.state();
        match event {
            Event::TransferDone { transfer, took } => {
                if let Some((_, route)) = state.moving.remove(&transfer) {
                    state.counters.moved(route, took);
                }
            }
            Event::TransferFailed { transfer, failure } => {
                if let Some((id, route)) = state.moving.remove(&transfer) {
                    note_failure(&mut state, id, route, failure, error);
                }
            }
            Event::TransferCancelled { transfer } => {
                state.moving.remove(&transfer);
            }
            Event::Deleted { .. } => state.notes.extend(error.map(|error| error.to_string())),
            // The alarm is off once it went off.
            Event::Tick => state.alarm = None,
            _ => {}
        }
        self.feed(&mut state, event);
    }
}

fn note_failure(
    state: &mut State,
    id: CheckpointId,
    route: Route,
    failure: Failure,
    error: Option<TransferError>,
) {
    let error = error.unwrap_or_else(|| TransferError::new(failure, format!("{failure:?}")));
    if matches!(failure, Failure::Corrupt | Failure::Missing) {
        state.frames.set_loss(id, error.clone());
    }
    state.counters.failed(route.link(), error);
}
