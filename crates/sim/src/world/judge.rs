//! Comparing the core with the books after every step.

use std::collections::VecDeque;

use unspool_core::{CheckpointId, Event, TierId, TransferId, Version};

use super::{Checked, World};
use crate::check::copies::Stage;
use crate::check::{Rule, ensure};

/// The hints as the application gave them. What realignment drops is the core's business; as long
/// as every restore is the next hint, the queue is known exactly.
#[derive(Clone, Debug, Default)]
pub(crate) struct HintMirror {
    queue: VecDeque<Version>,
    strayed: bool,
}

impl HintMirror {
    pub fn expect(&mut self, version: Version) {
        self.queue.push_back(version);
    }

    pub fn forget(&mut self) {
        *self = HintMirror::default();
    }

    pub fn served(&mut self, version: Version) {
        let Some(at) = self.queue.iter().position(|hint| *hint == version) else { return };
        self.strayed |= at > 0;
        self.queue.remove(at);
    }

    /// Whether `version` may be hinted, and whether it certainly is.
    fn is_hinted(&self, version: Version) -> (bool, bool) {
        let listed = self.queue.contains(&version);
        (listed, listed && !self.strayed)
    }
}

impl World {
    /// With `discard_after_restore`, a restore may have been the last one: then, and only then,
    /// the core drops the checkpoint by itself.
    pub(crate) fn expect_discard(&mut self, event: &Event) -> Checked {
        let gone: Vec<Version> = self
            .ledger
            .live()
            .map(|books| books.version)
            .filter(|version| !self.core.contains(*version))
            .collect();
        for version in &gone {
            self.ledger.discard(*version);
            self.promises.release(*version);
        }
        if !matches!(event, Event::Restored { .. }) || !self.plan.config.discard_after_restore {
            return ensure(gone.is_empty(), Rule::Known, || format!("the core forgets {gone:?}"));
        }
        let hinted = gone.iter().find(|version| self.hints.is_hinted(**version).1);
        ensure(gone.len() <= 1 && hinted.is_none(), Rule::Known, || {
            format!("{gone:?} is discarded, but a hint announces another restore")
        })
    }

    /// The core has the same copies in the same places as the books.
    pub(crate) fn check_books(&self) -> Checked {
        let stats = self.core.stats();
        for (tier, counters) in stats.tiers.iter().enumerate() {
            let used = self.ledger.used(tier);
            let held = self.ledger.all().filter(|b| b.holdings[tier].is_some_and(|h| !h.deleting));
            let copies = held.count() as u64;
            ensure((counters.used, counters.copies) == (used, copies), Rule::Books, || {
                format!("tier {tier} has {copies} copies in {used} bytes, the core: {counters:?}")
            })?;
        }
        self.ledger.live().try_for_each(|books| {
            let states = self.core.copies(books.version);
            let agree = (0..stats.tiers.len()).all(|tier| {
                let held = books.holdings[tier].filter(|h| !h.deleting);
                states[tier].map(|state| state.is_complete()) == held.map(|h| h.ready)
            });
            ensure(agree, Rule::Books, || format!("the core has {states:?} of {books:?}"))?;
            let down = self.ledger.bottom(books.bytes).and_then(|tier| books.holdings[tier]);
            let flushed = down.is_some_and(|held| held.is_good());
            ensure(self.core.is_flushed(books.version) == flushed, Rule::Books, || {
                format!("the core takes {books:?} for flushed, or does not")
            })
        })
    }

    /// No call waits while nothing is under way that could change anything.
    pub(crate) fn check_waiting(&self) -> Checked {
        let moving = self.ledger.movements().next().is_some()
            || self.ledger.is_deleting()
            || self.requests.is_any_open()
            || self.core.next_deadline().is_some();
        let waiting = self.requests.waiting().next();
        ensure(moving || waiting.is_none(), Rule::Stuck, || {
            format!("{waiting:?} waits while nothing is under way")
        })
    }

    /// A flush is done: everything that was saved before it is in the slowest tier for it.
    pub(crate) fn check_flushed(&self, before: CheckpointId) -> Checked {
        let unfinished = self.ledger.live().filter(|b| b.id < before && b.is_readable()).find(|b| {
            let bottom = self.ledger.bottom(b.bytes);
            bottom.is_none_or(|tier| !b.holdings[tier].is_some_and(|h| h.ready && !h.deleting))
        });
        ensure(unfinished.is_none(), Rule::Durable, || {
            format!("a flush is done without {unfinished:?}")
        })
    }

    /// A transfer into a store that syncs each put promises durability when it is reported.
    pub(crate) fn promise_arrival(&mut self, transfer: TransferId) {
        let arrived = self.ledger.movements().find(|(id, _)| **id == transfer).map(|(_, m)| *m);
        if let Some(movement) = arrived.filter(|_| self.plan.machine.sync_each_put) {
            self.promise_frame(movement.checkpoint, movement.to.tier);
        }
    }

    /// The frame of a live checkpoint in a store will survive a crash.
    pub(crate) fn promise_frame(&mut self, id: CheckpointId, tier: TierId) {
        let Some(books) = self.ledger.get(id).filter(|b| b.stage == Stage::Live) else { return };
        let version = books.version;
        let store = self.hardware.stores[usize::from(tier.0)].as_ref();
        if store.is_some_and(|store| store.is_synced(id)) {
            self.promises.promise(version, id);
        }
    }
}
