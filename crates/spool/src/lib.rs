//! Records every step of a simulation and plays it back, in any order, faster than it is asked for.

#![forbid(unsafe_code)]

mod error;
mod restore;
mod save;
mod settings;
mod spool;
mod stats;
mod wait;

pub use error::{Error, ErrorKind};
pub use restore::RestoreTicket;
pub use save::SaveTicket;
pub use settings::{DiskSettings, Settings};
pub use spool::Spool;
pub use stats::{ApplicationStats, DirectionStats, LinkStats, Stall, Stats, TierStats};
pub use unspool_codec::{Dtype, Head, Region, RegionSpec};
pub use unspool_core::{Lead, PolicyKind, TierKind};
pub use wait::Wait;
