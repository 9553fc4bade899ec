//! Discards: a checkpoint goes from every tier as soon as nothing names its copies.

use alloc::vec::Vec;

use super::Core;
use crate::command::Command;
use crate::lifecycle::table::Row;
use crate::types::{TierId, Version};

impl Core {
    pub(super) fn on_discard(&mut self, version: Version, out: &mut Vec<Command>) {
        if let Some(row) = self.table.find(version).filter(|&r| self.table.get(r).exists()) {
            self.discard(row, out);
        }
    }

    /// Takes the version away at once, cancels its transfers and frees its idle copies.
    pub(super) fn discard(&mut self, row: Row, out: &mut Vec<Command>) {
        debug_assert!(self.table.get(row).exists(), "only what exists can be discarded");
        self.stats.discards += 1;
        let id = self.table.get(row).id;
        self.unflushed.remove(&id);
        self.count_skipped_flushes(row);
        self.count_flush_in_vain(row);
        self.table.doom(row);
        self.retries.retain(|r| r.row != row);
        self.cancel_transfers(row, out);
        self.clear_doomed(row, out);
    }

    /// Counts the flush of a copy that is consumed before its flush began.
    pub(super) fn count_skipped_flushes(&mut self, row: Row) {
        let ckpt = self.table.get(row);
        let Some(tier) = ckpt.complete_tiers().last() else { return };
        let spared = self.flush_target(ckpt, tier).is_some()
            && ckpt.copy(tier).is_some_and(|c| c.flush.is_none());
        if spared {
            self.flush_lane_mut(tier).stats.skipped += 1;
        }
    }

    /// Frees the idle copies of a doomed checkpoint, and its row after the last.
    pub(super) fn clear_doomed(&mut self, row: Row, out: &mut Vec<Command>) {
        assert!(self.table.get(row).doomed);
        for tier in self.tier_ids() {
            if self.table.get(row).copy(tier).is_some_and(|c| !c.is_busy()) {
                self.drop_copy(row, tier, out);
            }
        }
        if self.table.get(row).copies.iter().all(Option::is_none) {
            self.table.remove(row);
        }
    }

    /// Makes room in the stores that can hold the checkpoint in `row`: evicts the evictable copy
    /// that is used last, or demands the flush of a spared one. A last resort.
    pub(super) fn make_room_in_stores(&mut self, row: Row, out: &mut Vec<Command>) -> bool {
        let bytes = self.table.get(row).bytes;
        let mut started = false;
        for tier in self.tier_ids() {
            if self.tier(tier).arena.is_none() && self.tier(tier).can_hold(bytes) {
                started |= self.evict_last_used(tier, out) || self.demand_flush_from_store(tier);
            }
        }
        started
    }

    /// Evicts the evictable copy of a store whose next use is the last.
    pub(super) fn evict_last_used(&mut self, tier: TierId, out: &mut Vec<Command>) -> bool {
        debug_assert!(self.tier(tier).arena.is_none(), "arenas evict by their policy");
        let next_use = |row: Row| self.hints.next_use(self.table.get(row).version);
        let evictable = |row: &Row| {
            let copy = self.table.get(*row).copy(tier);
            copy.is_some_and(|c| c.state.is_evictable() && !c.is_busy())
        };
        let victim = self.table.rows().filter(evictable).max_by_key(|&r| (next_use(r), r));
        let Some(victim) = victim else { return false };
        self.evict(victim, tier, out);
        true
    }
}
