//! The memory that a checkpoint is saved into.

use std::sync::Arc;

use unspool_tiers::{Gpu, WriteGuard};
use unspool_transfer::Buffer;

/// The memory that the caller fills, or the encoders of the host do.
pub(crate) enum Room {
    /// It lies in the arena where the checkpoint will be.
    Arena(WriteGuard),
    /// No arena can hold it: it is written to the store at commit.
    Staged(Buffer),
}

impl Room {
    /// The device whose memory it is, if it is one's.
    pub(crate) fn gpu(&self) -> Option<&Arc<Gpu>> {
        match self {
            Room::Arena(guard) => guard.gpu(),
            Room::Staged(_) => None,
        }
    }

    /// Whether a device may still write to it, so that nobody else can.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Room::Arena(guard) if guard.is_lost())
    }

    /// Its bytes, where they are in main memory.
    pub(crate) fn bytes(&mut self) -> Option<&mut [u8]> {
        match self {
            Room::Arena(guard) => guard.bytes(),
            Room::Staged(buffer) => Some(buffer),
        }
    }
}
