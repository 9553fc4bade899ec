//! Queries of a core, and the recovery of checkpoints of earlier runs.

use alloc::vec::Vec;

use super::Core;
use crate::command::Command;
use crate::config::{Config, MAX_TIERS};
use crate::lifecycle::state::CopyState;
use crate::lifecycle::table::{Copy, Row};
use crate::stats::{CoreStats, LinkStats};
use crate::types::{CheckpointId, TierId, Version};

impl Core {
    /// The settings that the core was made from.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> CoreStats {
        let mut stats = self.stats.clone();
        stats.hints = self.hints.len() as u64;
        for (counters, tier) in stats.tiers.iter_mut().zip(&self.tiers) {
            (counters.used, counters.copies) = (tier.used(), tier.copies);
        }
        for (i, link) in stats.links.iter_mut().enumerate() {
            let direction = |lane: &super::LinkLane| crate::stats::DirectionStats {
                rate: lane.model.rate(),
                in_flight: lane.in_flight,
                ..lane.stats
            };
            *link = LinkStats {
                flush: direction(&self.flush_lanes[i]),
                prefetch: direction(&self.prefetch_lanes[i]),
            };
        }
        stats
    }

    /// Entries of the restore order queue.
    #[must_use]
    pub fn hints(&self) -> usize {
        self.hints.len()
    }

    /// Whether `version` is saved or its save is in flight, and it is not discarded.
    #[must_use]
    pub fn contains(&self, version: Version) -> bool {
        self.table.find(version).is_some_and(|row| self.table.get(row).exists())
    }

    /// The versions for which [`Core::contains`] holds, ascending.
    #[must_use]
    pub fn versions(&self) -> Vec<Version> {
        self.table.versions().collect()
    }

    /// The id of the checkpoint that is saved under `version`, or whose save is in flight.
    #[must_use]
    pub fn checkpoint(&self, version: Version) -> Option<CheckpointId> {
        let row = self.table.find(version).filter(|&r| self.table.get(r).exists())?;
        Some(self.table.get(row).id)
    }

    /// The adjacent bytes of an arena that no copy has and no save or transfer fills: the most of
    /// them, in whole units; 0 where there are none, and in a store.
    #[must_use]
    pub fn largest_gap(&self, tier: TierId) -> u64 {
        let arena = self.tiers.get(usize::from(tier.0)).and_then(|state| state.arena.as_ref());
        let gap =
            arena.and_then(|arena| Some(arena.as_slice()[arena.largest_gaps().next()?].bytes));
        gap.unwrap_or(0)
    }

    /// The state of the copy in every tier, fastest first.
    #[must_use]
    pub fn copies(&self, version: Version) -> [Option<CopyState>; MAX_TIERS] {
        let Some(row) = self.table.find(version) else { return [None; MAX_TIERS] };
        self.table.get(row).copies.map(|copy| copy.map(|c| c.state))
    }

    /// The fastest tier that has all bytes of a checkpoint.
    #[must_use]
    pub fn fastest(&self, version: Version) -> Option<TierId> {
        self.table.get(self.table.find(version)?).fastest_complete()
    }

    /// Whether the copy in the slowest tier that can hold this checkpoint is complete.
    #[must_use]
    pub fn is_flushed(&self, version: Version) -> bool {
        let saved = self.table.find(version).map(|row| self.table.get(row)).filter(|c| c.saved);
        saved.is_some_and(|c| c.lost.is_none() && !self.unflushed.contains_key(&c.id))
    }

    /// The checkpoints that are not in the slowest tier that can hold them yet, and their bytes.
    #[must_use]
    pub fn unflushed(&self) -> (u64, u64) {
        let bytes = self.unflushed.values().map(|&row| self.table.get(row).bytes).sum();
        (self.unflushed.len() as u64, bytes)
    }

    /// Transfers in flight.
    #[must_use]
    pub fn transfers_in_flight(&self) -> usize {
        self.transfers.len()
    }

    /// Calls that wait for an answer.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting_saves.len() + self.waiting_restores.len() + self.waiting_flushes.len()
    }

    pub(super) fn on_recover(
        &mut self,
        checkpoint: CheckpointId,
        version: Version,
        bytes: u64,
        tier: TierId,
        out: &mut Vec<Command>,
    ) {
        let valid = self.tiers.get(usize::from(tier.0)).is_some_and(|t| t.arena.is_none());
        let known = self.table.find(version).filter(|&r| self.table.get(r).id == checkpoint);
        if !valid || (known.is_none() && checkpoint < self.table.next_id()) {
            return;
        }
        let row = match known {
            Some(row) => row,
            None => self.recover_checkpoint(checkpoint, version, bytes, out),
        };
        let ckpt = self.table.get_mut(row);
        if ckpt.bytes != bytes || ckpt.copy(tier).is_some() {
            return;
        }
        ckpt.copies[usize::from(tier.0)] = Some(Copy::new(CopyState::WriteComplete, 0));
        let size = self.tier(tier).size_of(bytes);
        let state = self.tier_mut(tier);
        state.store_used = state.store_used.saturating_add(size);
        state.copies += 1;
        if self.bottom(bytes) == Some(tier) {
            self.unflushed.remove(&checkpoint);
        }
        self.rest(row);
    }

    /// Adds a saved checkpoint without copies; the caller adds those.
    fn recover_checkpoint(
        &mut self,
        checkpoint: CheckpointId,
        version: Version,
        bytes: u64,
        out: &mut Vec<Command>,
    ) -> Row {
        // An earlier run may have stopped between saving a version anew and deleting the old one.
        self.on_discard(version, out);
        let row = self.table.insert_as(checkpoint, version, bytes);
        self.table.mark_saved(row, bytes);
        self.unflushed.insert(checkpoint, row);
        row
    }
}
