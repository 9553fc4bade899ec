//! The words of the project, as types. Everything here is plain data.

use core::fmt;

/// The name that the user gives to a checkpoint: an integer, usually the time step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version(pub i64);

/// One saved state, named once and for ever.
///
/// A version may be saved again after it was discarded; its checkpoint then has a new id, so that
/// a late operation on the old bytes can never be mistaken for one on the new.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CheckpointId(pub u64);

/// A tier by its place in the stack: 0 is the fastest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TierId(pub u8);

/// One call of the application (a save, a restore, a flush) that waits for an answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// One movement of a checkpoint between two tiers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TransferId(pub u64);

/// A point in time or a duration, in nanoseconds. Time comes from outside, with every event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The time that is never reached.
    pub const NEVER: Nanos = Nanos(u64::MAX);

    /// `self - earlier`, or zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self + span`, at most [`Nanos::NEVER`].
    #[must_use]
    pub fn plus(self, span: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(span.0))
    }
}

/// What a tier is made of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TierKind {
    /// GPU memory, or plain memory standing in for it (`device="cpu"`).
    Device,
    /// Host memory, pinned where there is a GPU.
    Host,
    /// A local file system.
    Disk,
    /// An object store or a parallel file system.
    Remote,
}

impl TierKind {
    /// Whether the core places checkpoints in this tier by offset (an arena), or the tier finds
    /// room by itself (a store).
    #[must_use]
    pub fn is_arena(self) -> bool {
        matches!(self, TierKind::Device | TierKind::Host)
    }

    /// The option that sizes the tier.
    #[must_use]
    pub fn option(self) -> &'static str {
        match self {
            TierKind::Device => "device_memory",
            TierKind::Host => "host_memory",
            TierKind::Disk => "disk",
            TierKind::Remote => "remote",
        }
    }

    /// The name that users see.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TierKind::Device => "device",
            TierKind::Host => "host",
            TierKind::Disk => "disk",
            TierKind::Remote => "remote",
        }
    }
}

impl fmt::Display for TierKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where a copy of a checkpoint rests: a tier, and in an arena the offset of its first byte.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// The tier.
    pub tier: TierId,
    /// Byte offset in an arena; 0 in a store.
    pub offset: u64,
}
