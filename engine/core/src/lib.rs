//! The pure core of Unspool: what is decided, apart from what is done.
//!
//! An [`Event`] and the time go into [`Core::step`], [`Command`]s come out. There is no I/O here,
//! no thread, no clock, no unsafe code and no dependency. The same core runs on real hardware, in
//! the simulator with virtual time, and in the replay of a recorded trace.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod command;
mod config;
mod event;
mod hints;
mod learn;
mod lifecycle;
mod machine;
mod policy;
mod stats;
mod time_model;
pub mod trace;
mod types;

pub use command::{Command, Refusal, TransferKind};
pub use config::{Config, LinkConfig, MAX_TIERS, PolicyKind, TierConfig};
pub use event::{Event, Failure, Kept, Size};
pub use hints::Then;
pub use learn::Learner;
pub use lifecycle::state::CopyState;
pub use machine::{ConfigError, Core};
pub use stats::{CoreStats, DirectionStats, Lead, LinkStats, TierStats};
pub use types::{CheckpointId, Nanos, Place, RequestId, TierId, TierKind, TransferId, Version};
