//! VELOC's C interface on Unspool's engine: the 25 functions of `veloc.h`, and the two that Score
//! added (HPDC'23, section 4.3) for a history of versions on a GPU.
//!
//! What holds for every function:
//! - It returns `VELOC_SUCCESS` or `VELOC_FAILURE` where the header says nothing else; after a
//!   failure a line on standard error says what failed, why, and what to do.
//! - A process has one client. Calls of several threads come one after the other.
//! - Every wait has an end, and no panic crosses the border.
//!
//! There is no back-end process: a thread of the program makes checkpoints durable in scratch and
//! copies them to persistent.

#![allow(clippy::missing_safety_doc)]

mod api;
mod background;
mod client;
pub mod config;
mod console;
mod guard;
#[path = "../../../engine/codec/hidden.rs"]
mod hidden;
mod memory;
mod mpi;
mod names;
mod open;
mod order;
#[path = "../../common/panics.rs"]
mod panics;
mod parts;
mod persistent;
mod regions;
