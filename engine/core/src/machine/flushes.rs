//! Flushes: copies move down so that their room can be given up.
//!
//! A checkpoint that will be restored and discarded while it still fits into its tier is *spared*:
//! it is not flushed. That it will be discarded is known from `discard_after_restore`, or from a
//! hint that is the last one of its version. Where its room is needed after all, its flush is
//! *demanded* ([`Core::demand_flush`]).
//!
//! Which of the copies that wait is flushed next, is said in [`super::turns`].

use alloc::vec::Vec;
use core::ops::Range;

use super::prefetches::Left;
use super::room::RoomIn;
use super::{Core, WaitingFlush};
use crate::command::{Command, Refusal, TransferKind};
use crate::event::Failure;
use crate::hints::{NO_USE, Then};
use crate::lifecycle::state::CopyState;
use crate::lifecycle::table::{CheckpointRecord, Row};
use crate::types::{CheckpointId, RequestId, TierId};

/// What became of an attempt to start the first flush of a queue.
#[derive(PartialEq, Eq)]
enum Attempt {
    Started,
    /// The queue has another first copy: that one needs no flush any more, or the queue was empty.
    Passed,
    /// There is no room yet; something was started that may make some.
    Asked,
    Blocked,
}

impl Core {
    /// The tier that a copy in `tier` is flushed to, if it needs a flush at all.
    pub(super) fn flush_target(&self, ckpt: &CheckpointRecord, tier: TierId) -> Option<TierId> {
        let below = |t: TierId| t > tier;
        if ckpt.tiers().any(below) { None } else { self.next_slower(tier, ckpt.bytes) }
    }

    pub(super) fn needs_flush(&self, row: Row, tier: TierId) -> bool {
        let ckpt = self.table.get(row);
        let Some(copy) = ckpt.copy(tier) else { return false };
        ckpt.saved
            && !ckpt.doomed
            && ckpt.stuck.is_none()
            && ckpt.not_before <= self.now
            && copy.is_usable()
            && copy.flush.is_none()
            && self.flush_target(ckpt, tier).is_some()
            && (self.is_flush_asked(ckpt.id) || self.is_worth_flushing(ckpt, tier))
    }

    fn is_worth_flushing(&self, ckpt: &CheckpointRecord, tier: TierId) -> bool {
        if !self.will_end(ckpt) {
            return true;
        }
        // A claimed copy, here or in a faster tier, stays until it is restored and discarded.
        let urgent = tier < ckpt.rest || ckpt.copy(tier).is_some_and(|c| c.urgent);
        !ckpt.is_claimed(tier) && (urgent || !self.is_spared(ckpt, tier))
    }

    /// Whether the checkpoint is discarded when the restores that hints announce are done.
    pub(super) fn will_end(&self, ckpt: &CheckpointRecord) -> bool {
        let then = self.hints.then(ckpt.version).unwrap_or(ckpt.then);
        then != Then::Stays || self.config.discard_after_restore
    }

    /// Whether the checkpoint will be consumed before it could be evicted: it and those with
    /// earlier hints fit into this tier and the faster ones, with a quarter left for checkpoints on
    /// their way down. Also while it is restored for the last time, and from then to its discard.
    fn is_spared(&self, ckpt: &CheckpointRecord, tier: TierId) -> bool {
        let next_use = self.hints.next_use(ckpt.version);
        if next_use == NO_USE && (ckpt.then != Then::Stays || ckpt.is_being_read()) {
            return true;
        }
        let ahead = next_use.saturating_sub(self.hints.head());
        let bytes = ahead.saturating_add(1).saturating_mul(self.mean_size(tier));
        bytes <= self.claimable(tier, Left::ForSaves)
    }

    /// Whether a flush call asked for this checkpoint: it then goes to its slowest tier and stays.
    pub(super) fn is_flush_asked(&self, id: CheckpointId) -> bool {
        id < self.flush_before
    }

    /// Queues the flushes of the spared copies in this window, whose room is needed. True when
    /// there was one.
    pub(super) fn demand_flush(&mut self, tier: TierId, window: Range<usize>) -> bool {
        let residents = self.arena(tier).as_slice()[window].iter();
        let rows: Vec<Row> = residents.filter_map(|f| f.resident.map(|r| r.row)).collect();
        let mut asked = false;
        for row in rows {
            asked |= self.demand_flush_of(row, tier);
        }
        asked
    }

    /// Queues the flush of the spared copy of this store that is used last, to make room. True when
    /// there was one.
    pub(super) fn demand_flush_from_store(&mut self, tier: TierId) -> bool {
        debug_assert!(self.tier(tier).arena.is_none(), "in an arena a window is demanded");
        let next_use = |row: Row| self.hints.next_use(self.table.get(row).version);
        let mut rows: Vec<Row> =
            self.table.rows().filter(|&r| self.table.get(r).copy(tier).is_some()).collect();
        rows.sort_by_key(|&row| core::cmp::Reverse((next_use(row), row)));
        rows.into_iter().any(|row| self.demand_flush_of(row, tier))
    }

