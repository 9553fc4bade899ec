//! Restart of long jobs: what a run needs to go on is saved now and then, over all of its ranks,
//! and a checkpoint counts when all of it is durable.
//!
//! A [`Checkpointer`] is one rank's hold on the folder of a run. The arrays of a checkpoint go into
//! a durable [`unspool::Spool`]; a [`Manifest`] beside it says that they have arrived. With
//! increments they go into a spool in memory first, and what has changed goes on from there.
//!
//! ```
//! use std::sync::Arc;
//! use unspool::{DiskSettings, Dtype, Error, RegionSpec, Spool, Wait};
//! use unspool_restart::{Alone, Checkpointer, Every, Rule, Settings};
//!
//! # let path = std::env::temp_dir().join(format!("unspool-restart-{}", std::process::id()));
//! let settings = Settings::new(&path, Rule::of(Every::Steps(10), 1));
//! let checkpoints = Checkpointer::open(settings, &Alone, &Wait::default(), |data| {
//!     let disk = data.map(|data| DiskSettings { durable: true, ..DiskSettings::new(data) });
//!     let tiers = unspool::Settings { disk, ..unspool::Settings::default() };
//!     Spool::open(tiers).map(Arc::new)
//! })?;
//! let wait = Wait::default();
//! for step in 1..=20 {
//!     if checkpoints.due(step, &Alone)? {
//!         checkpoints.begin(step, "{}".into(), &Alone, &wait)?;
//!         let spec = RegionSpec { name: "u".into(), dtype: Dtype::UInt8, shape: vec![100] };
//!         let mut ticket = checkpoints.spool().save(step as i64, vec![spec], &wait)?;
//!         ticket.fill(0, |bytes| bytes.fill(step as u8))?;
//!         ticket.commit()?;
//!         checkpoints.commit()?;
//!     }
//! }
//! checkpoints.flush(&wait)?;
//! assert_eq!(checkpoints.latest(&Alone, &wait)?, Some(20));
//! checkpoints.close(Some(&Alone), &wait)?;
//! # drop(checkpoints);
//! # let _ = std::fs::remove_dir_all(path);
//! # Ok::<(), Error>(())
//! ```
//!
//! What holds throughout:
//! - A checkpoint counts when every rank has its manifest and its frame. It is deleted only after
//!   as many newer ones count as are to be kept.
//! - Ranks talk to each other on the application's thread alone, and every wait for a rank ends.
//! - What decides (`interval`, `pace`, `agreement`, `increments`, `parts`) knows neither clocks nor
//!   files.

#![forbid(unsafe_code)]

pub mod agreement;
mod chain;
mod checkpointer;
mod claim;
mod committer;
mod copier;
mod copies;
mod duration;
mod exchange;
mod folder;
mod frames;
mod increments;
mod interval;
mod level;
mod listing;
mod manifest;
mod medium;
mod names;
mod pace;
mod partner;
mod parts;
mod places;
mod ranks;
mod retention;
mod shelf;
mod stage;
mod worker;

pub use chain::Chains;
pub use checkpointer::{Checkpointer, Outcome, Settings};
pub use copier::Copies;
pub use copies::{find_remote, list_remote, open_remote};
pub use duration::duration;
pub use exchange::{Call, Exchanges};
pub use folder::{Damaged, Folder, Manifests};
pub use frames::{CheckedFrame, discard, flush};
pub use increments::Fulls;
pub use interval::{Every, Rule};
pub use level::RemoteSettings;
pub use listing::{FoundPart, Listed, RemovedCopies, find, list, remove, remove_copies};
pub use manifest::{Increment, MOST_VALUES, Manifest, ManifestError, Part, Run};
pub use ranks::{Alone, Ranks, Unanswered};
pub use retention::Stays;
pub use shelf::{Found, Object, Shelf};
pub use unspool_remote::Options as RemoteOptions;
pub use worker::{Book, Jobs, Worker};
