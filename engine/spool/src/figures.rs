//! The figures of a spool, gathered from everybody who counts.

use unspool_core::{CoreStats, TransferKind};
use unspool_tiers::{AnyTier, Arena, Description};
use unspool_transfer::TransferError;
use unspool_transfer::sync::lock;

use crate::error::Error;
use crate::runtime::counters::{Call, LinkCounters};
use crate::runtime::state::State;
use crate::settings::Settings;
use crate::spool::Spool;
use crate::stats::{ApplicationStats, DirectionStats, LinkStats, Stats, TierStats};

impl Spool {
    /// What the spool has done so far. Also answered when it is closed.
    ///
    /// # Errors
    /// `Forked`.
    pub fn stats(&self) -> Result<Stats, Error> {
        let shared = self.shared();
        shared.check_process()?;
        let tiers: Vec<_> =
            shared.tiers.iter().map(|tier| described(tier, &shared.settings)).collect();
        let dropped_spans = shared.timeline.as_ref().map_or(0, |timeline| lock(timeline).dropped());
        let state = shared.state();
        let core = state.driver.core().stats();
        let tier =
            |(counted, (described, ready)): (&unspool_core::TierStats, (Description, u64))| {
                TierStats {
                    kind: counted.kind,
                    location: described.location,
                    capacity: counted.capacity,
                    ready,
                    used: counted.used,
                    peak: counted.peak,
                    copies: counted.copies,
                    evictions: counted.evictions,
                    restores: counted.hits,
                    notes: described.notes,
                }
            };
        Ok(Stats {
            application: application(&state, &core, dropped_spans),
            tiers: core.tiers.iter().zip(tiers).map(tier).collect(),
            links: (0..core.links.len()).map(|index| link(&state, &core, index)).collect(),
            codecs: state.counters.codecs.stats(),
            launches: state.counters.launches,
            auto: state.counters.experience.stats(),
        })
    }
}

/// What a tier says, how its size was picked first, and how much of it is ready.
fn described(tier: &AnyTier, settings: &Settings) -> (Description, u64) {
    let mut description = tier.tier().describe();
    let picked = settings.picked.iter().filter(|(kind, _)| *kind == description.kind);
    let sentences: Vec<String> = picked.map(|(_, sentence)| sentence.clone()).collect();
    description.notes.splice(0..0, sentences);
    let ready = tier.arena().map_or(description.capacity, Arena::ready);
    (description, ready)
}

fn application(state: &State, core: &CoreStats, dropped_spans: u64) -> ApplicationStats {
    let record = state.driver.record_failure().map(str::to_owned);
    let (unflushed, unflushed_bytes) = state.driver.core().unflushed();
    ApplicationStats {
        saves: core.saves,
        saved_bytes: core.saved_bytes,
        restores: core.restores,
        restored_bytes: core.restored_bytes,
        save_stall: state.counters.stall(Call::Save),
        restore_stall: state.counters.stall(Call::Restore),
        kernels: state.counters.kernels(),
        longest_stall: state.counters.longest(),
        prefetch_lead: core.lead_summary(),
        hinted_restores: core.hinted_restores,
        hints: core.hints,
        discards: core.discards,
        checkpoints: state.driver.core().versions().len() as u64,
        unflushed,
        unflushed_bytes,
        dropped_spans,
        notes: state.notes.iter().cloned().chain(record).collect(),
    }
}

fn link(state: &State, core: &CoreStats, index: usize) -> LinkStats {
    let (counted, measured) = (&core.links[index], state.counters.link(index));
    LinkStats {
        fast: core.tiers[index].kind,
        slow: core.tiers[index + 1].kind,
        flush: direction(&counted.flush, measured, TransferKind::Flush),
        prefetch: direction(&counted.prefetch, measured, TransferKind::Prefetch),
        flushes_skipped: counted.flush.skipped,
        last_failure: measured.failure().map(TransferError::to_string),
    }
}

fn direction(
    counted: &unspool_core::DirectionStats,
    measured: &LinkCounters,
    kind: TransferKind,
) -> DirectionStats {
    DirectionStats {
        transfers: counted.transfers,
        bytes: counted.bytes,
        busy: measured.busy(kind),
        cancelled: counted.cancelled,
        failed: counted.failed,
        retried: counted.retried,
        in_flight: counted.in_flight,
        rate: counted.rate,
    }
}
