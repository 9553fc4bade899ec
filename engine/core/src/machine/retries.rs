//! Failures: what is tried again, what is given up, what is lost.

use alloc::vec::Vec;

use super::Core;
use super::transfers::Transfer;
use crate::command::{Command, TransferKind};
use crate::event::Failure;
use crate::lifecycle::table::Row;
use crate::types::{Nanos, TierId};

/// A transfer that will be tried again, unless its checkpoint is discarded before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    pub row: Row,
    pub at: Nanos,
}

impl Core {
    /// When the next [`Event::Tick`](crate::Event::Tick) is due, if any.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.retries.iter().map(|r| r.at).chain(self.end_of_pauses()).min()
    }

    pub(super) fn learn_failure(
        &mut self,
        transfer: &Transfer,
        failure: Failure,
        out: &mut Vec<Command>,
    ) {
        let Transfer { row, from, to, kind, .. } = *transfer;
        let blamed = if kind == TransferKind::Flush { to } else { from };
        self.tier_mut(blamed).failure = Some(failure);
        match failure {
            Failure::Corrupt | Failure::Missing => self.lose_copy(row, from, failure, out),
            Failure::NoSpace if self.tier(to).arena.is_none() => self.tier_mut(to).full = true,
            Failure::Io => self.plan_retry(row),
            Failure::NoSpace | Failure::Permanent => {
                self.table.get_mut(row).stuck = Some(failure);
            }
        }
    }

    fn plan_retry(&mut self, row: Row) {
        let (now, limit, delay) = (self.now, self.config.max_retries, self.config.retry_delay);
        let ckpt = self.table.get_mut(row);
        ckpt.attempts += 1;
        if ckpt.attempts > limit {
            ckpt.stuck = Some(Failure::Io);
            return;
        }
        let doubled = delay.0.saturating_mul(1 << (ckpt.attempts - 1).min(20));
        ckpt.not_before = now.plus(Nanos(doubled.max(1)));
        let retry = Retry { row, at: ckpt.not_before };
        self.retries.retain(|r| r.row != row);
        self.retries.push(retry);
    }

    /// Marks the copy in `tier` as damaged. Without another copy the checkpoint is lost, and its
    /// restores are refused.
    fn lose_copy(&mut self, row: Row, tier: TierId, failure: Failure, out: &mut Vec<Command>) {
        let ckpt = self.table.get_mut(row);
        let copy = ckpt.copy_mut(tier).expect("the source of a transfer");
        debug_assert!(copy.state.is_complete(), "only complete copies are read");
        copy.damaged = true;
        let (id, bytes) = (ckpt.id, ckpt.bytes);
        if ckpt.fastest_complete().is_none() {
            ckpt.lost = Some(failure);
            self.unflushed.remove(&id);
        } else if self.bottom(bytes) == Some(tier) {
            self.unflushed.insert(id, row);
        }
        self.drop_damaged(row, out);
    }

    /// Drops the damaged copies that nothing names any more. The planners that had counted on them
    /// look for other copies.
    pub(super) fn drop_damaged(&mut self, row: Row, out: &mut Vec<Command>) {
        let mut dropped = false;
        for tier in self.tier_ids() {
            let copy = self.table.row(row).and_then(|ckpt| ckpt.copy(tier));
            if copy.is_some_and(|c| c.damaged && !c.is_busy()) {
                self.drop_copy(row, tier, out);
                dropped = true;
            }
        }
        if dropped {
            self.look_again(row);
        }
    }

    /// Takes up the retries whose time has come.
    pub(super) fn take_due_retries(&mut self) {
        while let Some(i) = self.retries.iter().position(|r| r.at <= self.now) {
            let retry = self.retries.swap_remove(i);
            self.look_again(retry.row);
        }
    }

    /// Tries the transfers once more that were given up, since their room is needed.
    pub(super) fn retry_everything(&mut self) {
        for tier in &mut self.tiers {
            tier.full = false;
            tier.generation += 1;
        }
        let stuck = |row: &Row| {
            let ckpt = self.table.get(*row);
            ckpt.stuck.is_some() && !ckpt.doomed && ckpt.lost.is_none()
        };
        let rows: Vec<Row> = self.table.rows().filter(stuck).collect();
        for row in rows {
            let ckpt = self.table.get_mut(row);
            (ckpt.stuck, ckpt.attempts) = (None, 0);
            self.look_again(row);
        }
    }

    /// Queues the flushes of a checkpoint that may be moved again, and moves the planners back to
    /// its hint.
    fn look_again(&mut self, row: Row) {
        debug_assert!(!self.table.get(row).doomed, "a discarded checkpoint is not moved again");
        let position = self.hints.next_use(self.table.get(row).version);
        for tier in self.tier_ids() {
            let missing = self.table.get(row).tiers().all(|t| t > tier);
            if missing {
                self.retreat(tier, position);
            }
        }
        self.rest(row);
    }
}
