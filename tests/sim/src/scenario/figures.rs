//! The cost of a scenario.

use std::fmt;

use unspool_core::{MAX_TIERS, Nanos};

use super::Scenario;
use crate::world::{CallFigures, RunFigures};

/// Traffic of one link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Bytes towards the slower tier.
    pub flushed: u64,
    /// Bytes towards the faster tier.
    pub prefetched: u64,
    /// Transfers that were cancelled.
    pub cancelled: u64,
}

/// The cost of a scenario for the application, in virtual time.
#[derive(Clone, PartialEq, Debug)]
pub struct Figures {
    /// Time from the first save to the end of the last restore.
    pub total: Nanos,
    /// Time from the first restore to the end of the last one.
    pub backward: Nanos,
    /// Counters of the saves.
    pub saves: CallFigures,
    /// Counters of the restores.
    pub restores: CallFigures,
    /// Time of copies into and out of the tiers, which does not count as stall.
    pub copying: Nanos,
    /// Number of restores that were served from each tier.
    pub hits: [u64; MAX_TIERS],
    /// For each restore in order: how many of the next ones were ready in the fastest tier (the
    /// prefetch distance of Score, section 5.3.5).
    pub leads: Vec<u64>,
    /// Number of copies evicted from each tier.
    pub evictions: Vec<u64>,
    /// Traffic of each link, fastest first.
    pub traffic: Vec<Traffic>,
    /// Number of events that the core received.
    pub events: u64,
}

impl Figures {
    pub(super) fn of(scenario: &Scenario, run: &RunFigures) -> Figures {
        let traffic = run.core.links.iter().map(|link| Traffic {
            flushed: link.flush.bytes,
            prefetched: link.prefetch.bytes,
            cancelled: link.flush.cancelled + link.prefetch.cancelled,
        });
        Figures {
            total: run.application_over.since(scenario.restore_interval),
            backward: run.application_over.since(run.first_restore),
            saves: run.saves,
            restores: run.restores,
            copying: run.copying,
            hits: run.hits,
            leads: run.leads.clone(),
            evictions: run.core.tiers.iter().map(|tier| tier.evictions).collect(),
            traffic: traffic.collect(),
            events: run.events,
        }
    }

    /// Time that the application spent in calls: waiting and copying.
    #[must_use]
    pub fn blocked(&self) -> Nanos {
        self.saves.stall.plus(self.restores.stall).plus(self.copying)
    }

    /// The stall in saves and restores as a share of the whole run.
    #[must_use]
    pub fn stall_share(&self) -> f64 {
        (self.saves.stall.0 + self.restores.stall.0) as f64 / self.total.0.max(1) as f64
    }

    /// The smallest, the median and the mean lead.
    #[must_use]
    pub fn lead(&self) -> (u64, u64, f64) {
        let mut sorted = self.leads.clone();
        sorted.sort_unstable();
        let count = sorted.len().max(1);
        let mean = sorted.iter().sum::<u64>() as f64 / count as f64;
        let at = |index: usize| sorted.get(index).copied().unwrap_or(0);
        (at(0), at(sorted.len() / 2), mean)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |span: Nanos| span.0 as f64 / 1e6;
        let (_, median, mean) = self.lead();
        write!(
            f,
            "stall {:.1} ms in saves, {:.1} ms in restores ({:.1} % of {:.0} ms); hits {:?}; \
             {:.1} ms of copying; lead {median} (median), {mean:.1} (mean)",
            ms(self.saves.stall),
            ms(self.restores.stall),
            self.stall_share() * 100.0,
            ms(self.total),
            &self.hits[..self.evictions.len()],
            ms(self.copying),
        )
    }
}
