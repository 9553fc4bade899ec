//! The books of all checkpoints: every event and every command is entered, and judged.

use std::collections::{BTreeMap, BTreeSet};

use unspool_core::{
    CheckpointId, Config, Failure, Place, TierConfig, TierId, TransferId, TransferKind, Version,
};

use super::copies::{Books, Holding, Stage, can_hold, size_in};
use super::{Rule, Violation, ensure};

/// A movement that was not reported yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Movement {
    /// What moves.
    pub checkpoint: CheckpointId,
    /// Its payload.
    pub bytes: u64,
    /// From where.
    pub from: Place,
    /// To where.
    pub to: Place,
    /// Whether its result is no longer wanted.
    pub cancelled: bool,
}

/// All books.
#[derive(Clone, Debug)]
pub struct Ledger {
    config: Config,
    books: BTreeMap<CheckpointId, Books>,
    /// The checkpoint that a version names: live or being saved.
    names: BTreeMap<Version, CheckpointId>,
    discarded: BTreeSet<Version>,
    movements: BTreeMap<TransferId, Movement>,
    next_transfer: u64,
    next_checkpoint: u64,
}

impl Ledger {
    /// Empty books.
    #[must_use]
    pub fn new(config: &Config) -> Ledger {
        Ledger {
            config: config.clone(),
            books: BTreeMap::new(),
            names: BTreeMap::new(),
            discarded: BTreeSet::new(),
            movements: BTreeMap::new(),
            next_transfer: 0,
            next_checkpoint: 0,
        }
    }

    /// The tiers, fastest first.
    #[must_use]
    pub fn tiers(&self) -> &[TierConfig] {
        &self.config.tiers
    }

    /// The books of a checkpoint that has not gone completely.
    #[must_use]
    pub fn get(&self, id: CheckpointId) -> Option<&Books> {
        self.books.get(&id)
    }

    /// The checkpoint that `version` names, live or being saved.
    #[must_use]
    pub fn named(&self, version: Version) -> Option<&Books> {
        self.names.get(&version).and_then(|id| self.books.get(id))
    }

    /// Whether the last checkpoint of `version` was discarded.
    #[must_use]
    pub fn was_discarded(&self, version: Version) -> bool {
        self.discarded.contains(&version)
    }

    /// All checkpoints that have not gone completely.
    pub fn all(&self) -> impl Iterator<Item = &Books> {
        self.books.values()
    }

    /// All saved checkpoints.
    pub fn live(&self) -> impl Iterator<Item = &Books> {
        self.books.values().filter(|books| books.stage == Stage::Live)
    }

    /// Movements that were not reported yet.
    pub fn movements(&self) -> impl Iterator<Item = (&TransferId, &Movement)> {
        self.movements.iter()
    }

    /// A movement that was not reported yet.
    #[must_use]
    pub fn movement(&self, transfer: TransferId) -> Option<Movement> {
        self.movements.get(&transfer).copied()
    }

    /// The id above those of all checkpoints so far.
    #[must_use]
    pub fn next_checkpoint(&self) -> CheckpointId {
        CheckpointId(self.next_checkpoint)
    }

    /// Bytes held and reserved in a tier.
    #[must_use]
    pub fn used(&self, tier: usize) -> u64 {
        self.books.values().filter_map(|books| books.holdings[tier]).map(|h| h.size).sum()
    }

