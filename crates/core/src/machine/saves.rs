//! Saves: room in the fastest tier that can give it.

use alloc::vec::Vec;

use super::room::Room;
use super::{Core, Effort, Open, WaitingSave};
use crate::command::{Command, Refusal};
use crate::event::{Kept, Size};
use crate::lifecycle::state::CopyState;
use crate::lifecycle::table::{Copy, Row};
use crate::types::{RequestId, TierId, Version};

/// What became of an attempt to place a save.
#[derive(PartialEq, Eq)]
enum Placed {
    Granted,
    Refused,
    /// Something that was started may make room.
    Wait,
    /// Something was changed so that another attempt is worth while.
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
        if self.table.find(version).is_some() {
            return Core::refuse(request, Refusal::Duplicate, out);
        }
        if self.bottom(bytes).is_none() {
            let largest = self.tiers.iter().map(|t| t.config.capacity).max().unwrap_or(0);
            return Core::refuse(request, Refusal::TooLarge { largest }, out);
        }
        let row = self.table.insert(version, bytes);
        self.table.get_mut(row).size = size;
        self.waiting_saves.push_back(WaitingSave { request, row, retried: false, blocked: None });
    }

    /// Grants or refuses waiting saves, first come, first served.
    pub(super) fn place_saves(&mut self, out: &mut Vec<Command>, effort: Effort) -> bool {
        let mut progress = false;
        while let Some(save) = self.waiting_saves.front().copied() {
            match self.place_save(save, effort, out) {
                Placed::Wait => break,
                Placed::Again => return true,
                Placed::Granted | Placed::Refused => {
                    self.waiting_saves.pop_front();
                    progress = true;
                }
            }
        }
        progress
    }

    fn place_save(&mut self, save: WaitingSave, effort: Effort, out: &mut Vec<Command>) -> Placed {
        let generation = Some(self.generation());
        if effort == Effort::Usual && save.blocked == generation {
            return Placed::Wait;
        }
        self.waiting_saves.front_mut().expect("this save waits").blocked = generation;
        let bytes = self.table.get(save.row).bytes;
        for tier in self.tier_ids() {
            if !self.tier(tier).can_hold(bytes) {
                continue;
            }
            let room = self.find_room_to_save(tier, save.row);
            if effort == Effort::Usual && self.is_worth_a_wait(tier, bytes, &room) {
                return Placed::Wait;
            }
            match room {
                room @ (Room::Window(_) | Room::Free) => {
                    self.grant(save, tier, room, out);
                    return Placed::Granted;
                }
                Room::AfterFlush(window) if self.demand_flush(tier, window.clone()) => {
                    return Placed::Again;
                }
                // Room comes here; a slower tier would cost a stall now and a prefetch later.
                Room::AfterFlush(_) | Room::AfterDelete if effort == Effort::Usual => {
                    return Placed::Wait;
                }
                _ => {}
            }
        }
        match effort {
            Effort::Usual => Placed::Wait,
            Effort::Last => self.without_room(save, out),
        }
    }

    /// Nothing moves and no tier has room: what else can be given up, in this order.
    fn without_room(&mut self, save: WaitingSave, out: &mut Vec<Command>) -> Placed {
        if self.reclaim() || self.make_room_in_stores(save.row, out) {
            return Placed::Again;
        }
        if !self.is_still() {
            return Placed::Wait;
        }
        if !save.retried {
            self.waiting_saves.front_mut().expect("this save waits").retried = true;
            self.retry_everything();
            // What was taken back above may have let a flush begin: that has its turn first.
            return Placed::Again;
        }
        if !self.open.is_empty() {
            return Placed::Wait;
        }
        let refusal = self.full(self.table.get(save.row).bytes);
        Core::refuse(save.request, refusal, out);
        self.forget_unsaved(save.row);
        Placed::Refused
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

    fn grant(&mut self, save: WaitingSave, tier: TierId, room: Room, out: &mut Vec<Command>) {
        let make = |offset| Copy::new(CopyState::WriteInProgress, offset);
        let place = self.take_room(tier, save.row, room, make, out);
        let checkpoint = self.table.get(save.row).id;
        let offset = place.offset;
        self.open.insert(save.request, Open::Granted { row: save.row, tier, offset });
        out.push(Command::Grant { request: save.request, checkpoint, place });
    }

    pub(super) fn on_save_handed(&mut self, request: RequestId) {
        let Some(&Open::Granted { row, .. }) = self.open.get(&request) else { return };
        if self.table.get(row).handed {
            return;
        }
        self.table.mark_handed(row);
        self.handed += 1;
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
        // Saved below a tier whose planner counts on it already: let that planner look again.
        let position = self.hints.next_use(version);
        for faster in (0..tier.0).map(TierId) {
            self.retreat(faster, position);
        }
        self.settle(row);
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
        // It never was: its version is unknown, not discarded.
        self.table.get_mut(row).handed = false;
        self.forget_unsaved(row);
    }

    /// The save is over: where it was granted room.
    fn end_save(&mut self, request: RequestId) -> Option<(Row, TierId, u64)> {
        let Some(&Open::Granted { row, tier, offset }) = self.open.get(&request) else {
            return None;
        };
        self.open.remove(&request);
        self.handed -= u64::from(self.table.get(row).handed);
        Some((row, tier, offset))
    }

    /// Removes a checkpoint that never came to be.
    pub(super) fn forget_unsaved(&mut self, row: Row) {
        assert!(!self.table.get(row).saved);
        self.table.doom(row);
        self.table.remove(row);
    }
}
