//! Events in the ledger: completed, failed and removed copies.

use unspool_core::{CheckpointId, Failure, TierId, TransferId, Version};

use super::{Ledger, Movement, leave_lost};
use crate::check::copies::{Books, Holding, Stage, size_in};
use crate::check::{Rule, Violation, ensure};

impl Ledger {
    /// Frees space that was never filled.
    pub(super) fn drop_failed(&mut self, id: CheckpointId, tier: TierId) {
        let books = self.books.get_mut(&id).expect("a failed copy has books");
        books.holdings[usize::from(tier.0)] = None;
        self.forget_if_empty(id);
    }

    pub(super) fn forget_if_empty(&mut self, id: CheckpointId) {
        let empty = |b: &Books| b.stage == Stage::Gone && b.holdings.iter().all(Option::is_none);
        if self.books.get(&id).is_some_and(empty) {
            self.books.remove(&id);
        }
    }

    /// Enters the end of a served restore.
    pub fn released(&mut self, id: CheckpointId, tier: TierId) -> Result<(), Violation> {
        let holding = self.holding(id, tier)?;
        let what = format!("{id:?} is not being read: {holding:?}");
        ensure(holding.readers > 0, Rule::Answer, || what)?;
        self.holding(id, tier)?.readers -= 1;
        Ok(())
    }

    /// Enters that the application or the core dropped the checkpoint of `version`.
    pub fn discard(&mut self, version: Version) {
        let Some(id) = self.names.get(&version).copied() else { return };
        let books = self.books.get_mut(&id).expect("a named checkpoint has books");
        if matches!(books.stage, Stage::Live | Stage::InFlight) {
            books.stage = Stage::Gone;
            self.names.remove(&version);
            self.discarded.insert(version);
            self.forget_if_empty(id);
        }
    }

    /// Enters the report of a transfer: `None` for success or cancellation, else the failure.
    pub fn reported(
        &mut self,
        transfer: TransferId,
        arrived: bool,
        failure: Option<Failure>,
    ) -> Result<(), Violation> {
        let what = || format!("{transfer:?} is reported and not in flight");
        let movement = self.movements.remove(&transfer);
        let movement = movement.ok_or_else(|| Violation::new(Rule::Transfer, what()))?;
        let Movement { checkpoint, from, to, .. } = movement;
        self.holding(checkpoint, from.tier)?.sources -= 1;
        let target = self.holding(checkpoint, to.tier)?;
        (target.filling, target.ready) = (false, arrived);
        if let Some(failure @ (Failure::Corrupt | Failure::Missing)) = failure {
            self.holding(checkpoint, from.tier)?.bad = true;
            self.books.get_mut(&checkpoint).expect("it moved").harm = Some(failure);
        }
        if arrived {
            leave_lost(&self.lost, self.books.get_mut(&checkpoint).expect("it moved"));
        } else {
            self.drop_failed(checkpoint, to.tier);
        }
        Ok(())
    }

    /// Enters the report of a deletion.
    pub fn deleted(&mut self, id: CheckpointId, tier: TierId) {
        if self.holding(id, tier).is_ok_and(|holding| holding.deleting) {
            self.remove(id, tier);
        }
    }

    pub(super) fn remove(&mut self, id: CheckpointId, tier: TierId) {
        let books = self.books.get_mut(&id).expect("a removed copy has books");
        books.holdings[usize::from(tier.0)] = None;
        self.forget_if_empty(id);
    }

    /// Enters a frame that was found after a restart.
    pub fn adopt(&mut self, id: CheckpointId, version: Version, bytes: u64, tier: TierId) {
        let books = self.books.entry(id).or_insert(Books::new(id, version, bytes, Stage::Live));
        let size = size_in(&self.config.tiers[usize::from(tier.0)], bytes);
        let found = Holding { ready: true, filling: false, ..Holding::filling(0, size) };
        books.holdings[usize::from(tier.0)] = Some(found);
        self.names.insert(version, id);
        self.next_checkpoint = self.next_checkpoint.max(id.0 + 1);
    }
}
