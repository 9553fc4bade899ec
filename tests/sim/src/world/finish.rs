//! The end of a run: the faults stop, every checkpoint is restored once more, and all activity
//! ends.

use unspool_core::CheckpointId;

use super::{Checked, RunFigures, World};
use crate::canary::Canary;
use crate::check::{Rule, ensure};
use crate::plan::script::{Care, Script, Step};
use crate::random::{Random, Topic};

impl World {
    /// Starts the final restores when the scripts have ended, and then ends the run.
    pub(crate) fn next_stage(&mut self) -> Checked {
        if self.rest_limit.is_some() {
            return Ok(());
        }
        if self.threads.len() > self.life().threads.len() {
            self.rest_limit = Some(self.limit_from_now());
            return Ok(());
        }
        self.counters.application_over = self.now;
        self.become_calm();
        let script = self.last_script();
        self.start_thread(script);
        Ok(())
    }

    fn last_script(&self) -> Script {
        let mut random = Random::of(self.plan.seed, Topic::Script, u64::MAX);
        let mut versions: Vec<i64> = self.ledger.there().map(|books| books.version.0).collect();
        random.shuffle(&mut versions);
        let mut steps = vec![];
        if self.prefetch_held {
            steps.push(Step::StartPrefetch);
        }
        if self.plan.content {
            let flush_first = random.chance(0.5);
            steps.extend(flush_first.then_some(Step::Flush(Care::default())));
            steps.extend(versions.into_iter().map(Step::restore));
            steps.push(Step::Flush(Care::default()));
        }
        Script { steps }
    }

    /// Checks that all activity has ended when nothing is planned any more.
    pub(crate) fn finish(&self) -> Checked {
        let rest = |holds: bool, what: &str| ensure(holds, Rule::Rest, || what.to_owned());
        rest(self.rest_limit.is_some(), "the application has not come to its end")?;
        rest(self.hardware.streams.is_idle(), "an operation never begins")?;
        rest(self.core.transfers_in_flight() == 0, "the core waits for a transfer")?;
        rest(self.core.waiting() == 0, "the core lets a call wait")?;
        rest(self.pending.is_empty(), "a save that was asynchronous over was never reported")?;
        rest(self.ledger.movements().next().is_none(), "a transfer was never reported")?;
        rest(!self.ledger.is_deleting(), "a deletion was never reported")?;
        rest(!self.requests.is_any_open(), "a ticket stays open")
    }

    /// Syncs the stores after a flush, and promises that everything before it is durable.
    pub(crate) fn sync_stores(&mut self, before: CheckpointId) {
        let skipped = self.plan.canary == Some(Canary::SkippedSync);
        if !skipped {
            self.hardware.stores.iter_mut().flatten().for_each(|store| store.sync());
        }
        let stored = self.ledger.live().filter(|books| books.id < before).filter(|books| {
            let frames = self.hardware.stores.iter().flatten();
            frames
                .into_iter()
                .any(|s| if skipped { s.get(books.id).is_some() } else { s.is_synced(books.id) })
        });
        let durable: Vec<_> = stored.map(|books| (books.version, books.id)).collect();
        for (version, id) in durable {
            self.promises.promise(version, id);
        }
    }

    /// The result of the run.
    #[must_use]
    pub fn figures(&self) -> RunFigures {
        RunFigures {
            events: self.earlier_events + self.events,
            finished: self.now,
            application_over: self.counters.application_over,
            first_restore: self.counters.first_restore.unwrap_or_default(),
            copying: self.counters.copying,
            refused: self.counters.refused,
            saves: self.counters.saves,
            restores: self.counters.restores,
            hits: self.counters.hits,
            leads: self.counters.leads.clone(),
            reaches: self.counters.reaches.clone(),
            core: self.core.stats(),
        }
    }
}
