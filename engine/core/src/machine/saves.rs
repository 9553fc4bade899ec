//! Saves: room in the fastest tier that can give it.

use alloc::vec::Vec;

use super::room::RoomIn;
use super::{Core, Effort, Open, WaitingSave};
use crate::command::{Command, Refusal};
use crate::event::{Kept, Size};
use crate::lifecycle::state::CopyState;
use crate::lifecycle::table::{Copy, Row};
use crate::types::{RequestId, TierId, Version};

/// What became of an attempt to place a save.
#[derive(PartialEq, Eq)]
enum SavePlacement {
    Granted,
    Refused,
    /// No room yet; something that was started may make some.
    Wait,
    /// Something was changed, so that another attempt may find room.
    Again,
}

impl Core {
    pub(super) fn on_save(
        &mut self,
        request: RequestId,
        version: Version,
        (bytes, size): (u64, Size),
        out: &mut Vec<Command>,
    ) {
        self.writing = true;
        self.rewriting.saves();
        if self.table.find(version).is_some() {
            return Core::refuse(request, Refusal::Duplicate, out);
        }
        if self.bottom(bytes).is_none() {
            let refusal = Refusal::TooLarge { largest: self.largest() };
            return Core::refuse(request, refusal, out);
        }
        let row = self.table.insert(version, bytes);
        self.table.get_mut(row).size = size;
        self.waiting_saves.push_back(WaitingSave { request, row, retried: false, blocked: None });
    }

    /// The capacity of the largest tier.
    pub(super) fn largest(&self) -> u64 {
        self.tiers.iter().filter(|t| !t.lost).map(|t| t.config.capacity).max().unwrap_or(0)
    }

    /// Grants or refuses waiting saves, first come, first served.
    pub(super) fn place_saves(&mut self, out: &mut Vec<Command>, effort: Effort) -> bool {
        let mut progress = false;
        while let Some(save) = self.waiting_saves.front().copied() {
            match self.place_save(save, effort, out) {
                SavePlacement::Wait => break,
                SavePlacement::Again => return true,
                SavePlacement::Granted | SavePlacement::Refused => {
                    self.waiting_saves.pop_front();
                    progress = true;
                }
            }
        }
        progress
    }

    fn place_save(
        &mut self,
        save: WaitingSave,
        effort: Effort,
        out: &mut Vec<Command>,
    ) -> SavePlacement {
        let generation = Some(self.generation());
        if effort == Effort::Usual && save.blocked == generation {
            return SavePlacement::Wait;
        }
        let first = self.waiting_saves.front_mut().expect("this save waits");
        debug_assert_eq!(first.request, save.request, "saves are placed in their order");
        first.blocked = generation;
        let bytes = self.table.get(save.row).bytes;
        for tier in self.tier_ids() {
            if !self.tier(tier).can_hold(bytes) {
                continue;
            }
            let room = self.find_room_to_save(tier, save.row);
            if effort == Effort::Usual && self.is_worth_a_wait(tier, bytes, &room) {
                return SavePlacement::Wait;
            }
            match room {
                room @ (RoomIn::Window(_) | RoomIn::Free) => {
                    self.grant(save, tier, room, out);
                    return SavePlacement::Granted;
                }
                RoomIn::AfterFlush(window) if self.demand_flush(tier, window.clone()) => {
                    return SavePlacement::Again;
                }
                // This tier will have room; a slower one would cost a stall now, a prefetch later.
                RoomIn::AfterFlush(_) | RoomIn::AfterDelete if effort == Effort::Usual => {
                    return SavePlacement::Wait;
                }
                RoomIn::None if self.give_way(tier, save.row) => return SavePlacement::Again,
                _ => {}
            }
        }
        match effort {
            Effort::Usual => SavePlacement::Wait,
            Effort::Last => self.without_room(save, out),
        }
    }

    /// Gives up one thing after the other to make room, and refuses the save when nothing is left.
    /// Called when nothing moves and no tier has room.
    fn without_room(&mut self, save: WaitingSave, out: &mut Vec<Command>) -> SavePlacement {
        if self.reclaim() || self.make_room_in_stores(save.row, out) {
            return SavePlacement::Again;
        }
        if !self.is_still() {
            return SavePlacement::Wait;
        }
        if !save.retried {
            self.waiting_saves.front_mut().expect("this save waits").retried = true;
            self.retry_everything();
            // A retry may have made a flush possible: that has its turn first.
            return SavePlacement::Again;
        }
        if !self.open.is_empty() {
            return SavePlacement::Wait;
        }
        let refusal = self.full(self.table.get(save.row).bytes);
        Core::refuse(save.request, refusal, out);
        self.forget_unsaved(save.row);
        SavePlacement::Refused
    }

