//! Pauses of flushes: a read from a store that the application waits for goes before writes into
//! that store that nobody waits for.
//!
//! A disk that reads and writes at the same time does both more slowly. A flush makes room ahead of
//! need, or makes a checkpoint durable, and can mostly wait; a restore that comes from a store
//! cannot, whether the caller reads the store or waits for a prefetch from it. While such a read
//! lasts, no flush into that store begins, and for as long again after it, as the next read often
//! follows after a step of computing. A pause ends at once when somebody needs what is held back:
//! a save, the room of a window, or a flush call.
//!
//! Where flushes make checkpoints durable or hints name what is read next, no flush is held back
//! for longer than [`LONGEST`] after the one before it: an application that only ever reads does
//! not leave what it saved in volatile memory, and prefetches find room. Elsewhere a flush is a
//! *precaution*: it makes room for saves that may never come, and waits for as long as reads
//! follow each other.

use super::{Core, Open, WaitingRestore};
use crate::lifecycle::table::Row;
use crate::types::{Nanos, TierId};

/// The longest time without a flush, however much is read.
const LONGEST: Nanos = Nanos(1_000_000_000);

/// The longest time that a read is taken to last: a caller may hold on to what it has read.
const READ: Nanos = Nanos(10_000_000_000);

/// When no flush into a store begins.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Pause {
    /// When it began, or the last flush did.
    since: Nanos,
    /// When it ends for the reads there are.
    until: Nanos,
}

impl Core {
    /// Whether the only use of a flush is room for later saves: no store is durable, and no hint
    /// is left.
    pub(super) fn flushes_are_precautions(&self) -> bool {
        !self.config.durable && self.hints.len() == 0
    }

    fn end_of_pause(&self, pause: Pause) -> Nanos {
        if self.flushes_are_precautions() {
            return pause.until;
        }
        pause.until.min(pause.since.plus(LONGEST))
    }

    /// Whether the flush of this copy into `to` waits for the end of a pause.
    pub(super) fn is_paused(&self, row: Row, from: TierId, to: TierId) -> bool {
        self.end_of_pause(self.tier(to).pause) > self.now
            && !self.writing
            && !self.is_flush_awaited(row, from)
    }

    /// Whether a call waits for this flush, or for room.
    pub(super) fn is_flush_awaited(&self, row: Row, from: TierId) -> bool {
        let ckpt = self.table.get(row);
        let urgent = ckpt.copy(from).is_some_and(|copy| copy.urgent);
        urgent || !self.waiting_saves.is_empty() || self.is_flush_asked(ckpt.id)
    }

    /// When the first pause ends that holds a flush back, if there is one.
    pub(super) fn end_of_pauses(&self) -> Option<Nanos> {
        if self.flush_lanes.iter().all(|lane| lane.front().is_none()) {
            return None;
        }
        let ends = self.tiers.iter().map(|tier| self.end_of_pause(tier.pause));
        ends.filter(|&end| end > self.now).min()
    }

    /// A read from `tier` that the application waits for has begun.
    pub(super) fn pause_flushes(&mut self, tier: TierId) {
        let (now, state) = (self.now, self.tier_mut(tier));
        if state.arena.is_none() {
            let goes_on = state.pause.until > now;
            let since = if goes_on { state.pause.since } else { now };
            state.pause = Pause { since, until: now.plus(READ) };
        }
    }

    /// A flush into `tier` has begun.
    pub(super) fn note_flush(&mut self, tier: TierId) {
        self.tier_mut(tier).pause.since = self.now;
    }

    /// A read from `tier` that began at `since` has ended: the pause lasts for as long again, or
    /// for as long as another read does.
    pub(super) fn shorten_pause(&mut self, tier: TierId, since: Nanos) {
        if self.tier(tier).arena.is_some() {
            return;
        }
        let reads = |open: &Open| matches!(open, Open::Served { tier: from, .. } if *from == tier);
        let waits = |wait: &WaitingRestore| wait.reads == Some(tier);
        if !self.open.values().any(reads) && !self.waiting_restores.iter().any(waits) {
            let again = READ.min(Nanos(self.now.0.saturating_sub(since.0)));
            self.tier_mut(tier).pause.until = self.now.plus(again);
        }
    }

    /// A restore waits no longer, and is not among those that do.
    pub(super) fn end_wait(&mut self, wait: WaitingRestore) {
        if let Some(tier) = wait.reads {
            self.shorten_pause(tier, wait.since);
        }
    }

    /// Room is needed: flushes go on. True when one was held back.
    pub(super) fn end_pauses(&mut self) -> bool {
        let held = self.end_of_pauses().is_some();
        for tier in &mut self.tiers {
            tier.pause = Pause::default();
        }
        held
    }
}
