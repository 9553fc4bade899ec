//! The prefetch planner: fills the faster tiers in the order of the hints.
//!
//! Every arena has a cursor in the restore order queue: what is hinted before it is in this tier,
//! in a faster one, or on its way. Copies before the cursor are claimed (`ReadComplete`): they
//! stay until they are restored, or until a save that is wanted sooner needs their room
//! ([`Core::give_way`]). The cursor moves on while the bytes of the hints before it fit
//! into this tier and the faster ones together, so with room for c checkpoints the planner is
//! c - 1 ahead of the restore in progress. Hints whose checkpoint is not saved yet count with the
//! mean size: a save will bring them.
//!
//! Where the application rewrites what it reads, the planner looks ahead over half of the room only
//! ([`Left::ForRewriting`]).

use alloc::vec::Vec;

use super::Core;
use super::room::RoomIn;
use crate::command::{Command, TransferKind};
use crate::hints::{NO_USE, Removed, Then};
use crate::lifecycle::state::CopyState;
use crate::lifecycle::table::Row;
use crate::types::{TierId, Version};

/// What the planner does about one hint.
enum HintPlan {
    /// Move on: the checkpoint is here already, will be saved here, or cannot be moved.
    Pass,
    /// Fetch the checkpoint in this row from this tier.
    Fetch(Row, TierId),
    /// Stop here until the planner of a slower tier has brought the checkpoint closer.
    Later,
}

/// Whether prefetches begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Prefetching {
    On,
    /// Not before the application says so.
    Held,
    /// Not before the next restore: what is read back once is still being saved.
    AfterRestore,
}

/// What claims leave of every arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    Nothing,
    /// A quarter, and at least one checkpoint: the application saves.
    ForSaves,
    /// A half, and at least two checkpoints: the application rewrites what it reads. Its new
    /// versions come as fast as old ones go, and those that stay need not cross a link.
    ForRewriting,
}

impl Core {
    pub(super) fn on_expect(&mut self, version: Version, then: Then) {
        self.hints.push(version, then);
        let row = self.table.find(version);
        let exists = row.is_some_and(|row| self.table.get(row).exists());
        if then == Then::Goes && !exists && self.prefetching == Prefetching::On {
            self.prefetching = Prefetching::AfterRestore;
        }
        // A hint for a checkpoint that exists means that the forward pass is over: the room that
        // was left for it can be used.
        self.writing &= !exists;
        if let Some(row) = row {
            self.rest(row);
        }
    }

    pub(super) fn on_forget_hints(&mut self) {
        self.await_no_restore();
        let mut removed = core::mem::take(&mut self.removed);
        self.hints.clear(&mut removed);
        self.after_removal(removed);
    }

    /// Prefetches that wait for a restore may begin.
    pub(super) fn await_no_restore(&mut self) {
        if self.prefetching == Prefetching::AfterRestore {
            self.prefetching = Prefetching::On;
        }
    }

    /// Removes the hint of `version`, which is being restored, and those that realignment drops.
    pub(super) fn take_hint(&mut self, version: Version) {
        let mut removed = core::mem::take(&mut self.removed);
        self.hints.take(version, &mut removed);
        self.after_removal(removed);
    }

    fn after_removal(&mut self, mut removed: Vec<Removed>) {
        for entry in &removed {
            self.uncharge(entry);
        }
        for entry in removed.drain(..) {
            if let Some(row) = self.table.find(entry.version) {
                self.rest(row);
            }
        }
        self.removed = removed;
    }

    /// Takes the bytes of an entry that has left out of the windows. The next entry of the same
    /// version counts instead.
    fn uncharge(&mut self, entry: &Removed) {
        let bytes = entry.charge.unwrap_or(0);
        let later = self.hints.next_use(entry.version);
        let recharge = later != NO_USE && self.hints.charge(later) == Some(0);
        if recharge {
            self.hints.set_charge(later, bytes);
        }
        for tier in &mut self.tiers {
            if entry.position < tier.cursor {
                tier.window -= bytes;
            }
            if recharge && later < tier.cursor {
                tier.window += bytes;
            }
            tier.generation += 1;
        }
    }

