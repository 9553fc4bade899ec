//! A small two-dimensional acoustic propagator for Unspool's reverse time migration.
//!
//! It solves, with constant density and a layer that absorbs waves on all four sides,
//!
//! ```text
//! m u_tt - lap(u) + m sigma u_t = q,        m = 1 / v^2
//! ```
//!
//! with central differences: second order in time, eighth order in space, in float32. One step is
//!
//! ```text
//! u[n+1] = (2 u[n] - (1 - s) u[n-1] + v^2 dt^2 (lap u[n] + q[n])) / (1 + s),    s = sigma dt / 2
//! ```
//!
//! Run backwards in time this scheme is its own transpose: the same `advance`, fed with the
//! recorded data in reverse, is the exact adjoint of recording a source (tested to rounding).
//!
//! Guarantees: the result of a step does not depend on the number of threads, bit for bit, and is
//! the same in every run on the same instruction set. Instruction sets agree to rounding.
//!
//! Amplitudes below 1e-18 are set to zero, so that no arithmetic is done on subnormal numbers;
//! scale sources so that waves stay many orders of magnitude above that (a unit source does).
//!
//! Fields are plain slices that the caller owns: padded, contiguous, x slow and z (depth) fast, of
//! [`Grid::shape`]; nothing here allocates after construction.

mod error;
mod grid;
mod imaging;
mod medium;
mod points;
mod propagator;
mod stencil;

pub use error::WaveError;
pub use grid::Grid;
pub use medium::{SPACE_ORDER, largest_stable_step};
pub use points::Points;
pub use propagator::{Acoustic, Options, Record, Signal};
pub use stencil::Instructions;
