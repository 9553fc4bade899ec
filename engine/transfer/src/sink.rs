//! Where an engine reports what has happened.

use unspool_core::Event;

use crate::error::TransferError;
use crate::span::Span;

/// The receiver of reports. It is called on worker threads and by
/// [`Engine::shutdown`](crate::Engine::shutdown); it must return quickly, and may call the engine
/// back.
pub trait Sink: Send + Sync {
    /// Receives an event for the core, with the error text of a failure.
    fn event(&self, event: Event, error: Option<TransferError>);

    /// Receives a piece of work for the timeline; only with `Options::trace`.
    fn span(&self, span: Span);
}
