//! Thrift: flushes in vain teach the core to put off the next ones.
//!
//! A flush into a store that is not durable begins as soon as its link is free, because a save
//! that finds no room waits for the store. Where the history fits into its arena this is in vain:
//! each checkpoint is discarded while the copy that was flushed is still there. An arena that has
//! flushed twice as many bytes in vain as it holds, with no eviction between, keeps what is saved
//! until three quarters of it wait for their flush. The first eviction ends that, and so does a
//! call that needs room. (After the last eviction of a history that does not fit, as many bytes as
//! the arena holds may still be discarded.)

use super::Core;
use crate::lifecycle::table::Row;
use crate::types::TierId;

impl Core {
    /// Whether the flush of this copy into `to` waits until more of its arena waits for one. The
    /// link then has nothing to do, however much is queued.
    pub(super) fn put_off(&mut self, row: Row, from: TierId, to: TierId) -> bool {
        let (is_put_off, now) = (self.is_put_off(row, from, to), self.now);
        let lane = self.flush_lane_mut(from);
        if is_put_off && lane.in_flight == 0 {
            lane.model.idle(now);
        }
        is_put_off
    }

    fn is_put_off(&self, row: Row, from: TierId, to: TierId) -> bool {
        let (into_store, capacity) = (self.tier(to).arena.is_none(), self.capacity(from));
        let waiting = self.flush_lane(from).queue.len() as u64;
        into_store
            && self.is_thrifty(from)
            && waiting.saturating_mul(self.mean_size(from)) <= capacity / 4 * 3
            && !self.is_flush_awaited(row, from)
    }

    fn is_thrifty(&self, tier: TierId) -> bool {
        !self.config.durable && self.tier(tier).in_vain / 2 >= self.capacity(tier)
    }

    /// Flushes have made room in `tier`, or will have to. True when some were put off.
    pub(super) fn end_thrift(&mut self, tier: TierId) -> bool {
        let was_thrifty = self.is_thrifty(tier);
        self.tier_mut(tier).in_vain = 0;
        was_thrifty
    }

    /// Counts the flush of a checkpoint that is discarded before its room was needed.
    pub(super) fn count_flush_in_vain(&mut self, row: Row) {
        let ckpt = self.table.get(row);
        let is_arena = |tier: &TierId| self.tier(*tier).arena.is_some();
        let Some(kept) = ckpt.complete_tiers().filter(is_arena).last() else { return };
        if ckpt.tiers().any(|tier| !is_arena(&tier)) {
            let size = self.tier(kept).size_of(ckpt.bytes);
            let state = self.tier_mut(kept);
            state.in_vain = state.in_vain.saturating_add(size);
        }
    }
}