    pub(super) fn demand_flush_of(&mut self, row: Row, tier: TierId) -> bool {
        let copy = self.table.get_mut(row).copy_mut(tier).expect("a resident copy");
        if copy.state != CopyState::WriteComplete || copy.flush.is_some() {
            return false;
        }
        if copy.queued.is_some() {
            return self.end_thrift(tier) | self.end_pauses();
        }
        copy.urgent = true;
        self.queue_flush(row, tier);
        self.end_pauses();
        self.table.get(row).copy(tier).is_some_and(|c| c.queued.is_some())
    }

    /// Starts as many flushes as the lanes take, on the slowest link first.
    pub(super) fn start_flushes(&mut self, out: &mut Vec<Command>) -> bool {
        let mut progress = false;
        for index in (0..self.flush_lanes.len()).rev() {
            let from = TierId(index as u8);
            loop {
                match self.start_next_flush(from, out) {
                    Attempt::Blocked => break,
                    Attempt::Asked => {
                        progress = true;
                        break;
                    }
                    Attempt::Started => progress = true,
                    Attempt::Passed => {}
                }
            }
        }
        progress
    }

    fn start_next_flush(&mut self, from: TierId, out: &mut Vec<Command>) -> Attempt {
        let Some(row) = self.flush_lane(from).front() else {
            return if self.flush_ahead(from) { Attempt::Passed } else { Attempt::Blocked };
        };
        if !self.needs_flush(row, from) {
            self.leave_queue(row, from);
            return Attempt::Passed;
        }
        let ckpt = self.table.get(row);
        let (id, bytes) = (ckpt.id, ckpt.bytes);
        let to = self.flush_target(ckpt, from).expect("it needs a flush");
        if !self.has_space(TransferKind::Flush, from, bytes)
            || self.is_paused(row, from, to)
            || self.put_off(row, from, to)
            || self.tier(to).deleting.contains_key(&id)
        {
            return Attempt::Blocked;
        }
        let asked = Some((id, self.tier(to).generation));
        if self.flush_lane(from).blocked == asked {
            return Attempt::Blocked;
        }
        self.flush_lane_mut(from).blocked = asked;
        match self.find_room(to, bytes, None) {
            room @ (RoomIn::Window(_) | RoomIn::Free) => {
                self.leave_queue(row, from);
                self.start(TransferKind::Flush, row, from, to, room, out);
                Attempt::Started
            }
            RoomIn::AfterFlush(window) if self.demand_flush(to, window.clone()) => Attempt::Asked,
            RoomIn::None if self.tier(to).arena.is_none() && !self.tier(to).full => {
                let asked = self.evict_last_used(to, out) || self.demand_flush_from_store(to);
                if asked { Attempt::Asked } else { Attempt::Blocked }
            }
            _ => Attempt::Blocked,
        }
    }

    pub(super) fn on_flush(&mut self, request: RequestId) {
        let before = self.table.next_id();
        debug_assert!(self.flush_before <= before, "ids ascend");
        self.waiting_flushes.push(WaitingFlush { request, before });
        self.flush_before = before;
        self.retry_everything();
        let rows: Vec<Row> = self.table.rows().collect();
        for row in rows {
            self.rest(row);
        }
    }

    /// Answers the flush calls whose checkpoints have all reached their slowest tier, and before
    /// which no discarded one is left in a store.
    pub(super) fn answer_flushes(&mut self, out: &mut Vec<Command>) {
        if self.waiting_flushes.is_empty() {
            return;
        }
        let unflushed = self.unflushed.first_key_value().map(|(id, _)| *id);
        let first = [unflushed, self.first_to_delete()].into_iter().flatten().min();
        self.waiting_flushes.retain(|wait| {
            let done = first.is_none_or(|id| id >= wait.before);
            if done {
                out.push(Command::FlushDone { request: wait.request });
            }
            !done
        });
    }

    /// The first checkpoint that a store is deleting, or will once the transfers that name it have
    /// ended. What a restore still reads is deleted when its caller has finished, which nobody
    /// waits for.
    fn first_to_delete(&self) -> Option<CheckpointId> {
        let deleting =
            self.tiers.iter().filter_map(|tier| Some(*tier.deleting.first_key_value()?.0));
        let moving = self.transfers.values().map(|transfer| self.table.get(transfer.row));
        deleting.chain(moving.filter(|ckpt| ckpt.doomed).map(|ckpt| ckpt.id)).min()
    }

    /// Refuses the flush calls that still wait, unless claims can be given up for them. Called
    /// when nothing moves, so that they cannot finish.
    pub(super) fn give_up_flushes(&mut self, out: &mut Vec<Command>) -> bool {
        let Some((_, &row)) = self.unflushed.first_key_value() else { return false };
        if self.waiting_flushes.is_empty() || !self.open.is_empty() {
            return false;
        }
        if !self.reclaim() {
            let refusal = self.flush_refusal(row);
            for wait in core::mem::take(&mut self.waiting_flushes) {
                Core::refuse(wait.request, refusal, out);
            }
        }
        true
    }

    fn flush_refusal(&self, row: Row) -> Refusal {
        let ckpt = self.table.get(row);
        let at = ckpt.complete_tiers().last().unwrap_or(TierId(0));
        let tier = self.next_slower(at, ckpt.bytes).unwrap_or(at);
        let failure = ckpt.stuck.or(self.tier(tier).failure).unwrap_or(Failure::NoSpace);
        Refusal::FlushFailed { version: ckpt.version, tier: self.tier(tier).config.kind, failure }
    }
}
