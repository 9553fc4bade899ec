//! Arenas that turn out smaller than they were said to be, or have as much again, and arenas whose
//! device is lost.
//!
//! Memory is taken while an arena is used already, and another process may have taken some of it
//! meanwhile. What had room in the bytes that never come is given up by those who were filling
//! it, and finds other room, here or in a slower tier.

use alloc::vec::Vec;

use super::transfers::Transfer;
use super::{Core, Open};
use crate::command::{Command, Refusal};
use crate::lifecycle::table::{Copy, Row};
use crate::types::TierId;

impl Core {
    /// The size of a tier in bytes: that of its settings, or less after an event `Shrunk`.
    ///
    /// # Panics
    /// When the core has no tier of this number.
    #[must_use]
    pub fn capacity(&self, tier: TierId) -> u64 {
        self.tier(tier).config.capacity
    }

    pub(super) fn on_shrunk(&mut self, tier: TierId, capacity: u64, out: &mut Vec<Command>) {
        let arena = self.tiers.get(usize::from(tier.0)).and_then(|state| state.arena.as_ref());
        let Some(arena) = arena.filter(|_| capacity < self.capacity(tier)) else { return };
        let complete = arena.as_slice().iter().rev().find(|fragment| {
            let copy = fragment.resident.and_then(|r| self.table.get(r.row).copy(tier));
            copy.is_some_and(|copy| copy.state.is_complete())
        });
        let held = complete.map_or(0, |fragment| fragment.offset + fragment.bytes);
        let (capacity, end) = (capacity.max(held), arena.capacity());
        let state = self.tier_mut(tier);
        let whole = (capacity & !(state.config.alignment - 1)).max(held).min(end);
        (state.config.capacity, state.chain) = (capacity, state.chain.min(whole));
        state.generation += 1;
        self.arena_mut(tier).shrink(whole);
        self.stats.tier(tier).capacity = capacity;
        self.room_has_changed(out);
    }

    pub(super) fn on_taken_by_need(&mut self, tier: TierId) {
        let state = self.tiers.get_mut(usize::from(tier.0));
        if let Some(arena) = state.and_then(|state| state.arena.as_mut()) {
            arena.take_by_need();
        }
    }

    pub(super) fn on_grown(&mut self, tier: TierId, capacity: u64, out: &mut Vec<Command>) {
        let first = self.config.tiers.get(usize::from(tier.0));
        let Some(first) = first.filter(|first| first.kind.is_arena()) else { return };
        let capacity = capacity.min(first.capacity);
        if capacity <= self.capacity(tier) || self.is_left_over(tier) {
            return;
        }
        let state = self.tier_mut(tier);
        let whole = capacity & !(state.config.alignment - 1);
        state.config.capacity = capacity;
        state.generation += 1;
        self.arena_mut(tier).grow(whole);
        self.stats.tier(tier).capacity = capacity;
        self.room_has_changed(out);
    }

    /// Whether a copy was on its way to bytes that an arena has lost since. A save in flight ends
    /// where it was granted, wherever its room begins by now.
    fn is_left_over(&self, tier: TierId) -> bool {
        let (state, end) = (self.tier(tier), self.arena(tier).capacity());
        let is_beyond = |open: &Open| match *open {
            Open::Granted { row, tier: to, offset } => {
                let size = state.size_of(self.table.get(row).bytes);
                to == tier && offset.saturating_add(size) > end
            }
            Open::Served { .. } => false,
        };
        if self.open.values().any(is_beyond) {
            return true;
        }
        self.table.rows().any(|row| {
            let ckpt = self.table.get(row);
            let ends = |copy: &Copy| copy.offset.saturating_add(state.size_of(ckpt.bytes));
            ckpt.copy(tier).is_some_and(|copy| ends(copy) > end)
        })
    }

    pub(super) fn on_tier_failed(&mut self, tier: TierId, out: &mut Vec<Command>) {
        let state = self.tiers.get_mut(usize::from(tier.0));
        let Some(state) = state.filter(|state| state.arena.is_some() && !state.lost) else {
            return;
        };
        state.lost = true;
        state.generation += 1;
        for row in self.table.rows().collect::<Vec<_>>() {
            self.leave_lost_tiers(row, out);
        }
        self.room_has_changed(out);
    }

    /// Gives up the copies in lost tiers where there is another one to read.
    pub(super) fn leave_lost_tiers(&mut self, row: Row, out: &mut Vec<Command>) {
        let ckpt = self.table.get(row);
        let elsewhere = ckpt.complete_tiers().any(|t| !self.tier(t).lost);
        if ckpt.doomed || !elsewhere {
            return;
        }
        for tier in self.tier_ids().filter(|&t| self.tier(t).lost).collect::<Vec<_>>() {
            let copy = self.table.get_mut(row).copy_mut(tier);
            if let Some(copy) = copy.filter(|copy| copy.is_usable()) {
                copy.damaged = true;
            }
        }
        self.drop_damaged(row, out);
    }

    fn room_has_changed(&mut self, out: &mut Vec<Command>) {
        self.flush_lanes.iter_mut().for_each(|lane| lane.blocked = None);
        self.look_for_bottoms_again();
        self.refuse_too_large(out);
    }

    /// Which tier is the slowest that can hold a checkpoint has changed.
    fn look_for_bottoms_again(&mut self) {
        let saved = |row: &Row| {
            let ckpt = self.table.get(*row);
            ckpt.saved && !ckpt.doomed && ckpt.lost.is_none()
        };
        for row in self.table.rows().filter(saved).collect::<Vec<_>>() {
            let ckpt = self.table.get(row);
            let bottom = self.bottom(ckpt.bytes);
            let there = bottom.and_then(|t| ckpt.copy(t)).is_some_and(Copy::is_usable);
            let id = ckpt.id;
            if there {
                self.unflushed.remove(&id);
            } else {
                self.unflushed.insert(id, row);
            }
            self.rest(row);
        }
    }

    /// Refuses the saves that wait for room and fit into no tier any more.
    fn refuse_too_large(&mut self, out: &mut Vec<Command>) {
        let largest = self.largest();
        for save in core::mem::take(&mut self.waiting_saves) {
            if self.bottom(self.table.get(save.row).bytes).is_some() {
                self.waiting_saves.push_back(save);
                continue;
            }
            Core::refuse(save.request, Refusal::TooLarge { largest }, out);
            self.forget_unsaved(save.row);
        }
    }

    /// Whether the target of a transfer has lost bytes that the transfer was filling: its failure
    /// then says nothing about the checkpoint or the link.
    pub(super) fn has_lost_target(&self, transfer: &Transfer) -> bool {
        let state = self.tier(transfer.to);
        if state.lost {
            return true;
        }
        let end = |copy: &Copy| copy.offset.saturating_add(state.size_of(transfer.bytes));
        let copy = self.table.get(transfer.row).copy(transfer.to);
        state.arena.as_ref().is_some_and(|arena| copy.is_some_and(|c| end(c) > arena.capacity()))
    }
}
