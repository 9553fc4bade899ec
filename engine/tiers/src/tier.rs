//! The one trait of all places where frames rest.

use std::fmt;

use unspool_core::{CheckpointId, TierKind};

use crate::error::TierError;

/// A place where frames rest. Tiers see opaque bytes and know nothing of what they mean.
///
/// All methods take `&self` and may be called from several threads at once; calls that name the
/// same checkpoint are ordered by the caller. Nothing here retries, waits for room or evicts: the
/// core decides that.
pub trait Tier: Send + Sync + fmt::Debug {
    /// What this tier is, how much it holds, and what it had to fall back to.
    fn describe(&self) -> Description;

    /// Where the frame of `id` is, for people; where the tier is when it has none, or all in one
    /// place.
    fn locate(&self, _id: CheckpointId) -> String {
        self.describe().location
    }

    /// Stores `parts`, one after the other, as the frame of `id`.
    ///
    /// In an arena the frame begins at byte `offset`; a store ignores `offset`. Either the whole
    /// frame is stored or, after an error, nothing of it is.
    ///
    /// # Errors
    /// When the medium fails or has no room, when `id` is already there, and when the room at
    /// `offset` is taken or beyond the end.
    fn put(&self, id: CheckpointId, offset: u64, parts: &[&[u8]]) -> Result<(), TierError>;

    /// Fills `parts`, one after the other, with the bytes of the frame of `id` from byte `skip` on.
    ///
    /// # Errors
    /// When the frame is missing, shorter than asked for, or cannot be read; the content of
    /// `parts` is then unspecified.
    fn get(&self, id: CheckpointId, skip: u64, parts: &mut [&mut [u8]]) -> Result<(), TierError>;

    /// Forgets the frame of `id` and gives its room back.
    ///
    /// # Errors
    /// When the frame is not there or the medium fails.
    fn delete(&self, id: CheckpointId) -> Result<(), TierError>;

    /// Every frame that is completely stored, in ascending order of id.
    ///
    /// # Errors
    /// When the medium cannot be listed.
    fn list(&self) -> Result<Vec<Stored>, TierError>;

    /// Returns when everything that was put before survives a crash of the machine, as far as
    /// this medium can promise that ([`Description::durable`]).
    ///
    /// # Errors
    /// When the medium fails; nothing is then known about what was put since the last sync.
    fn sync(&self) -> Result<(), TierError>;
}

/// A frame in a tier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Stored {
    /// Whose frame it is.
    pub id: CheckpointId,
    /// Its length in bytes.
    pub bytes: u64,
}

/// What a tier says about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Description {
    /// What it is made of.
    pub kind: TierKind,
    /// Where it is, for people: a directory, "memory".
    pub location: String,
    /// Bytes that it may hold; `u64::MAX` when only the medium itself sets a limit.
    pub capacity: u64,
    /// Bytes that the frames in it take: where the medium has blocks, each is rounded up to whole
    /// ones.
    pub used: u64,
    /// The alignment of addresses, offsets and lengths with which it is fastest, in bytes.
    pub alignment: u64,
    /// Whether `sync` makes frames survive a crash of the machine.
    pub durable: bool,
    /// What was found out about the medium and what it fell back to, in sentences for people.
    pub notes: Vec<String>,
}
