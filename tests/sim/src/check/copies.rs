//! The expected state of one checkpoint: the places of its bytes, and their users.

use unspool_core::{CheckpointId, Failure, MAX_TIERS, Size, TierConfig, TierId, Version};

/// The stage of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Granted; the application has not reported it yet.
    Saving,
    /// In flight: the application is done with the save, and its report is pending. Calls wait for
    /// it.
    InFlight,
    /// Saved: it must be restorable.
    Live,
    /// Discarded or never saved: its copies will be removed.
    Gone,
}

/// The space of one checkpoint in one tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holding {
    /// Offset in an arena.
    pub offset: u64,
    /// Size in bytes with alignment and, in a store, the head.
    pub size: u64,
    /// All bytes are present.
    pub ready: bool,
    /// The application or a transfer is writing the bytes.
    pub filling: bool,
    /// Unfinished reads by the application.
    pub readers: u32,
    /// Unfinished transfers that read it.
    pub sources: u32,
    /// A deletion is in flight.
    pub deleting: bool,
    /// A transfer found the bytes damaged or missing.
    pub bad: bool,
}

impl Holding {
    /// Space for `size` bytes that are about to be written.
    #[must_use]
    pub fn filling(offset: u64, size: u64) -> Holding {
        let (ready, filling, deleting, bad) = (false, true, false, false);
        Holding { offset, size, ready, filling, readers: 0, sources: 0, deleting, bad }
    }

    /// Whether an unfinished operation uses the space.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.filling || self.readers > 0 || self.sources > 0 || self.deleting
    }

    /// Whether the bytes can be read.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.ready && !self.bad && !self.deleting
    }
}

/// The expected state of one checkpoint.
#[derive(Clone, Debug)]
pub struct Books {
    /// Its id.
    pub id: CheckpointId,
    /// Its version.
    pub version: Version,
    /// Size of its payload; while it is being saved, the requested size.
    pub bytes: u64,
    /// Present from grant to report: whether `bytes` is exact or a maximum.
    pub saving: Option<Size>,
    /// How far it has come.
    pub stage: Stage,
    /// Its space in each tier.
    pub holdings: [Option<Holding>; MAX_TIERS],
    /// The last failure that destroyed a copy of it.
    pub harm: Option<Failure>,
}

impl Books {
    /// A checkpoint without a copy.
    #[must_use]
    pub fn new(id: CheckpointId, version: Version, bytes: u64, stage: Stage) -> Books {
        Books { id, version, bytes, saving: None, stage, holdings: [None; MAX_TIERS], harm: None }
    }

    /// Its space in `tier`.
    #[must_use]
    pub fn at(&self, tier: TierId) -> Option<&Holding> {
        self.holdings.get(usize::from(tier.0))?.as_ref()
    }

    /// Whether the bytes can be read in any tier.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.holdings.iter().flatten().any(Holding::is_good)
    }

    /// Whether the bytes can be read in a tier other than `tier`.
    #[must_use]
    pub fn is_readable_outside(&self, tier: usize) -> bool {
        let others = self.holdings.iter().enumerate().filter(|(t, _)| *t != tier);
        others.filter_map(|(_, holding)| holding.as_ref()).any(Holding::is_good)
    }
}

/// Size of a payload in a tier: aligned, and in a store with a unit for the head.
#[must_use]
pub fn size_in(tier: &TierConfig, bytes: u64) -> u64 {
    let aligned = bytes.checked_next_multiple_of(tier.alignment).unwrap_or(u64::MAX);
    if tier.kind.is_arena() { aligned } else { aligned.saturating_add(tier.alignment) }
}

/// Whether an empty tier can hold a payload.
#[must_use]
pub fn can_hold(tier: &TierConfig, bytes: u64) -> bool {
    let whole = tier.capacity - tier.capacity % tier.alignment;
    let capacity = if tier.kind.is_arena() { whole } else { tier.capacity };
    let size = size_in(tier, bytes);
    size <= capacity && size < u64::MAX
}
