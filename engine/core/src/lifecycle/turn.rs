//! The order in which copies are flushed.

use core::cmp::Reverse;

/// The turn of a copy in the queue of its link; the smallest is first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FlushTurn {
    pub need: FlushNeed,
    /// In the order in which copies came to have this need.
    pub number: u64,
}

/// What the flush of a copy is good for; what is better comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum FlushNeed {
    /// A flush call waits for it.
    Asked,
    /// Its bytes were used and no hint names it: nobody wants the room that it takes.
    Used,
    /// No hint names it: its room can be given up as soon as it is flushed.
    Unnamed,
    /// A hint names it; its room can be given up where there is too little of it. The larger the
    /// rank, the sooner.
    Named(Reverse<u64>),
}
