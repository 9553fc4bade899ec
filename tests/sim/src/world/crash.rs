//! A crash and restart of the machine: memory is lost, disks lose or tear unsynced frames, and the
//! remaining intact frames are adopted.

use std::collections::BTreeMap;

use unspool_core::{CheckpointId, Core, Event, Learner, Nanos, TierId, Version};

use super::{Checked, Work, World};
use crate::canary::Canary;
use crate::check::ledger::Ledger;
use crate::check::requests::Requests;
use crate::check::retries::Retries;
use crate::check::{Rule, Violation, ensure};
use crate::content::{difference, frame, open_frame, payload};
use crate::random::{Random, Topic};
use crate::world::agenda::{Action, Agenda};
use crate::world::judge::HintMirror;
use crate::world::machine::Hardware;

/// A frame that was found intact.
#[derive(Clone, Copy, Debug)]
struct Found {
    id: CheckpointId,
    version: Version,
    bytes: u64,
    tier: TierId,
}

impl World {
    pub(crate) fn crash(&mut self) -> Checked {
        self.history.restart(self.now);
        self.crash_stores();
        self.restart();
        let found = self.scan_stores()?;
        self.check_promises(&found)?;
        let found = newest(found);
        self.check_whole(&found)?;
        for frame in found {
            let Found { id: checkpoint, version, bytes, tier } = frame;
            let adopt = Event::Recover { checkpoint, version, bytes, tier };
            self.feed(adopt)?;
        }
        self.forget_strays();
        self.begin_life();
        Ok(())
    }

    fn crash_stores(&mut self) {
        let mut random = Random::of(self.plan.seed, Topic::Crash, self.life as u64);
        for tier in (0..self.plan.config.tiers.len()).map(|tier| TierId(tier as u8)) {
            let writing = self.frames_in_flight(tier);
            if let Some(store) = self.hardware.store(tier) {
                store.crash(writing, &mut random);
            }
        }
    }

    /// The frames that are being written into a store.
    fn frames_in_flight(&self, tier: TierId) -> Vec<(CheckpointId, Vec<u8>)> {
        let target = |work: &Work| match work {
            Work::Transfer(transfer) => {
                let job = self.jobs.get(transfer).filter(|job| job.began.is_some())?;
                (job.movement.to.tier == tier).then_some(job.movement.checkpoint)
            }
            Work::Copy(_, t) => (t.save && t.place.tier == tier).then_some(t.id),
            Work::Delete { .. } => None,
        };
        let ids = self.ops.values().filter_map(target);
        ids.map(|id| (id, self.whole_frame(id))).collect()
    }

    fn whole_frame(&self, id: CheckpointId) -> Vec<u8> {
        let (version, bytes) = self.ever[&id];
        frame(version, &payload(self.plan.seed, id, bytes))
    }

    /// Restarts everything but the stores.
    fn restart(&mut self) {
        let config = self.plan.config.clone();
        let stores = std::mem::take(&mut self.hardware.stores);
        self.hardware = Hardware::with_stores(&self.plan, stores);
        self.core = Core::new(config.clone()).expect("the settings were valid before");
        self.ledger = Ledger::new(&config);
        self.requests = Requests::default();
        self.retries = Retries::new(&config);
        self.order.restart();
        self.learner = self.plan.learns.then(Learner::default);
        self.hints = HintMirror::default();
        self.agenda = Agenda::default();
        self.threads.clear();
        self.jobs.clear();
        self.ops.clear();
        self.pending.clear();
        self.replies.clear();
        (self.failures, self.prefetch_held, self.next_tick) = (false, false, Nanos::NEVER);
        self.earlier_events += std::mem::take(&mut self.events);
        self.life += 1;
        if !self.calm && self.plan.faults.until != Nanos::NEVER {
            self.agenda.plan(self.plan.faults.until.max(self.now), Action::FaultsStop);
        }
    }

    /// Opens every frame; frames that do not open are removed permanently.
    fn scan_stores(&mut self) -> Result<Vec<Found>, Violation> {
        let mut found = Vec::new();
        for tier in (0..self.plan.config.tiers.len()).map(|tier| TierId(tier as u8)) {
            let Some(store) = self.hardware.stores[usize::from(tier.0)].take() else { continue };
            let mut kept = store.clone();
            for id in store.list() {
                match self.open(store.get(id).unwrap_or_default(), id)? {
                    Some((version, bytes)) => found.push(Found { id, version, bytes, tier }),
                    None => {
                        kept.remove(id);
                    }
                }
            }
            kept.sync();
            self.hardware.stores[usize::from(tier.0)] = Some(kept);
        }
        Ok(found)
    }

    /// Opens a frame; its content must be what was written.
    fn open(
        &mut self,
        bytes: &[u8],
        id: CheckpointId,
    ) -> Result<Option<(Version, u64)>, Violation> {
        let (version, length) = self.ever[&id];
        if self.plan.canary == Some(Canary::TrustedFrames) {
            let whole = open_frame(bytes).is_ok();
            self.canary_struck |= !whole;
            return Ok(Some((version, length)));
        }
        let Ok((named, content)) = open_frame(bytes) else { return Ok(None) };
        let wrong = difference(&payload(self.plan.seed, id, length), content);
        ensure(named == version && wrong.is_none(), Rule::Durable, || {
            format!("a torn frame of {id:?} is accepted: {named:?}, {wrong:?}")
        })?;
        Ok(Some((version, length)))
    }

    /// What is adopted holds all that was written, whoever has opened it.
    fn check_whole(&self, found: &[Found]) -> Checked {
        let is_torn = |frame: &&Found| {
            let store = self.hardware.stores[usize::from(frame.tier.0)].as_ref();
            let bytes = store.and_then(|store| store.get(frame.id));
            bytes.is_none_or(|bytes| open_frame(bytes).is_err())
        };
        let torn = found.iter().find(is_torn);
        let checked = ensure(torn.is_none(), Rule::Durable, || {
            format!("{torn:?} is adopted after the crash, and its frame is torn")
        });
        self.enforce(checked)
    }

    fn check_promises(&self, found: &[Found]) -> Checked {
        let missing = self.promises.all().find(|(_, id)| !found.iter().any(|f| f.id == *id));
        let checked = ensure(missing.is_none(), Rule::Durable, || {
            format!("{missing:?} was called durable and has not survived the crash")
        });
        self.enforce(checked)
    }

    /// Removes frames that were not adopted: older ones of a version that was saved again.
    fn forget_strays(&mut self) {
        for (tier, store) in self.hardware.stores.iter_mut().enumerate() {
            let Some(store) = store else { continue };
            let adopted = |id: &CheckpointId| {
                self.ledger.get(*id).is_some_and(|books| books.holdings[tier].is_some())
            };
            let strays: Vec<CheckpointId> = store.list().filter(|id| !adopted(id)).collect();
            for id in strays {
                store.remove(id);
            }
            store.sync();
        }
    }
}

/// The frames of the newest checkpoint of every version, in ascending order of id, and those of
/// one checkpoint with the slowest store first.
fn newest(found: Vec<Found>) -> Vec<Found> {
    let mut newest: BTreeMap<Version, CheckpointId> = BTreeMap::new();
    for frame in &found {
        let id = newest.entry(frame.version).or_insert(frame.id);
        *id = frame.id.max(*id);
    }
    let mut frames: Vec<Found> = found.into_iter().filter(|f| newest[&f.version] == f.id).collect();
    frames.sort_by_key(|frame| (frame.id, std::cmp::Reverse(frame.tier)));
    frames
}