    /// A deletion that has not been reported.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        let mut holdings = self.books.values().flat_map(|books| books.holdings.iter().flatten());
        holdings.any(|holding| holding.deleting)
    }

    fn reserve(&mut self, id: CheckpointId, place: Place) -> Result<(), Violation> {
        let tier = usize::from(place.tier.0);
        let Some(config) = self.config.tiers.get(tier).copied() else {
            return Err(Violation::new(Rule::Capacity, format!("there is no tier {tier}")));
        };
        let books = &self.books[&id];
        let size = size_in(&config, books.bytes);
        let only = ensure(books.holdings[tier].is_none(), Rule::Overlap, || {
            format!("checkpoint {} gets a second copy in tier {tier}", id.0)
        });
        let roomy = self.check_room(tier, &config, place.offset, size);
        let books = self.books.get_mut(&id).expect("the books were just read");
        books.holdings[tier] = Some(Holding::filling(place.offset, size));
        only.and(roomy)
    }

    fn check_room(
        &self,
        tier: usize,
        config: &TierConfig,
        offset: u64,
        size: u64,
    ) -> Result<(), Violation> {
        let used = self.used(tier).saturating_add(size);
        ensure(used <= config.capacity, Rule::Capacity, || {
            format!("tier {tier} would hold {used} bytes of {}", config.capacity)
        })?;
        if !config.kind.is_arena() {
            let what = || format!("offset {offset} in a store");
            return ensure(offset == 0, Rule::Capacity, what);
        }
        let end = offset.saturating_add(size);
        ensure(
            offset.is_multiple_of(config.alignment) && end <= config.capacity,
            Rule::Capacity,
            || format!("bytes {offset}..{end} of tier {tier} are not aligned or not there"),
        )?;
        let other = self.overlapping(tier, offset, end);
        ensure(other.is_none(), Rule::Overlap, || {
            let (id, holding) = other.expect("an overlap was found");
            let theirs = holding.offset..holding.offset + holding.size;
            let used = if holding.is_used() { "used" } else { "idle" };
            format!("bytes {offset}..{end} of tier {tier} meet {theirs:?} of {id:?}, {used}")
        })
    }

    fn overlapping(&self, tier: usize, offset: u64, end: u64) -> Option<(CheckpointId, Holding)> {
        let holdings = self.books.values().filter_map(|b| b.holdings[tier].map(|h| (b.id, h)));
        holdings.into_iter().find(|(_, h)| h.offset < end && offset < h.offset + h.size)
    }

    fn holding(&mut self, id: CheckpointId, tier: TierId) -> Result<&mut Holding, Violation> {
        let books = self.books.get_mut(&id);
        let holding = books.and_then(|b| b.holdings.get_mut(usize::from(tier.0))?.as_mut());
        holding.ok_or_else(|| {
            Violation::new(Rule::Known, format!("{id:?} has no copy in tier {}", tier.0))
        })
    }

    /// A reader begins, which is counted by `count`: there must be a readable copy at this place.
    fn begin_read(
        &mut self,
        id: CheckpointId,
        place: Place,
        count: fn(&mut Holding) -> &mut u32,
    ) -> Result<(), Violation> {
        let holding = self.holding(id, place.tier)?;
        let good = holding.is_good() && holding.offset == place.offset;
        let what = format!("{id:?} cannot be read at {place:?}: {holding:?}");
        *count(holding) += 1;
        ensure(good, Rule::InUse, || what)
    }

    /// A save of `bytes` bytes was granted.
    pub fn grant(
        &mut self,
        id: CheckpointId,
        version: Version,
        bytes: u64,
        place: Place,
    ) -> Result<(), Violation> {
        let what = || format!("{id:?} was used before or is out of order");
        ensure(!self.books.contains_key(&id), Rule::Known, what)?;
        self.next_checkpoint = self.next_checkpoint.max(id.0 + 1);
        let taken = self.names.insert(version, id);
        let what = || format!("{version:?} is granted to {id:?} and names {taken:?}");
        ensure(taken.is_none(), Rule::Known, what)?;
        self.books.insert(id, Books::new(id, version, bytes, Stage::Saving));
        self.reserve(id, place)
    }

    /// The bytes of a granted save are in place, or never will be.
    pub fn saved(&mut self, id: CheckpointId, tier: TierId, complete: bool) {
        let books = self.books.get_mut(&id).expect("a granted checkpoint has books");
        books.stage = if complete { Stage::Live } else { Stage::Gone };
        let holding = books.holdings[usize::from(tier.0)].as_mut().expect("a grant has room");
        (holding.filling, holding.ready) = (false, complete);
        let version = books.version;
        if complete {
            self.discarded.remove(&version);
        } else {
            self.names.remove(&version);
            self.drop_failed(id, tier);
        }
    }

    /// Room that was never filled is free at once.
    fn drop_failed(&mut self, id: CheckpointId, tier: TierId) {
        let books = self.books.get_mut(&id).expect("a failed copy has books");
        books.holdings[usize::from(tier.0)] = None;
        self.forget_if_empty(id);
    }

    fn forget_if_empty(&mut self, id: CheckpointId) {
        let empty = |b: &Books| b.stage == Stage::Gone && b.holdings.iter().all(Option::is_none);
        if self.books.get(&id).is_some_and(empty) {
            self.books.remove(&id);
        }
    }

    /// A restore is served from `place`.
    pub fn serve(&mut self, id: CheckpointId, place: Place) -> Result<(), Violation> {
        self.begin_read(id, place, |holding| &mut holding.readers)
    }

    /// A served restore is over.
    pub fn released(&mut self, id: CheckpointId, tier: TierId) -> Result<(), Violation> {
        let holding = self.holding(id, tier)?;
        let what = format!("{id:?} is not being read: {holding:?}");
        ensure(holding.readers > 0, Rule::Answer, || what)?;
        self.holding(id, tier)?.readers -= 1;
        Ok(())
    }

    /// The application or the core has dropped the checkpoint that `version` names.
    pub fn discard(&mut self, version: Version) {
        let Some(id) = self.names.get(&version).copied() else { return };
        let books = self.books.get_mut(&id).expect("a named checkpoint has books");
        if books.stage == Stage::Live {
            books.stage = Stage::Gone;
            self.names.remove(&version);
            self.discarded.insert(version);
            self.forget_if_empty(id);
        }
    }

    /// A transfer was commanded.
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

    /// The limits of the link next to the slower end, in one direction.
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

    /// The result of a transfer is no longer wanted.
    pub fn cancel(&mut self, transfer: TransferId) -> Result<(), Violation> {
        let movement = self.movements.get_mut(&transfer).filter(|m| !m.cancelled);
        let what = || format!("{transfer:?} is cancelled and not in flight");
        let movement = movement.ok_or_else(|| Violation::new(Rule::Transfer, what()))?;
        movement.cancelled = true;
        Ok(())
    }

    /// A transfer was reported: `None` when its bytes have arrived or nothing was tried, else why
    /// it failed.
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
        if !arrived {
            self.drop_failed(checkpoint, to.tier);
        }
        Ok(())
    }

    /// A copy in an arena is gone.
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

    /// A frame is being deleted.
    pub fn delete(&mut self, id: CheckpointId, tier: TierId) -> Result<(), Violation> {
        let holding = *self.holding(id, tier)?;
        let store = !self.config.tiers[usize::from(tier.0)].kind.is_arena();
        ensure(store, Rule::Known, || format!("{id:?} is deleted from the arena {tier:?}"))?;
        self.check_loss(id, tier, &holding)?;
        self.holding(id, tier)?.deleting = true;
        Ok(())
    }

    /// Nobody uses the copy, and it is not the last one of a checkpoint that somebody may want.
    fn check_loss(&self, id: CheckpointId, tier: TierId, held: &Holding) -> Result<(), Violation> {
        let what = || format!("{id:?} is removed from tier {} while in use: {held:?}", tier.0);
        ensure(!held.is_used(), Rule::InUse, what)?;
        let books = &self.books[&id];
        let last = held.is_good() && !books.is_readable_outside(usize::from(tier.0));
        let what = || format!("the last copy of {id:?} is removed from tier {}", tier.0);
        ensure(books.stage != Stage::Live || !last, Rule::Known, what)
    }

    /// A deletion was reported.
    pub fn deleted(&mut self, id: CheckpointId, tier: TierId) {
        if self.holding(id, tier).is_ok_and(|holding| holding.deleting) {
            self.remove(id, tier);
        }
    }

    fn remove(&mut self, id: CheckpointId, tier: TierId) {
        let books = self.books.get_mut(&id).expect("a removed copy has books");
        books.holdings[usize::from(tier.0)] = None;
        self.forget_if_empty(id);
    }

    /// A frame of an earlier life was found.
    pub fn adopt(&mut self, id: CheckpointId, version: Version, bytes: u64, tier: TierId) {
        let books = self.books.entry(id).or_insert(Books::new(id, version, bytes, Stage::Live));
        let size = size_in(&self.config.tiers[usize::from(tier.0)], bytes);
        let found = Holding { ready: true, filling: false, ..Holding::filling(0, size) };
        books.holdings[usize::from(tier.0)] = Some(found);
        self.names.insert(version, id);
        self.next_checkpoint = self.next_checkpoint.max(id.0 + 1);
    }

    /// The slowest tier that can hold `bytes` bytes.
    #[must_use]
    pub fn bottom(&self, bytes: u64) -> Option<usize> {
        self.config.tiers.iter().rposition(|tier| can_hold(tier, bytes))
    }
}
