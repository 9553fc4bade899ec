//! Records every step of a simulation and plays it back, in any order, faster than it is asked for.
//!
//! A [`Spool`] holds the history of a computation: immutable checkpoints, each named by an integer
//! version. It moves them through its tiers by itself, and brings each back before it is asked
//! for when [`Spool::expect`] has told the order.
//!
//! ```
//! use unspool::{Dtype, RegionSpec, Settings, Spool, Wait};
//!
//! let spool = Spool::open(Settings { host: Some(1 << 20), ..Settings::default() })?;
//! let wait = Wait::default();
//! for step in 0..10 {
//!     let spec = RegionSpec { name: "u".into(), dtype: Dtype::UInt8, shape: vec![100] };
//!     let mut ticket = spool.save(step, vec![spec], &wait)?;
//!     ticket.fill(0, |bytes| bytes.fill(step as u8))?;
//!     ticket.commit()?;
//! }
//! spool.expect((0..10).rev())?;
//! for step in (0..10).rev() {
//!     let ticket = spool.restore(step, &wait)?;
//!     ticket.read(0, |bytes| assert_eq!(bytes, [step as u8; 100]))?;
//!     ticket.finish()?;
//! }
//! spool.close()?;
//! # Ok::<(), unspool::Error>(())
//! ```
//!
//! What holds throughout:
//! - Bytes that a restore lends are those that were saved, or the restore is an error.
//! - Every wait is bounded, and its error says what was waited for.
//! - A save or restore that is given up, by an error or a panic, leaves the spool usable.

#![forbid(unsafe_code)]

// The tests inside share helpers with those outside.
#[cfg(test)]
extern crate self as unspool;

pub mod auto;
mod batched;
mod close;
mod coding;
pub mod doctor;
mod durability;
mod error;
mod figure;
mod figures;
pub mod gpu;
#[cfg(test)]
#[cfg(feature = "shuttle")]
mod interleavings;
mod recover;
mod restore;
mod runtime;
mod save;
mod settings;
pub mod sizes;
mod spool;
mod stats;
#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
mod time;
mod wait;

pub use batched::{Accumulate, Batched};
pub use close::Unflushed;
pub use coding::{AutoStats, CodecStats, Codecs, LaunchStats, RegionCoding};
pub use error::{Error, ErrorKind};
pub use figure::Figure;
pub use gpu::On;
pub use restore::{MadeBy, RestoreTicket, StoredFrame};
pub use runtime::rates::rates_file;
pub use save::{Checkpoint, SaveTicket};
pub use settings::{DiskSettings, Settings};
pub use spool::{Spool, Use, mark_final_uses};
pub use stats::{ApplicationStats, DirectionStats, LinkStats, Stall, Stats, TierStats};
pub use unspool_codec::{
    Achieved, Bound, CodecId, Dtype, Head, NvComp, Outer, Region, RegionSpec, Spec, Zfp,
};
pub use unspool_core::{Lead, PolicyKind, Then, TierKind};
pub use unspool_cuda::kernels::ship as ship_kernels;
pub use unspool_cuda::trim;
pub use unspool_tiers::DiskMode;
pub use wait::Wait;
