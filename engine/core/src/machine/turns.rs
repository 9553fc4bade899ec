//! The queues of flushes: which copy is next, and what is flushed ahead of need.
//!
//! A copy that was flushed is what can be given up, so the order of the flushes decides what has to
//! be brought back. Copies that nobody will read go first. Those that hints name go in the order in
//! which they came, with two exceptions where all checkpoints have one size:
//!
//! - What is discarded after its last restore makes room then, so what is brought back late finds
//!   some: what is used last goes first.
//! - Where checkpoints stay, only a copy that came back from a store makes room as soon as it was
//!   used. So some of these are wanted all through a sweep, whatever its order, and into a store
//!   the newest goes first: a link that takes every third one then has every third one.
//!
//! Where sizes differ, room is made by neighbours that go together, and neighbours were saved one
//! after the other. What is rewritten has neighbours of all ages, and what is used last goes first.

use core::cmp::Reverse;

use super::Core;
use super::prefetches::Left;
use crate::hints::NO_USE;
use crate::lifecycle::table::{CheckpointRecord, Row};
use crate::lifecycle::turn::{FlushNeed, FlushTurn};
use crate::types::{Nanos, TierId};

impl Core {
    /// Puts the copy into the queue of its lane when it needs a flush and is not there; gives it
    /// another turn when it has come to another need.
    pub(super) fn queue_flush(&mut self, row: Row, tier: TierId) {
        let Some(copy) = self.table.get(row).copy(tier) else { return };
        match copy.queued {
            Some(turn) if turn.need == self.flush_need(self.table.get(row), tier) => {}
            Some(_) => {
                self.leave_queue(row, tier);
                self.take_turn(row, tier);
            }
            None if self.needs_flush(row, tier) => self.enqueue_flush(row, tier),
            None => {}
        }
    }

    fn enqueue_flush(&mut self, row: Row, tier: TierId) {
        let (bytes, now) = (self.table.get(row).bytes, self.now);
        let guess = self.flush_lane_mut(tier).model.enqueue(bytes, now);
        let copy = self.table.get_mut(row).copy_mut(tier).expect("it needs a flush");
        copy.ready_guess = guess.max(Nanos(1));
        self.take_turn(row, tier);
    }

    fn take_turn(&mut self, row: Row, tier: TierId) {
        let need = self.flush_need(self.table.get(row), tier);
        let lane = self.flush_lane_mut(tier);
        lane.turns += 1;
        let turn = FlushTurn { need, number: lane.turns };
        let taken = lane.queue.insert(turn, row);
        debug_assert!(taken.is_none(), "numbers are never reused");
        let copy = self.table.get_mut(row).copy_mut(tier).expect("a copy that waits");
        debug_assert!(copy.queued.is_none(), "a copy is queued once");
        copy.queued = Some(turn);
    }

    fn flush_need(&self, ckpt: &CheckpointRecord, tier: TierId) -> FlushNeed {
        let next_use = self.next_use_at_rest(ckpt, tier);
        if self.is_flush_asked(ckpt.id) {
            FlushNeed::Asked
        } else if next_use != NO_USE {
            FlushNeed::Named(Reverse(self.flush_rank(ckpt, tier, next_use)))
        } else if self.is_used(ckpt, tier) {
            FlushNeed::Used
        } else {
            FlushNeed::Unnamed
        }
    }

    fn flush_rank(&self, ckpt: &CheckpointRecord, tier: TierId, next_use: u64) -> u64 {
        let into_store =
            || self.flush_target(ckpt, tier).is_some_and(|to| self.tier(to).arena.is_none());
        let rewritten = self.rewriting.is_seen() && self.will_end(ckpt);
        if !self.table.have_one_size() && !rewritten {
            0
        } else if self.will_end(ckpt) {
            next_use
        } else if into_store() {
            ckpt.id.0
        } else {
            0
        }
    }

    /// Takes the copy out of the queue of its lane, if it is there.
    pub(super) fn leave_queue(&mut self, row: Row, from: TierId) {
        let copy = self.table.get_mut(row).copy_mut(from);
        if let Some(turn) = copy.and_then(|copy| copy.queued.take()) {
            let left = self.flush_lane_mut(from).queue.remove(&turn);
            debug_assert_eq!(left, Some(row), "the queue names the copy");
        }
    }

    /// Queues the flush of the spared copy that is used last, where the link below its arena has
    /// nothing to do and more saves are announced than there is room for. True when there was one.
    pub(super) fn flush_ahead(&mut self, tier: TierId) -> bool {
        let idle = self.flush_lane(tier).in_flight == 0;
        if !(self.writing && idle && self.owes_room(tier)) {
            return false;
        }
        let last = self.arena(tier).last_used_waiting();
        let resident = last.and_then(|index| self.arena(tier).as_slice()[index].resident);
        resident.is_some_and(|resident| self.demand_flush_of(resident.row, tier))
    }

    /// Whether what hints announce takes more than this arena, the faster ones and what has left
    /// them for slower tiers.
    fn owes_room(&self, tier: TierId) -> bool {
        if self.tier(tier).arena.is_none() {
            return false;
        }
        let versions = self.hints.versions() as u64;
        let each = self.table.mean_bytes_of(versions).unwrap_or(0);
        let announced = versions.saturating_mul(self.tier(tier).size_of(each));
        let slower = self.tier_ids().filter(|&t| t > tier);
        let below = slower.map(|t| self.tier(t).used()).fold(0, u64::saturating_add);
        announced > self.claimable(tier, Left::Nothing).saturating_add(below)
    }
}
