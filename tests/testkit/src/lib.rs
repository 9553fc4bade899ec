//! Wrappers of tiers for tests, and the conformance suite for every tier.
//!
//! Faults, gates, throttling and counting are wrappers of the same trait [`unspool_tiers::Tier`],
//! so they can be nested: `Counting::new(Faulty::new(disk))`. An [`ObjectServer`] is an object
//! store that goes wrong when it is told to.

#![forbid(unsafe_code)]

pub mod conformance;
mod counting;
mod faulty;
mod gated;
mod objects;
mod operation;
mod pattern;
pub mod programs;
mod random;
mod scratch;
mod throttled;

pub use counting::{Counting, Counts};
pub use faulty::{Fault, Faulty};
pub use gated::{Gate, Gated};
pub use objects::{Kind, ObjectServer, Wrong};
pub use operation::Operation;
pub use pattern::{Pattern, first_difference};
pub use random::Random;
pub use scratch::Scratch;
pub use throttled::Throttled;
