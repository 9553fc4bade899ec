//! The whole system in virtual time with injected faults, from a seed.
//!
//! A run combines the real [`Core`](unspool_core::Core), a fake machine and a random application,
//! all derived from one seed, and checks the rules of [`check::Rule`] after every step. The same
//! seed gives the same run, to the last byte of its trace.
//!
//! ```
//! let outcome = unspool_sim::run_seed(7);
//! assert!(outcome.is_ok());
//! ```

pub mod canary;
pub mod check;
pub mod content;
pub mod device;
pub mod fleet;
pub mod history;
mod panics;
pub mod plan;
pub mod random;
pub mod recorded;
pub mod report;
pub mod scenario;
pub mod shrink;
pub mod world;

pub use plan::Plan;
pub use report::{Failure, run_plan, run_seed, run_world};
pub use world::World;
