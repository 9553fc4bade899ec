//! A tier of a stack, of which is known whether it is memory that is read and written in place.

use std::sync::Arc;

use crate::arena::Arena;
use crate::tier::Tier;

/// An arena, whose bytes are borrowed in place, or a store, into which they are copied.
#[derive(Clone, Debug)]
pub enum AnyTier {
    /// Memory, whose places the core chooses.
    Arena(Arena),
    /// A tier that finds room by itself.
    Store(Arc<dyn Tier>),
}

impl AnyTier {
    /// What both can do.
    #[must_use]
    pub fn tier(&self) -> &dyn Tier {
        match self {
            AnyTier::Arena(arena) => arena,
            AnyTier::Store(store) => &**store,
        }
    }

    /// The arena; `None` for a store.
    #[must_use]
    pub fn arena(&self) -> Option<&Arena> {
        match self {
            AnyTier::Arena(arena) => Some(arena),
            AnyTier::Store(_) => None,
        }
    }
}
