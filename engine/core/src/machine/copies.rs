//! The states of copies: every copy is brought into the state that its situation demands.

use super::Core;
use crate::hints::NO_USE;
use crate::lifecycle::state::CopyState;
use crate::lifecycle::table::{CheckpointRecord, Copy, Row};
use crate::types::{Nanos, TierId, Version};

impl Core {
    /// Brings every complete copy of `row` into the state that hints, other copies and readers
    /// demand, fastest tier first because slower copies look at faster ones; refreshes what the
    /// policies know about them; queues the flushes that are due.
    pub(super) fn rest(&mut self, row: Row) {
        for tier in self.tier_ids() {
            let Some(copy) = self.table.get(row).copy(tier) else { continue };
            if copy.is_usable() && !self.table.get(row).doomed {
                let next = self.demanded_state(row, tier);
                self.set_state(row, tier, next);
                self.queue_flush(row, tier);
            }
            self.refresh(row, tier);
        }
    }

    fn demanded_state(&self, row: Row, tier: TierId) -> CopyState {
        let ckpt = self.table.get(row);
        debug_assert!(ckpt.copy(tier).is_some_and(Copy::is_usable), "the copy is complete");
        let backed = ckpt.slower_complete(tier).is_some();
        let promoted = is_promoted(ckpt, tier);
        let next_use = self.next_use_in(ckpt, tier);
        if !promoted && next_use < self.tier(tier).cursor {
            return CopyState::ReadComplete;
        }
        // A copy in an arena is not needed any more when its checkpoint waits in a faster tier for
        // a restore that will discard it. A copy in a store stays: it may have been reported
        // durable.
        let spent = promoted
            && self.will_end(ckpt)
            && self.tier(tier).arena.is_some()
            && !self.is_flush_asked(ckpt.id);
        let safe = backed || spent;
        match (safe && self.is_used(ckpt, tier), backed) {
            (true, _) => CopyState::Consumed,
            (false, true) => CopyState::Flushed,
            (false, false) => CopyState::WriteComplete,
        }
    }

    /// Whether the bytes of the copy in `tier` were used, or wait in a faster tier for their last
    /// use.
    pub(super) fn is_used(&self, ckpt: &CheckpointRecord, tier: TierId) -> bool {
        (ckpt.restored || is_promoted(ckpt, tier)) && self.next_use_in(ckpt, tier) == NO_USE
    }

    /// The position of the next hint for which the copy in `tier` itself will be read: the copy
    /// that waits in a faster tier takes the first one.
    fn next_use_in(&self, ckpt: &CheckpointRecord, tier: TierId) -> u64 {
        self.hints.nth_use(ckpt.version, usize::from(is_promoted(ckpt, tier)))
    }

    /// As [`Core::next_use_in`]. A copy that should rest in a slower tier counts as one that no
    /// hint names, unless a near one claims it.
    pub(super) fn next_use_at_rest(&self, ckpt: &CheckpointRecord, tier: TierId) -> u64 {
        if tier < ckpt.rest { NO_USE } else { self.next_use_in(ckpt, tier) }
    }

    pub(super) fn set_state(&mut self, row: Row, tier: TierId, next: CopyState) {
        let copy = self.table.get_mut(row).copy_mut(tier).expect("a copy in this tier");
        if copy.state == next {
            return;
        }
        assert!(copy.state.may_become(next), "no arrow from {:?} to {next:?}", copy.state);
        copy.state = next;
    }

    /// Updates in the allocation table when the copy may be evicted and when it is used next.
    fn refresh(&mut self, row: Row, tier: TierId) {
        let ckpt = self.table.get(row);
        let Some(copy) = ckpt.copy(tier) else { return };
        let (offset, ready_at) = (copy.offset, self.ready_at(ckpt, copy, tier));
        let next_use = self.next_use_at_rest(ckpt, tier);
        let is_in_table = self.tier(tier).has_fragment(ckpt, copy);
        let state = self.tier_mut(tier);
        state.generation += u64::from(ready_at == Nanos(0));
        if let Some(arena) = state.arena.as_mut().filter(|_| is_in_table) {
            arena.update(offset, ready_at, next_use);
        }
    }

    /// When the copy may be evicted: `predict_evictable` of Score, Algorithm 1.
    fn ready_at(&self, ckpt: &CheckpointRecord, copy: &Copy, tier: TierId) -> Nanos {
        let being_flushed = copy.flush.is_some();
        let held = copy.readers > 0 || copy.prefetch.is_some() || copy.inbound.is_some();
        if held || ckpt.doomed || copy.damaged {
            return Nanos::NEVER;
        }
        match copy.state {
            CopyState::Flushed | CopyState::Consumed if being_flushed => copy.ready_guess,
            CopyState::Flushed | CopyState::Consumed => Nanos(0),
            CopyState::WriteComplete if being_flushed || copy.queued.is_some() => copy.ready_guess,
            CopyState::WriteComplete if ckpt.stuck.is_none() => {
                match self.flush_target(ckpt, tier) {
                    Some(_) => self.flush_lane(tier).model.predict(ckpt.bytes, self.now),
                    None => Nanos::NEVER,
                }
            }
            _ => Nanos::NEVER,
        }
    }

    pub(super) fn on_prefer(&mut self, version: Version, tier: TierId) {
        let saved = self.table.find(version).filter(|&row| self.table.get(row).exists());
        if let Some(row) = saved.filter(|_| usize::from(tier.0) < self.tiers.len()) {
            self.table.get_mut(row).rest = tier;
            self.rest(row);
        }
    }

    /// Notes that the application uses the copy, which LRU looks at.
    pub(super) fn touch(&mut self, row: Row, tier: TierId) {
        let ckpt = self.table.get(row);
        let Some(copy) = ckpt.copy(tier).filter(|copy| self.tier(tier).has_fragment(ckpt, copy))
        else {
            return;
        };
        self.touches += 1;
        let (offset, touches) = (copy.offset, self.touches);
        self.arena_mut(tier).touch(offset, touches);
    }
}

/// Whether a faster tier holds the bytes for the next restore.
fn is_promoted(ckpt: &CheckpointRecord, tier: TierId) -> bool {
    tier.0 > 0 && ckpt.is_claimed(TierId(tier.0 - 1))
}
