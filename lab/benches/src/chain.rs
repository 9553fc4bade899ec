//! Compressed saves of unknown size: a few are pending at any time, and each begins where the one
//! before it ends, as with an encoder on a GPU.

use std::collections::VecDeque;

use unspool_core::{Event, Kept, Place, RequestId};

/// Number of pending saves.
const PENDING: usize = 8;

/// A save whose size the core does not know yet.
struct Pending {
    request: RequestId,
    place: Place,
    /// End of the granted space.
    room_end: u64,
    /// Its final size in bytes.
    stored: u64,
    /// Whether it begins where the one before it ends.
    chained: bool,
}

/// The pending saves, in order.
#[derive(Default)]
pub struct Chain {
    pending: VecDeque<Pending>,
    /// End of the bytes of the last reported save.
    end: u64,
}

impl Chain {
    /// Adds a granted save of at most `bytes` bytes, whose final size is `stored`.
    pub fn add(
        &mut self,
        request: RequestId,
        place: Place,
        (bytes, stored): (u64, u64),
        unit: u64,
    ) {
        let before =
            |last: &Pending| last.place.tier == place.tier && last.room_end == place.offset;
        let chained = self.pending.back().is_some_and(before);
        let room_end = place.offset + bytes.next_multiple_of(unit);
        self.pending.push_back(Pending { request, place, room_end, stored, chained });
    }

    /// Whether too many saves are pending.
    pub fn is_long(&self) -> bool {
        self.pending.len() > PENDING
    }

    /// Reports the first pending save.
    pub fn report_first(&mut self, unit: u64) -> Option<Event> {
        let Pending { request, place, stored, chained, .. } = self.pending.pop_front()?;
        let offset = if chained { self.end.next_multiple_of(unit) } else { place.offset };
        self.end = offset + stored;
        Some(Event::Saved { request, kept: Some(Kept { offset, bytes: stored }) })
    }
}
