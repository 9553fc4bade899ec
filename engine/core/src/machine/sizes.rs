//! Saves whose size is known only when they are done.
//!
//! Such a save is granted room for the most that it can have, directly after the room of the last
//! one where that is possible. When it is reported it keeps a part of its room. The rest goes to
//! the save of unknown size whose room follows, if that is still in progress, or else becomes a
//! gap. A save that is aborted keeps nothing. So when all are reported, their bytes follow each
//! other without holes.

use alloc::vec::Vec;

use super::room::RoomIn;
use super::{Core, Open};
use crate::event::Kept;
use crate::lifecycle::state::CopyState;
use crate::lifecycle::table::Row;
use crate::policy::fragments::Fragment;
use crate::types::{Nanos, TierId};

/// A save in flight in an arena: its room, and how much of that it will probably leave.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PendingSize {
    offset: u64,
    end: u64,
    rest: u64,
}

impl Core {
    /// As [`Core::find_room`], for the save in `row`. One of unknown size goes directly after the
    /// last one of them if there is room.
    pub(super) fn find_room_to_save(&self, tier: TierId, row: Row) -> RoomIn {
        let ckpt = self.table.get(row);
        let state = self.tier(tier);
        let size = state.size_of(ckpt.bytes);
        if let Some(arena) = state.arena.as_ref().filter(|_| ckpt.will_shrink() && size > 0)
            && let Some(gap) = arena.gap_around(state.chain)
            && arena.as_slice()[gap].bytes >= size
        {
            return RoomIn::Window(gap..gap + 1);
        }
        self.find_room(tier, ckpt.bytes, None)
    }

    /// Whether a save of `bytes` should wait for the saves in flight instead of taking `room`:
    /// taking it would cost something, and they will probably leave enough; or there is no room,
    /// and with theirs there could be. The wait ends, since they are reported without the
    /// application.
    pub(super) fn is_worth_a_wait(&self, tier: TierId, bytes: u64, room: &RoomIn) -> bool {
        self.saves_in_flight > 0
            && match room {
                // A save to a slower tier would hold up everything that the application enqueues
                // after it.
                RoomIn::None => self.could_have_room(tier, bytes),
                _ => !self.is_free_of_cost(tier, room) && self.will_leave(tier, bytes),
            }
    }

    /// Whether an arena has `bytes` adjacent bytes that are free, may be evicted in time, or belong
    /// to saves in flight.
    fn could_have_room(&self, tier: TierId, bytes: u64) -> bool {
        let state = self.tier(tier);
        let stays = |fragment: &Fragment| {
            fragment.resident.is_some_and(|resident| {
                let ckpt = self.table.get(resident.row);
                let is_saved = ckpt.copy(tier).is_some_and(|copy| !copy.is_being_saved());
                resident.ready_at == Nanos::NEVER && (is_saved || !ckpt.in_flight)
            })
        };
        let mut run = 0u64;
        state.arena.as_ref().is_some_and(|arena| {
            arena.as_slice().iter().any(|fragment| {
                run = if stays(fragment) { 0 } else { run + fragment.bytes };
                run >= state.size_of(bytes)
            })
        })
    }

    /// Whether taking this room evicts nothing but consumed copies.
    fn is_free_of_cost(&self, tier: TierId, room: &RoomIn) -> bool {
        let unwanted = |fragment: &Fragment| {
            let copy = fragment.resident.and_then(|r| self.table.get(r.row).copy(tier));
            copy.is_none_or(|copy| copy.state == CopyState::Consumed)
        };
        match room {
            RoomIn::Window(window) => {
                self.arena(tier).as_slice()[window.clone()].iter().all(unwanted)
            }
            RoomIn::Free => true,
            _ => false,
        }
    }