    /// Moves the planners forward, the slowest tier first.
    pub(super) fn start_prefetches(&mut self, out: &mut Vec<Command>) -> bool {
        if self.prefetching != Prefetching::On || self.reclaimed || !self.waiting_saves.is_empty() {
            return false;
        }
        let mut progress = false;
        for index in (0..self.prefetch_lanes.len()).rev() {
            let tier = TierId(index as u8);
            while self.tier(tier).arena.is_some() && self.advance(tier, out) {
                progress = true;
            }
        }
        progress
    }

    /// Brings the checkpoint of the hint at the cursor into `tier`, and moves the cursor on. False
    /// when that is not possible now.
    fn advance(&mut self, tier: TierId, out: &mut Vec<Command>) -> bool {
        let position = self.next_position(tier);
        let Some(version) = self.hints.get(position) else { return false };
        let Some(charge) = self.charge(tier, position, version) else { return false };
        let window = self.tier(tier).window;
        let limit = self.claimable(tier, self.left());
        if window > 0 && window.saturating_add(charge) > limit {
            return false;
        }
        match self.plan(tier, position, version) {
            HintPlan::Later => return false,
            HintPlan::Pass => {}
            HintPlan::Fetch(row, from) => {
                if !self.fetch(tier, row, from, position, out) {
                    return false;
                }
            }
        }
        debug_assert!(position < self.hints.end(), "the cursor stays within the queue");
        let state = self.tier_mut(tier);
        state.cursor = position + 1;
        state.window += charge;
        if let Some(row) = self.table.find(version) {
            self.rest(row);
        }
        true
    }

    /// Moves the cursor to the next entry that counts.
    fn next_position(&mut self, tier: TierId) -> u64 {
        let mut position = self.tier(tier).cursor.max(self.hints.head());
        while position < self.hints.end() && self.hints.get(position).is_none() {
            position += 1;
        }
        self.tier_mut(tier).cursor = position;
        position
    }

    /// The bytes that the windows count for an entry: nothing for a version that an earlier entry
    /// names already. `None` when the size of what is still to be saved cannot be guessed.
    fn charge(&mut self, tier: TierId, position: u64, version: Version) -> Option<u64> {
        if let Some(bytes) = self.hints.charge(position) {
            return Some(bytes);
        }
        let saved = self.table.find(version).filter(|&r| self.table.get(r).saved);
        let payload = saved.map(|row| self.table.get(row).bytes).or(self.table.mean_bytes())?;
        let first = self.hints.next_use(version) == position;
        let bytes = if first { self.tier(tier).size_of(payload) } else { 0 };
        self.hints.set_charge(position, bytes);
        Some(bytes)
    }

    fn plan(&self, tier: TierId, position: u64, version: Version) -> HintPlan {
        let saved = self.table.find(version).filter(|&r| self.table.get(r).saved);
        let Some(row) = saved else { return HintPlan::Pass };
        let ckpt = self.table.get(row);
        let here = ckpt.tiers().any(|t| t <= tier);
        let idle = ckpt.lost.is_some() || ckpt.stuck.is_some() || ckpt.not_before > self.now;
        let first = self.hints.next_use(version) == position;
        if here || idle || !first || !self.tier(tier).can_hold(ckpt.bytes) {
            return HintPlan::Pass;
        }
        let Some(from) = ckpt.slower_complete(tier) else { return HintPlan::Later };
        if ckpt.copy(from).is_some_and(|copy| copy.prefetch.is_some()) {
            // On its way to a tier in between that has lost the room for it: that fails first.
            return HintPlan::Later;
        }
        let between = self.next_slower(tier, ckpt.bytes);
        let step = between.is_some_and(|t| t < from && self.tier(t).arena.is_some());
        if step { HintPlan::Later } else { HintPlan::Fetch(row, from) }
    }

