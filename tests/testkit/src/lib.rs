//! Wrappers of tiers for tests, and the conformance suite for every tier.
//!
//! Faults, gates, throttling and counting are wrappers of the same trait [`unspool_tiers::Tier`],
//! so they can be nested: `Counting::new(Faulty::new(disk))`.

#![forbid(unsafe_code)]

pub mod conformance;
mod counting;
mod faulty;
mod gated;
mod operation;
mod pattern;
mod random;
mod scratch;
mod throttled;

pub use counting::{Counting, Counts};
pub use faulty::{Fault, Faulty};
pub use gated::{Gate, Gated};
pub use operation::Operation;
pub use pattern::{Pattern, first_difference};
pub use random::Random;
pub use scratch::Scratch;
pub use throttled::Throttled;