    /// Whether the saves in flight will probably leave a gap of `bytes`: what adjacent ones leave
    /// becomes one gap, together with the gap that follows them.
    fn will_leave(&self, tier: TierId, bytes: u64) -> bool {
        let Some(arena) = &self.tier(tier).arena else { return false };
        let need = self.tier(tier).size_of(bytes);
        let (mut at, mut rest) = (0, 0u64);
        for pending in self.pending_in(tier) {
            let begins = pending.offset != at;
            rest = if begins { pending.rest } else { rest.saturating_add(pending.rest) };
            at = pending.end;
            let following = arena.next_after(pending.offset).filter(|f| f.resident.is_none());
            if rest.saturating_add(following.map_or(0, |gap| gap.bytes)) >= need {
                return true;
            }
        }
        false
    }

    /// The saves in flight in an arena, by address.
    fn pending_in(&self, wanted: TierId) -> Vec<PendingSize> {
        let pending = self.open.values().filter_map(|open| match *open {
            Open::Granted { row, tier, offset } if tier == wanted => {
                self.pending(row, tier, offset)
            }
            _ => None,
        });
        let mut pending: Vec<PendingSize> = pending.collect();
        pending.sort_unstable();
        pending
    }

    fn pending(&self, row: Row, tier: TierId, granted: u64) -> Option<PendingSize> {
        let (ckpt, state) = (self.table.get(row), self.tier(tier));
        let size = state.size_of(ckpt.bytes);
        let copy = ckpt.copy(tier).filter(|_| ckpt.in_flight && size > 0)?;
        let (offset, end) = (copy.offset, granted + size);
        let expected = state.size_of(self.table.expected(ckpt));
        Some(PendingSize { offset, end, rest: end - offset - expected })
    }

    /// Reduces the room of the save in `row` to `kept`.
    pub(super) fn keep(&mut self, row: Row, tier: TierId, kept: Kept) {
        let ckpt = self.table.get_mut(row);
        assert!(kept.bytes <= ckpt.bytes, "a save keeps at most what it asked for");
        let asked = core::mem::replace(&mut ckpt.bytes, kept.bytes);
        let at = ckpt.copy(tier).expect("a save in progress").offset;
        let state = self.tier_mut(tier);
        let (had, keeps) = (state.size_of(asked), state.size_of(kept.bytes));
        if state.arena.is_none() {
            state.store_used -= had - keeps;
        } else if had > 0 {
            let begin = if keeps > 0 { kept.offset } else { at };
            assert!(begin % state.config.alignment == 0, "a save keeps what is aligned");
            self.keep_range(row, tier, (at, begin, begin + keeps));
        }
    }

    /// Reduces the room of a save in an arena, which begins at `at`, to `[begin, end)`.
    fn keep_range(&mut self, row: Row, tier: TierId, (at, begin, end): (u64, u64, u64)) {
        if at >= self.arena(tier).capacity() {
            // The arena has lost these bytes: the save did not come to anything.
            return;
        }
        let next = self.next_in_progress(row, tier, at);
        let state = self.tier_mut(tier);
        let arena = state.arena.as_mut().expect("an arena");
        let room = arena.as_slice()[arena.index_of(at)];
        arena.keep(at, begin..end, next.is_some());
        if state.chain == room.offset + room.bytes {
            state.chain = end;
        }
        if let Some(next) = next {
            self.move_copy(next, tier, end);
        }
        self.move_copy(row, tier, if begin < end { begin } else { 0 });
    }

    fn move_copy(&mut self, row: Row, tier: TierId, offset: u64) {
        self.table.get_mut(row).copy_mut(tier).expect("a copy in this tier").offset = offset;
    }

    /// The save of unknown size in progress whose room directly follows that of the one in `row`:
    /// it gets what that one leaves at its end, and its bytes may begin there.
    fn next_in_progress(&self, row: Row, tier: TierId, offset: u64) -> Option<Row> {
        let next = self.arena(tier).next_after(offset)?.resident?.row;
        let in_progress = self.table.get(next).copy(tier)?.is_being_saved();
        let both = [row, next].iter().all(|&row| self.table.get(row).will_shrink());
        (in_progress && both).then_some(next)
    }
}
