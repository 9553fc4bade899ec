//! Saves that are compressed on their way: a few are pending at any time, and each begins where
//! the one before it ends, as an encoder on a GPU does it.

use std::collections::VecDeque;

use unspool_core::{Event, Kept, Place, RequestId};

/// So many saves are pending.
const PENDING: usize = 8;

/// A save whose size is not known to the core yet.
struct Pending {
    request: RequestId,
    place: Place,
    /// Where the room that was granted ends.
    room_end: u64,
    /// Bytes that it will have.
    stored: u64,
    /// It begins where the one before it ends.
    chained: bool,
}

/// The saves that are pending, in order.
#[derive(Default)]
pub struct Chain {
    pending: VecDeque<Pending>,
    /// Where the bytes of the last one that was reported end.
    end: u64,
}

impl Chain {
    /// A save of at most `bytes` bytes was granted, and will have `stored`.
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

    /// Whether more are pending than should be.
    pub fn is_long(&self) -> bool {
        self.pending.len() > PENDING
    }

    /// The report of the first one.
    pub fn settle(&mut self, unit: u64) -> Option<Event> {
        let Pending { request, place, stored, chained, .. } = self.pending.pop_front()?;
        let offset = if chained { self.end.next_multiple_of(unit) } else { place.offset };
        self.end = offset + stored;
        Some(Event::Saved { request, kept: Some(Kept { offset, bytes: stored }) })
    }
}
