//! Unspool's background workers: they execute the core's commands and report events.
//!
//! Guarantees:
//! - A job that was accepted is reported exactly once, also when its worker panics and at
//!   shutdown; a job that was not accepted is never run.
//! - A failed or cancelled job leaves nothing in its target.
//! - Bytes from a store are compared with what was saved before anybody sees them.
//! - Flushes and prefetches never wait for each other's threads.
//! - No logic runs here: a report is an event for the core, nothing else.

#![forbid(unsafe_code)]

mod arenas;
mod clock;
mod engine;
mod error;
mod execute;
mod frame;
mod job;
mod lane;
mod ranges;
mod sink;
mod span;
mod staging;
mod summed;
pub mod sync;
mod timer;
mod worker;

pub use clock::{Clock, ManualClock, SystemClock};
pub use engine::{Engine, Options, Shutdown};
pub use error::TransferError;
pub use frame::{Frame, read_frame, staging, write_frame};
pub use job::{Job, Submitted};
pub use ranges::{read_ranges, read_sums};
pub use sink::Sink;
pub use span::Span;
pub use staging::{Buffer, Pool};
