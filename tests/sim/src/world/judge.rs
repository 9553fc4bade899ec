//! Comparison of the core with the ledger after every step.

use std::collections::VecDeque;

use unspool_core::{CheckpointId, Command, Event, Failure, Refusal, TierId, TransferId, Version};

use super::{Checked, World};
use crate::check::copies::Stage;
use crate::check::ledger::Movement;
use crate::check::requests::Call;
use crate::check::{Rule, ensure};

/// The hints of the application. The core may drop some of them to realign the queue; as long as
/// every restore is the next hint, the queue is known exactly.
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
    /// Follows a discard by the core: with `discard_after_restore` it drops a checkpoint after its
    /// last restore. `restored` is the one whose restore has just ended.
    pub(crate) fn expect_discard(&mut self, restored: Option<CheckpointId>) -> Checked {
        let live = self.ledger.live().map(|books| (books.id, books.version));
        let gone: Vec<_> = live.filter(|(_, version)| !self.core.contains(*version)).collect();
        let ended = restored.and_then(|id| self.ledger.get(id)).filter(|b| b.stage == Stage::Live);
        let ended = ended.map(|books| (books.id, books.version));
        for (_, version) in &gone {
            self.ledger.discard(*version);
            self.promises.release(*version);
        }
        let may = ended.filter(|(_, version)| self.may_be_over(*version));
        ensure(gone.iter().all(|entry| may == Some(*entry)), Rule::Known, || {
            format!("the core drops {gone:?} after the end of {ended:?}")
        })?;
        let must = ended.filter(|(_, version)| self.must_be_over(*version));
        ensure(must.is_none_or(|entry| gone.contains(&entry)), Rule::Known, || {
            format!("the core keeps {must:?} after its last restore")
        })
    }

    fn may_be_over(&self, version: Version) -> bool {
        let certain_hint = self.hints.is_hinted(version).1;
        let waited_for = self.requests.is_restoring(version);
        self.plan.config.discard_after_restore && !certain_hint && !waited_for
    }

    fn must_be_over(&self, version: Version) -> bool {
        let possible_hint = self.hints.is_hinted(version).0;
        self.may_be_over(version) && !possible_hint
    }

    /// Counts failures: a transfer that failed temporarily must be tried again without a request.
    pub(crate) fn count_retries(&mut self, event: &Event) -> Checked {
        let id = |transfer| self.ledger.movement(transfer).map(|movement| movement.checkpoint);
        match *event {
            Event::TransferDone { transfer, .. } => {
                id(transfer).into_iter().for_each(|id| self.retries.succeeded(id));
            }
            Event::TransferFailed { transfer, failure: Failure::Io } => {
                let movement = self.ledger.movement(transfer);
                // A failure to fill what an arena has lost says nothing about the checkpoint.
                let to_lost = movement.is_some_and(|m| {
                    self.ledger.is_lost(m.to.tier) || self.ledger.is_beyond(m.to, m.bytes)
                });
                let Some(id) = id(transfer).filter(|_| !to_lost) else { return Ok(()) };
                let live = self.ledger.get(id).is_some_and(|b| b.stage == Stage::Live);
                self.must_retry = self.retries.failed(id, self.now)? && live;
            }
            Event::Flush { .. } | Event::Save { .. } => self.retries.asked_again(),
            _ => {}
        }
        Ok(())
    }

    /// Checks transfers and refusals after every step.
    pub(crate) fn check_step(&mut self, commands: &[Command]) -> Checked {
        let wanted = |m: &Movement| {
            self.ledger.get(m.checkpoint).is_some_and(|books| books.stage == Stage::Live)
        };
        let stray = self.ledger.movements().find(|(_, m)| !m.cancelled && !wanted(m));
        ensure(stray.is_none(), Rule::Transfer, || {
            format!("{stray:?} goes on although its checkpoint was discarded")
        })?;
        let retries = !std::mem::take(&mut self.must_retry) || self.core.next_deadline().is_some();
        ensure(retries, Rule::Transfer, || "what has failed is not tried again".to_owned())?;
        if self.requests.waiting().any(|(_, call)| !matches!(call, Call::Restore { .. })) {
            self.retries.asked_again();
        }
        let given_up = commands.iter().find(|command| {
            let Command::Refuse { refusal, .. } = command else { return false };
            matches!(refusal, Refusal::Full { .. } | Refusal::FlushFailed { .. })
        });
        // For other calls that wait, and after failures, more may be tried in the same step.
        let excused = self.failures || self.requests.waiting().next().is_some();
        let moves = self.ledger.movements().next().is_some() || self.ledger.is_deleting();
        ensure(given_up.is_none() || !moves || excused, Rule::Refusal, || {
            format!("{given_up:?} while something moves that may make room")
        })
    }

    /// Checks that the core has the same copies in the same places as the ledger.
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

    /// Checks that no call waits while nothing is in flight that could end the wait.
    pub(crate) fn check_waiting(&self) -> Checked {
        let moving = self.ledger.movements().next().is_some()
            || self.ledger.is_deleting()
            || self.requests.is_any_open()
            || self.core.next_deadline().is_some();
        let waiting = self.requests.waiting().next();
        ensure(moving || waiting.is_none(), Rule::Stuck, || {
            format!("{waiting:?} waits while nothing is in flight")
        })
    }

    /// Checks a completed flush: everything saved before it is in the slowest tier for it.
    pub(crate) fn check_flushed(&self, before: CheckpointId) -> Checked {
        let early = self.ledger.in_flight().find(|books| books.id < before);
        ensure(early.is_none(), Rule::Durable, || {
            format!("a flush is done while {early:?} is being saved")
        })?;
        let back = self.ledger.all().filter(|books| books.id < before);
        let back = back.filter(|books| books.stage == Stage::Gone).find(|books| {
            books.holdings.iter().flatten().any(|held| held.deleting || held.sources > 0)
        });
        ensure(back.is_none(), Rule::Durable, || {
            format!("a flush is done although {back:?} is still there")
        })?;
        let unfinished =
            self.ledger.live().filter(|b| b.id < before && b.is_readable()).find(|b| {
                let bottom = self.ledger.bottom(b.bytes);
                bottom.is_none_or(|tier| !b.holdings[tier].is_some_and(|h| h.ready && !h.deleting))
            });
        ensure(unfinished.is_none(), Rule::Durable, || {
            format!("a flush is done without {unfinished:?}")
        })
    }

    /// Promises durability of a reported transfer into a store that syncs each frame.
    pub(crate) fn promise_arrival(&mut self, transfer: TransferId) {
        let arrived = self.ledger.movement(transfer);
        if let Some(movement) = arrived.filter(|_| self.plan.machine.sync_each_put) {
            self.promise_frame(movement.checkpoint, movement.to.tier);
        }
    }

    /// Promises that the frame of a live checkpoint in a store survives a crash.
    pub(crate) fn promise_frame(&mut self, id: CheckpointId, tier: TierId) {
        let Some(books) = self.ledger.get(id).filter(|b| b.stage == Stage::Live) else { return };
        let version = books.version;
        let store = self.hardware.stores[usize::from(tier.0)].as_ref();
        if store.is_some_and(|store| store.is_synced(id)) {
            self.promises.promise(version, id);
        }
    }
}