    fn full(&self, bytes: u64) -> Refusal {
        let tier = self.bottom(bytes).expect("a save that fits nowhere was refused before");
        let state = self.tier(tier);
        Refusal::Full {
            tier: state.config.kind,
            capacity: state.config.capacity,
            used: state.used(),
            failure: state.failure,
        }
    }

    fn grant(&mut self, save: WaitingSave, tier: TierId, room: RoomIn, out: &mut Vec<Command>) {
        let make = |offset| Copy::new(CopyState::WriteInProgress, offset);
        let place = self.take_room(tier, save.row, room, make, out);
        let checkpoint = self.table.get(save.row).id;
        let offset = place.offset;
        self.open.insert(save.request, Open::Granted { row: save.row, tier, offset });
        out.push(Command::Grant { request: save.request, checkpoint, place });
    }

    pub(super) fn on_save_in_flight(&mut self, request: RequestId) {
        let Some(&Open::Granted { row, .. }) = self.open.get(&request) else { return };
        if self.table.get(row).in_flight {
            return;
        }
        self.table.mark_in_flight(row);
        self.saves_in_flight += 1;
        self.unflushed.insert(self.table.get(row).id, row);
    }

    pub(super) fn on_saved(
        &mut self,
        request: RequestId,
        kept: Option<Kept>,
        out: &mut Vec<Command>,
    ) {
        let Some((row, tier, offset)) = self.end_save(request) else { return };
        let asked = self.table.get(row).bytes;
        self.keep(row, tier, kept.unwrap_or(Kept { offset, bytes: asked }));
        self.table.mark_saved(row, asked);
        let bytes = self.table.get(row).bytes;
        self.stats.saves += 1;
        self.stats.saved_bytes += bytes;
        self.set_state(row, tier, CopyState::WriteComplete);
        self.may_move_now(tier);
        if self.table.get(row).doomed {
            self.count_skipped_flushes(row);
            return self.clear_doomed(row, out);
        }
        let (id, version) = (self.table.get(row).id, self.table.get(row).version);
        if self.bottom(bytes) == Some(tier) {
            self.unflushed.remove(&id);
        } else {
            self.unflushed.insert(id, row);
        }
        // The planner of a faster tier may have passed over the hint: it has to look again.
        let position = self.hints.next_use(version);
        for faster in (0..tier.0).map(TierId) {
            self.retreat(faster, position);
        }
        self.rest(row);
    }

    pub(super) fn on_save_aborted(&mut self, request: RequestId, out: &mut Vec<Command>) {
        let Some((row, tier, offset)) = self.end_save(request) else { return };
        let id = self.table.get(row).id;
        self.unflushed.remove(&id);
        self.keep(row, tier, Kept { offset, bytes: 0 });
        self.undo_copy(row, tier);
        if self.table.get(row).doomed {
            return self.table.remove(row);
        }
        self.waiting_restores.retain(|wait| {
            if wait.row == row {
                Core::refuse(wait.request, Refusal::Unknown, out);
            }
            wait.row != row
        });
        // The version counts as never saved: unknown, not discarded.
        self.table.get_mut(row).in_flight = false;
        self.forget_unsaved(row);
    }

    /// Ends a save; gives the row, the tier and the offset that it was granted.
    fn end_save(&mut self, request: RequestId) -> Option<(Row, TierId, u64)> {
        let Some(&Open::Granted { row, tier, offset }) = self.open.get(&request) else {
            return None;
        };
        let copy = self.table.get(row).copy(tier);
        debug_assert!(copy.is_some_and(Copy::is_being_saved), "a granted save is in progress");
        self.open.remove(&request);
        self.saves_in_flight -= u64::from(self.table.get(row).in_flight);
        Some((row, tier, offset))
    }

    /// Removes a checkpoint whose save was withdrawn, refused or aborted.
    pub(super) fn forget_unsaved(&mut self, row: Row) {
        assert!(!self.table.get(row).saved);
        self.table.doom(row);
        self.table.remove(row);
    }
}