    /// Starts the prefetch if the lane takes it and nothing has to go that is needed sooner.
    fn fetch(
        &mut self,
        tier: TierId,
        row: Row,
        from: TierId,
        position: u64,
        out: &mut Vec<Command>,
    ) -> bool {
        debug_assert!(tier < from, "a prefetch comes from a slower tier");
        let bytes = self.table.get(row).bytes;
        let asked = (position, self.tier(tier).generation);
        if self.tier(tier).blocked == Some(asked)
            || !self.has_space(TransferKind::Prefetch, tier, bytes)
        {
            return false;
        }
        match self.find_room(tier, bytes, Some(position)) {
            room @ (RoomIn::Window(_) | RoomIn::Free) => {
                self.start(TransferKind::Prefetch, row, from, tier, room, out);
                true
            }
            _ => {
                self.tier_mut(tier).blocked = Some(asked);
                false
            }
        }
    }

    /// Moves the cursor back to `position`, whose checkpoint is not on its way to this tier after
    /// all.
    pub(super) fn retreat(&mut self, tier: TierId, position: u64) {
        let cursor = self.tier(tier).cursor;
        if position >= cursor || self.tier(tier).arena.is_none() {
            return;
        }
        let charges = (position..cursor).filter_map(|p| self.hints.live_charge(p));
        let bytes: u64 = charges.sum();
        let state = self.tier_mut(tier);
        state.cursor = position;
        state.window -= bytes;
        state.generation += 1;
    }

    /// Gives up the claims in this arena that are wanted later than what is being saved, which else
    /// would go to a slower tier. True when there was one.
    pub(super) fn give_way(&mut self, tier: TierId, row: Row) -> bool {
        let position = self.hints.next_use(self.table.get(row).version);
        if position >= self.tier(tier).cursor || self.tier(tier).arena.is_none() {
            return false;
        }
        self.retreat(tier, position);
        let residents = self.arena(tier).as_slice().iter().filter_map(|f| f.resident);
        let rows: Vec<Row> =
            residents.map(|r| r.row).filter(|r| self.is_claimed(*r, tier)).collect();
        self.end_claims(rows, tier) > 0
    }

    /// Ends those of these claims that the planner, which was moved back, does not make any more,
    /// and says how many. Claims that are wanted sooner stay, and so do copies that are being read.
    fn end_claims(&mut self, rows: Vec<Row>, tier: TierId) -> u64 {
        let mut ended = 0;
        for row in rows {
            self.rest(row);
            ended += u64::from(!self.is_claimed(row, tier));
        }
        ended
    }

    /// Gives up every claim that is not being read, for a save that would fail otherwise, and makes
    /// no new ones before the next restore. True when there was one.
    pub(super) fn reclaim(&mut self) -> bool {
        self.reclaimed = true;
        let head = self.hints.head();
        let mut reclaimed = 0;
        for tier in self.tier_ids() {
            self.retreat(tier, head);
            let rows = self.table.rows().filter(|row| self.is_claimed(*row, tier)).collect();
            reclaimed += self.end_claims(rows, tier);
        }
        self.stats.reclaims += reclaimed;
        reclaimed > 0
    }

    fn is_claimed(&self, row: Row, tier: TierId) -> bool {
        let copy = self.table.get(row).copy(tier);
        copy.is_some_and(|c| c.state == CopyState::ReadComplete)
    }

    /// What the planner leaves for other things than claims.
    fn left(&self) -> Left {
        match (self.rewriting.is_seen(), self.writing) {
            (true, _) => Left::ForRewriting,
            (false, true) => Left::ForSaves,
            (false, false) => Left::Nothing,
        }
    }

    /// The bytes that claims may take in this tier and the faster ones together.
    pub(super) fn claimable(&self, tier: TierId, left: Left) -> u64 {
        let arenas = self.tier_ids().filter(|&t| t <= tier && self.tier(t).arena.is_some());
        let of_one = |t: TierId| {
            let capacity = self.arena(t).capacity();
            let next = self.tier(t).size_of(self.table.mean_asked().unwrap_or(0));
            let reserve = match left {
                Left::Nothing => 0,
                Left::ForSaves => (capacity / 4).max(next),
                Left::ForRewriting => (capacity / 2).max(2 * next),
            };
            capacity.saturating_sub(reserve)
        };
        arenas.map(of_one).fold(0, u64::saturating_add)
    }

    /// The room that a checkpoint of the mean size takes in a tier.
    pub(super) fn mean_size(&self, tier: TierId) -> u64 {
        self.tier(tier).size_of(self.table.mean_bytes().unwrap_or(0))
    }
}
