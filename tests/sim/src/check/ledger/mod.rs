//! The ledger of all checkpoints: every event and every command is entered and checked.

mod commands;
mod reports;
mod saves;

use std::collections::{BTreeMap, BTreeSet};

use unspool_core::{CheckpointId, Config, Place, TierConfig, TierId, TransferId, Version};

use super::copies::{Books, Holding, Stage, can_hold, size_in};
use super::{Rule, Violation, ensure};

/// A transfer that was not reported yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Movement {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Size of its payload.
    pub bytes: u64,
    /// Source.
    pub from: Place,
    /// Destination.
    pub to: Place,
    /// Whether it was cancelled.
    pub cancelled: bool,
}

/// The expected state of all checkpoints.
#[derive(Clone, Debug)]
pub struct Ledger {
    config: Config,
    /// Arenas whose device is lost.
    lost: BTreeSet<TierId>,
    /// Where each arena ends.
    ends: Vec<u64>,
    books: BTreeMap<CheckpointId, Books>,
    /// The checkpoint of each version: live or being saved.
    names: BTreeMap<Version, CheckpointId>,
    discarded: BTreeSet<Version>,
    movements: BTreeMap<TransferId, Movement>,
    next_transfer: u64,
    next_checkpoint: u64,
}

impl Ledger {
    /// An empty ledger.
    #[must_use]
    pub fn new(config: &Config) -> Ledger {
        Ledger {
            config: config.clone(),
            lost: BTreeSet::new(),
            ends: config.tiers.iter().map(end_of).collect(),
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

    /// The entry of a checkpoint that is not completely gone.
    #[must_use]
    pub fn get(&self, id: CheckpointId) -> Option<&Books> {
        self.books.get(&id)
    }

    /// The checkpoint of `version`, live or being saved.
    #[must_use]
    pub fn named(&self, version: Version) -> Option<&Books> {
        self.names.get(&version).and_then(|id| self.books.get(id))
    }

    /// Whether the last checkpoint of `version` was discarded.
    #[must_use]
    pub fn was_discarded(&self, version: Version) -> bool {
        self.discarded.contains(&version)
    }

    /// All checkpoints that are not completely gone.
    pub fn all(&self) -> impl Iterator<Item = &Books> {
        self.books.values()
    }

    /// All saved checkpoints.
    pub fn live(&self) -> impl Iterator<Item = &Books> {
        self.books.values().filter(|books| books.stage == Stage::Live)
    }

    /// All checkpoints that are saved, or whose save is in flight.
    pub fn there(&self) -> impl Iterator<Item = &Books> {
        self.books.values().filter(|books| matches!(books.stage, Stage::Live | Stage::InFlight))
    }

    /// All checkpoints whose save is in flight.
    pub fn in_flight(&self) -> impl Iterator<Item = &Books> {
        self.books.values().filter(|books| books.stage == Stage::InFlight)
    }

    /// Transfers that were not reported yet.
    pub fn movements(&self) -> impl Iterator<Item = (&TransferId, &Movement)> {
        self.movements.iter()
    }

    /// A transfer that was not reported yet.
    #[must_use]
    pub fn movement(&self, transfer: TransferId) -> Option<Movement> {
        self.movements.get(&transfer).copied()
    }

    /// The smallest id that is not in use.
    #[must_use]
    pub fn next_checkpoint(&self) -> CheckpointId {
        CheckpointId(self.next_checkpoint)
    }

    /// Bytes held and reserved in a tier.
    #[must_use]
    pub fn used(&self, tier: usize) -> u64 {
        let end = self.ends[tier];
        let held = |h: Holding| h.offset.saturating_add(h.size).min(end) - h.offset.min(end);
        self.books.values().filter_map(|books| books.holdings[tier]).map(held).sum()
    }

    /// Whether the place of a copy reaches beyond the end of its arena.
    #[must_use]
    pub fn is_beyond(&self, place: Place, bytes: u64) -> bool {
        let tier = usize::from(place.tier.0);
        let size = size_in(&self.config.tiers[tier], bytes);
        place.offset.saturating_add(size) > self.ends[tier]
    }

    /// An arena has lost what lies beyond its first `capacity` bytes.
    pub fn shrink(&mut self, tier: TierId, capacity: u64) {
        let config = &mut self.config.tiers[usize::from(tier.0)];
        config.capacity = capacity;
        self.ends[usize::from(tier.0)] = end_of(config);
    }

    /// An arena has bytes up to `capacity` again, unless a copy was on its way to bytes that it had
    /// lost.
    pub fn grow(&mut self, tier: TierId, capacity: u64) {
        let index = usize::from(tier.0);
        let end = self.ends[index];
        let ends = |held: Holding| held.offset.saturating_add(held.size);
        let mut holdings = self.books.values().filter_map(|books| books.holdings[index]);
        if !self.is_lost(tier) && !holdings.any(|held| ends(held) > end) {
            self.shrink(tier, capacity);
        }
    }

    /// Whether an empty tier can hold a payload.
    #[must_use]
    pub fn can_hold(&self, tier: usize, bytes: u64) -> bool {
        !self.is_lost(TierId(tier as u8)) && can_hold(&self.config.tiers[tier], bytes)
    }

    /// Whether the device of an arena is lost.
    #[must_use]
    pub fn is_lost(&self, tier: TierId) -> bool {
        self.lost.contains(&tier)
    }

    /// The device of an arena is lost: the arena has no room, and its copies count only where there
    /// is no other.
    pub fn lose(&mut self, tier: TierId) {
        self.lost.insert(tier);
        self.config.tiers[usize::from(tier.0)].capacity = 0;
        self.books.values_mut().for_each(|books| leave_lost(&self.lost, books));
    }

    /// A deletion that has not been reported.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        let mut holdings = self.books.values().flat_map(|books| books.holdings.iter().flatten());
        holdings.any(|holding| holding.deleting)
    }

    /// Reserves space for a copy that is about to be written.
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

    /// Enters the begin of a read, counted by `count`: there must be a readable copy at this place.
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

    /// The fastest tier that has the bytes, or to which a wanted transfer brings them.
    #[must_use]
    pub fn fastest(&self, id: CheckpointId) -> Option<TierId> {
        let books = self.books.get(&id)?;
        let here = books.holdings.iter().position(|h| h.is_some_and(|held| held.is_good()));
        let mine = |m: &&Movement| m.checkpoint == id && !m.cancelled;
        let arriving = self.movements.values().filter(mine).map(|m| m.to.tier).min();
        here.map(|tier| TierId(tier as u8)).into_iter().chain(arriving).min()
    }

    /// The slowest tier that can hold `bytes` bytes.
    #[must_use]
    pub fn bottom(&self, bytes: u64) -> Option<usize> {
        (0..self.config.tiers.len()).rev().find(|tier| self.can_hold(*tier, bytes))
    }
}

/// The end of an arena; of a store, what is above every frame.
fn end_of(tier: &TierConfig) -> u64 {
    let whole = tier.capacity - tier.capacity % tier.alignment;
    if tier.kind.is_arena() { whole } else { u64::MAX }
}

/// Copies in lost tiers are not read where there is another one.
fn leave_lost(lost: &BTreeSet<TierId>, books: &mut Books) {
    let is_lost = |tier: usize| lost.contains(&TierId(tier as u8));
    let is_elsewhere = |(tier, held): (usize, &Option<Holding>)| {
        !is_lost(tier) && held.is_some_and(|held| held.is_good())
    };
    if books.stage == Stage::Live && books.holdings.iter().enumerate().any(is_elsewhere) {
        let holdings = books.holdings.iter_mut().enumerate().filter(|(tier, _)| is_lost(*tier));
        holdings.filter_map(|(_, held)| held.as_mut()).for_each(|held| held.bad |= held.ready);
    }
}
