//! Saves whose size is known only when they are done.
//!
//! Such a save is granted room for the most that it can have. It owns this room, and what saves
//! before it left behind their ends, until it is reported; what it does not keep goes to the save
//! of unknown size behind it, if one is in progress there, else it is a gap. A save that is aborted
//! keeps nothing. Saves that are granted one after the
//! other stand one behind the other, so when all are reported their bytes do too, without holes.

use alloc::vec::Vec;

use super::room::Room;
use super::{Core, Open};
use crate::event::Kept;
use crate::lifecycle::state::CopyState;
use crate::lifecycle::table::Row;
use crate::policy::fragments::Fragment;
use crate::types::{Nanos, TierId};

/// A save that the application has handed over, in an arena.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pending {
    offset: u64,
    end: u64,
    /// What of its room will probably be left.
    rest: u64,
}

impl Core {
    /// As [`Core::find_room`], for the save in `row`. One of unknown size goes behind the last one
    /// of them wherever that leaves it enough.
    pub(super) fn find_room_to_save(&self, tier: TierId, row: Row) -> Room {
        let ckpt = self.table.get(row);
        let state = self.tier(tier);
        let size = state.size_of(ckpt.bytes);
        if let Some(arena) = state.arena.as_ref().filter(|_| ckpt.will_shrink() && size > 0)
            && let Some(gap) = arena.gap_around(state.chain)
            && arena.as_slice()[gap].bytes >= size
        {
            return Room::Window(gap..gap + 1);
        }
        self.find_room(tier, ckpt.bytes, None)
    }

    /// `room` would cost something, and the saves that are being compressed will probably leave
    /// enough without that; or there is none, but with what they have there could be. They are
    /// reported without the application: waiting for them ends.
    pub(super) fn is_worth_a_wait(&self, tier: TierId, bytes: u64, room: &Room) -> bool {
        self.handed > 0
            && match room {
                // What is written to a slower tier instead holds up all that the application
                // enqueues behind it.
                Room::None => self.could_have_room(tier, bytes),
                _ => !self.is_free_of_cost(tier, room) && self.will_leave(tier, bytes),
            }
    }

    /// Whether there are `bytes` bytes side by side in an arena that are free, or may go in time,
    /// or are those of handed saves.
    fn could_have_room(&self, tier: TierId, bytes: u64) -> bool {
        let state = self.tier(tier);
        let stays = |fragment: &Fragment| {
            fragment.resident.is_some_and(|resident| {
                let ckpt = self.table.get(resident.row);
                let is_saved = ckpt.copy(tier).is_some_and(|copy| !copy.is_being_saved());
                resident.ready_at == Nanos::NEVER && (is_saved || !ckpt.handed)
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

    /// Nobody will miss what has to go for this room.
    fn is_free_of_cost(&self, tier: TierId, room: &Room) -> bool {
        let unwanted = |fragment: &Fragment| {
            let copy = fragment.resident.and_then(|r| self.table.get(r.row).copy(tier));
            copy.is_none_or(|copy| copy.state == CopyState::Consumed)
        };
        match room {
            Room::Window(window) => {
                self.arena(tier).as_slice()[window.clone()].iter().all(unwanted)
            }
            Room::Free => true,
            _ => false,
        }
    }

    /// Whether the saves that are handed over will probably leave `bytes` bytes side by side: what
    /// is left of those that stand one behind the other is in the end one gap, with the one that
    /// follows them.
    fn will_leave(&self, tier: TierId, bytes: u64) -> bool {
        let Some(arena) = &self.tier(tier).arena else { return false };
        let need = self.tier(tier).size_of(bytes);
        let (mut at, mut rest) = (0, 0u64);
        for pending in self.pending_in(tier) {
            let begins = pending.offset != at;
            rest = if begins { pending.rest } else { rest.saturating_add(pending.rest) };
            at = pending.end;
            let behind = arena.next_after(pending.offset).filter(|f| f.resident.is_none());
            if rest.saturating_add(behind.map_or(0, |gap| gap.bytes)) >= need {
                return true;
            }
        }
        false
    }

    /// The saves in an arena that are handed over, by address.
    fn pending_in(&self, wanted: TierId) -> Vec<Pending> {
        let pending = self.open.values().filter_map(|open| match *open {
            Open::Granted { row, tier, offset } if tier == wanted => {
                self.pending(row, tier, offset)
            }
            _ => None,
        });
        let mut pending: Vec<Pending> = pending.collect();
        pending.sort_unstable();
        pending
    }

    fn pending(&self, row: Row, tier: TierId, granted: u64) -> Option<Pending> {
        let (ckpt, state) = (self.table.get(row), self.tier(tier));
        let size = state.size_of(ckpt.bytes);
        let copy = ckpt.copy(tier).filter(|_| ckpt.handed && size > 0)?;
        let (offset, end) = (copy.offset, granted + size);
        let expected = state.size_of(self.table.expected(ckpt));
        Some(Pending { offset, end, rest: end - offset - expected })
    }

    /// The save in `row` takes only `kept` of its room.
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

    /// The save whose room begins at `at` keeps `[begin, end)` of it.
    fn keep_range(&mut self, row: Row, tier: TierId, (at, begin, end): (u64, u64, u64)) {
        let heir = self.heir(row, tier, at);
        let state = self.tier_mut(tier);
        let arena = state.arena.as_mut().expect("an arena");
        let room = arena.as_slice()[arena.index_of(at)];
        arena.keep(at, begin..end, heir.is_some());
        if state.chain == room.offset + room.bytes {
            state.chain = end;
        }
        if let Some(heir) = heir {
            self.move_copy(heir, tier, end);
        }
        self.move_copy(row, tier, if begin < end { begin } else { 0 });
    }

    fn move_copy(&mut self, row: Row, tier: TierId, offset: u64) {
        self.table.get_mut(row).copy_mut(tier).expect("a copy in this tier").offset = offset;
    }

    /// The save that gets what the one in `row` leaves behind its end: it stands directly behind
    /// it, and its bytes may begin where those before them end.
    fn heir(&self, row: Row, tier: TierId, offset: u64) -> Option<Row> {
        let behind = self.arena(tier).next_after(offset)?.resident?.row;
        let in_progress = self.table.get(behind).copy(tier)?.is_being_saved();
        let both = [row, behind].iter().all(|&row| self.table.get(row).will_shrink());
        (in_progress && both).then_some(behind)
    }
}
