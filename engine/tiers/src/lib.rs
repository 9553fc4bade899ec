//! The places where Unspool's frames rest: memory arenas and disk.
//!
//! A [`Tier`] stores opaque bytes under a checkpoint's id; a stack is made of [`AnyTier`]s.
//! [`Arena`] is a contiguous buffer whose places the core chooses; [`Disk`] keeps one file per
//! frame, and small ones together. Limits, faults and throttling are wrappers of the same trait
//! (see the crate `unspool-testkit`). [`Process`] tells who opened something from a forked child.

mod any;
mod arena;
mod array;
mod disk;
mod error;
mod gpu;
mod process;
#[cfg(test)]
mod testing;
mod tier;

pub use any::AnyTier;
pub use arena::{Arena, GivenArray, LeavingArray, Owner, ReadGuard, WriteGuard};
pub use array::DeviceArray;
pub use disk::{Disk, DiskIo, DiskMode, DiskOptions, FrameStart, LostFrame, Recovery};
pub use error::{Progress, TierError};
pub use gpu::{Gpu, failure_of};
pub use process::Process;
pub use tier::{Description, Stored, Tier};
pub use unspool_core::{CheckpointId, Failure, TierKind};
