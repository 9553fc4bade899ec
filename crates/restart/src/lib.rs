//! Restart of long jobs: what a run needs to go on is saved now and then, over all of its ranks,
//! and a checkpoint counts when all of it is durable.
//!
//! A [`Checkpointer`] is one rank's hold on the folder of a run. The arrays of a checkpoint go into
//! a durable [`unspool::Spool`]; a [`Manifest`] beside it says that they have arrived.
//!
//! What holds throughout:
//! - A checkpoint counts when every rank has its manifest and its frame. It is deleted only after
//!   as many newer ones count as are to be kept.
//! - Ranks talk to each other on the application's thread alone, and every wait for a rank ends.
//! - What decides ([`interval`], [`pace`], agreement) knows neither clocks nor files.

#![forbid(unsafe_code)]

mod agreement;
mod checkpointer;
mod committer;
mod duration;
mod exchange;
mod folder;
pub mod interval;
mod listing;
mod manifest;
mod medium;
mod names;
pub mod pace;
mod ranks;

pub use agreement::Part;
pub use checkpointer::{Checkpointer, Outcome, Settings};
pub use duration::duration;
pub use interval::{Every, Rule};
pub use listing::{FoundPart, Listed, find, list, remove};
pub use manifest::{MOST_VALUES, Manifest, ManifestError, Run};
pub use ranks::{Alone, Ranks, Unanswered};
