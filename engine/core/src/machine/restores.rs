//! Restores: served from the fastest tier that has the bytes.

use alloc::vec::Vec;

use super::{Core, Open, WaitingRestore};
use crate::command::{Command, Refusal};
use crate::hints::{NO_USE, Then};
use crate::lifecycle::table::{Copy, Row};
use crate::types::{Place, RequestId, TierId, Version};

/// Where a restore finds its bytes.
enum Source {
    /// Here, and no faster copy is about to arrive.
    Copy(TierId),
    /// A prefetch from this tier is about to bring them to a faster one.
    Arriving(TierId),
    Nowhere,
}

impl Core {
    pub(super) fn on_restore(
        &mut self,
        request: RequestId,
        version: Version,
        out: &mut Vec<Command>,
    ) {
        (self.writing, self.reclaimed) = (false, false);
        self.await_no_restore();
        self.rewriting.restores();
        let Some(row) = self.table.find(version) else {
            let discarded = self.table.was_discarded(version);
            let refusal = if discarded { Refusal::Discarded } else { Refusal::Unknown };
            return Core::refuse(request, refusal, out);
        };
        if !self.table.get(row).exists() {
            return Core::refuse(request, Refusal::NotYetSaved, out);
        }
        let id = self.table.get(row).id;
        let since = self.now;
        self.waiting_restores.push_back(WaitingRestore { request, row, id, since, reads: None });
    }

    /// Serves every waiting restore that a tier has the bytes for.
    pub(super) fn serve_restores(&mut self, out: &mut Vec<Command>) -> bool {
        let mut progress = false;
        for _ in 0..self.waiting_restores.len() {
            let mut wait = self.waiting_restores.pop_front().expect("counted above");
            if self.serve(&mut wait, out) {
                progress = true;
            } else {
                self.waiting_restores.push_back(wait);
            }
        }
        progress
    }

    fn serve(&mut self, wait: &mut WaitingRestore, out: &mut Vec<Command>) -> bool {
        if let Some(refusal) = self.gone(*wait) {
            self.end_wait(*wait);
            Core::refuse(wait.request, refusal, out);
            return true;
        }
        let tier = match self.source_of_restore(wait.row) {
            Source::Copy(tier) => tier,
            Source::Arriving(from) => {
                if wait.reads != Some(from) {
                    wait.reads = Some(from);
                    self.pause_flushes(from);
                }
                return false;
            }
            Source::Nowhere => return false,
        };
        self.end_wait(*wait);
        self.count_restore(wait.row, tier);
        let version = self.table.get(wait.row).version;
        let ckpt = self.table.get_mut(wait.row);
        let copy = ckpt.copy_mut(tier).expect("the source has a copy");
        debug_assert!(copy.is_usable(), "a restore reads complete, undamaged bytes");
        copy.readers += 1;
        let place = Place { tier, offset: copy.offset };
        let checkpoint = ckpt.id;
        self.open.insert(wait.request, Open::Served { row: wait.row, tier, since: self.now });
        self.pause_flushes(tier);
        self.note_fate(wait.row, version);
        self.take_hint(version);
        self.touch(wait.row, tier);
        self.rest(wait.row);
        out.push(Command::Serve { request: wait.request, checkpoint, place });
        true
    }

    /// Why a restore that waited can no longer be served.
    fn gone(&self, wait: WaitingRestore) -> Option<Refusal> {
        match self.table.row(wait.row) {
            Some(ckpt) if ckpt.id == wait.id && !ckpt.doomed => {
                ckpt.lost.map(|failure| Refusal::Lost { failure })
            }
            _ => Some(Refusal::Discarded),
        }
    }

    fn source_of_restore(&self, row: Row) -> Source {
        let ckpt = self.table.get(row);
        let Some(best) = ckpt.fastest_complete() else { return Source::Nowhere };
        let arriving = |t: TierId| {
            let inbound = ckpt.copy(t).and_then(|c| c.inbound);
            let transfer = inbound.and_then(|id| self.transfers.get(&id));
            transfer.filter(|t| !t.cancelled).map(|t| t.from)
        };
        let from = (0..best.0).map(TierId).find_map(arriving);
        from.map_or(Source::Copy(best), Source::Arriving)
    }

    fn count_restore(&mut self, row: Row, tier: TierId) {
        let (version, bytes) = (self.table.get(row).version, self.table.get(row).bytes);
        self.stats.restores += 1;
        self.stats.restored_bytes += bytes;
        self.stats.tier(tier).hits += 1;
        if self.hints.next_use(version) == NO_USE {
            return;
        }
        self.stats.hinted_restores += 1;
        let lead = self.lead(self.hints.next_use(version) + 1);
        self.stats.count_lead(lead);
    }

    /// The hint that is about to be taken says what becomes of the checkpoint after this restore.
    /// What goes after a restore that was given up goes after the next one.
    fn note_fate(&mut self, row: Row, version: Version) {
        let is_hinted = self.hints.next_use(version) != NO_USE;
        if !is_hinted && self.table.get(row).then == Then::Goes {
            return;
        }
        let only = self.hints.nth_use(version, 1) == NO_USE;
        let then = self.hints.then(version).filter(|_| only).unwrap_or(Then::Stays);
        self.table.get_mut(row).then = then;
    }

    /// How many hints from `position` on, without a break, have their bytes in the fastest tier.
    fn lead(&mut self, position: u64) -> usize {
        self.ready_until = self.ready_until.max(position);
        while self.ready_until < self.hints.end() && self.is_ready(self.ready_until) {
            self.ready_until += 1;
        }
        usize::try_from(self.ready_until - position).unwrap_or(usize::MAX)
    }

    fn is_ready(&self, position: u64) -> bool {
        // An entry that was taken out of order needs nothing.
        let Some(version) = self.hints.get(position) else { return true };
        self.table
            .find(version)
            .is_some_and(|row| self.table.get(row).copy(TierId(0)).is_some_and(Copy::is_usable))
    }

    pub(super) fn on_restored(&mut self, request: RequestId, out: &mut Vec<Command>) {
        let Some(row) = self.end_service(request) else { return };
        if self.table.get(row).doomed {
            return self.clear_doomed(row, out);
        }
        self.drop_damaged(row, out);
        self.table.get_mut(row).restored = true;
        let waited_for = self.waiting_restores.iter().any(|w| w.row == row);
        let last = self.hints.next_use(self.table.get(row).version) == NO_USE && !waited_for;
        let goes = self.table.get(row).then == Then::Goes || self.config.discard_after_restore;
        if last && goes {
            self.discard(row, out);
        } else {
            self.rest(row);
        }
    }

    pub(super) fn on_restore_aborted(&mut self, request: RequestId, out: &mut Vec<Command>) {
        let Some(row) = self.end_service(request) else { return };
        if self.table.get(row).doomed {
            return self.clear_doomed(row, out);
        }
        self.drop_damaged(row, out);
        self.rest(row);
    }

    fn end_service(&mut self, request: RequestId) -> Option<Row> {
        let Some(&Open::Served { row, tier, since }) = self.open.get(&request) else { return None };
        self.open.remove(&request);
        self.shorten_pause(tier, since);
        let copy = self.table.get_mut(row).copy_mut(tier).expect("a copy that was read exists");
        assert!(copy.readers > 0, "a reader leaves once");
        copy.readers -= 1;
        self.may_move_now(tier);
        Some(row)
    }
}
