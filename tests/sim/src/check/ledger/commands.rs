//! Commands of the core in the ledger: which grants, transfers and removals are legal.

use unspool_core::{CheckpointId, Place, Size, TierId, TransferId, TransferKind, Version};

use super::{Ledger, Movement};
use crate::check::copies::{Books, Holding, Stage};
use crate::check::{Rule, Violation, ensure};

impl Ledger {
    /// Enters the grant of a save of `bytes` bytes.
    pub fn grant(
        &mut self,
        (id, version): (CheckpointId, Version),
        (bytes, size): (u64, Size),
        place: Place,
    ) -> Result<(), Violation> {
        let what = || format!("{id:?} was used before or is out of order");
        ensure(!self.books.contains_key(&id), Rule::Known, what)?;
        self.next_checkpoint = self.next_checkpoint.max(id.0 + 1);
        let taken = self.names.insert(version, id);
        let what = || format!("{version:?} is granted to {id:?} and names {taken:?}");
        ensure(taken.is_none(), Rule::Known, what)?;
        let books = Books::new(id, version, bytes, Stage::Saving);
        self.books.insert(id, Books { saving: Some(size), ..books });
        self.reserve(id, place)
    }

    /// Enters a restore that is served from `place`.
    pub fn serve(&mut self, id: CheckpointId, place: Place) -> Result<(), Violation> {
        self.begin_read(id, place, |holding| &mut holding.readers)
    }

    /// Enters a transfer.
    pub fn transfer(
        &mut self,
        transfer: TransferId,
        kind: TransferKind,
        movement: Movement,
    ) -> Result<(), Violation> {
        let Movement { checkpoint, bytes, from, to, .. } = movement;
        let what = || format!("{transfer:?} was used before or is out of order");
        ensure(transfer.0 >= self.next_transfer, Rule::Transfer, what)?;
        self.next_transfer = transfer.0 + 1;
        let wanted = if from.tier < to.tier { TransferKind::Flush } else { TransferKind::Prefetch };
        ensure(kind == wanted && from.tier != to.tier, Rule::Transfer, || {
            format!("{transfer:?} is a {kind:?} from tier {} to tier {}", from.tier.0, to.tier.0)
        })?;
        let readable = self.begin_read(checkpoint, from, |holding| &mut holding.sources);
        let books = &self.books[&checkpoint];
        let known = ensure(books.stage == Stage::Live && books.bytes == bytes, Rule::Known, || {
            format!("{transfer:?} moves {bytes} bytes of {books:?}")
        });
        let reserved = self.reserve(checkpoint, to);
        self.movements.insert(transfer, movement);
        readable.and(known).and(reserved).and(self.check_limits(from.tier, to.tier))
    }

    /// Checks the limits of the link next to the slower end, in one direction.
    fn check_limits(&self, from: TierId, to: TierId) -> Result<(), Violation> {
        let (faster, slower) = (from.min(to), from.max(to));
        if slower.0 != faster.0 + 1 {
            return Ok(());
        }
        let link = self.config.links[usize::from(faster.0)];
        let lane = self.movements.values().filter(|m| m.from.tier == from && m.to.tier == to);
        let (count, bytes) = lane.fold((0, 0u64), |(n, sum), m| (n + 1, sum + m.bytes));
        let fits = count <= link.max_in_flight && bytes <= link.max_in_flight_bytes;
        ensure(count <= 1 || fits, Rule::Transfer, || {
            format!("{count} transfers of {bytes} bytes are in flight from {from:?} to {to:?}")
        })
    }

    /// Enters the cancellation of a transfer.
    pub fn cancel(&mut self, transfer: TransferId) -> Result<(), Violation> {
        let movement = self.movements.get_mut(&transfer).filter(|m| !m.cancelled);
        let what = || format!("{transfer:?} is cancelled and not in flight");
        let movement = movement.ok_or_else(|| Violation::new(Rule::Transfer, what()))?;
        movement.cancelled = true;
        Ok(())
    }

    /// Enters the eviction of a copy from an arena.
    pub fn evict(&mut self, id: CheckpointId, place: Place) -> Result<(), Violation> {
        let holding = *self.holding(id, place.tier)?;
        let arena = self.config.tiers[usize::from(place.tier.0)].kind.is_arena();
        ensure(arena && holding.offset == place.offset, Rule::Known, || {
            format!("{id:?} is evicted from {place:?} and is at {holding:?}")
        })?;
        self.check_loss(id, place.tier, &holding)?;
        self.remove(id, place.tier);
        Ok(())
    }

    /// Enters the deletion of a frame.
    pub fn delete(&mut self, id: CheckpointId, tier: TierId) -> Result<(), Violation> {
        let holding = *self.holding(id, tier)?;
        let store = !self.config.tiers[usize::from(tier.0)].kind.is_arena();
        ensure(store, Rule::Known, || format!("{id:?} is deleted from the arena {tier:?}"))?;
        self.check_loss(id, tier, &holding)?;
        self.holding(id, tier)?.deleting = true;
        Ok(())
    }

    /// Checks that the copy is not in use, and is not the last one of a live checkpoint.
    fn check_loss(&self, id: CheckpointId, tier: TierId, held: &Holding) -> Result<(), Violation> {
        let what = || format!("{id:?} is removed from tier {} while in use: {held:?}", tier.0);
        ensure(!held.is_used(), Rule::InUse, what)?;
        let books = &self.books[&id];
        let last = held.is_good() && !books.is_readable_outside(usize::from(tier.0));
        let what = || format!("the last copy of {id:?} is removed from tier {}", tier.0);
        ensure(books.stage != Stage::Live || !last, Rule::Known, what)
    }
}
