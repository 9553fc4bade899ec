//! What a run cost the application.

use unspool_core::{CoreStats, MAX_TIERS, Nanos, TierId};

/// The calls of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallFigures {
    /// Calls that were granted or served.
    pub calls: u64,
    /// Their payload.
    pub bytes: u64,
    /// The time that they waited in all.
    pub stall: Nanos,
    /// The longest wait.
    pub longest: Nanos,
    /// Calls that waited at all.
    pub stalled: u64,
}

impl CallFigures {
    fn count(&mut self, bytes: u64, stall: Nanos) {
        self.calls += 1;
        self.bytes += bytes;
        self.stall = self.stall.plus(stall);
        self.longest = self.longest.max(stall);
        self.stalled += u64::from(stall > Nanos(0));
    }
}

/// How far the provision for restores goes, seen from one of them. Versions count once each, and
/// those that are not saved yet count as provided for: a save will bring them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reach {
    /// Versions other than this one that will be restored next and need no wait, without a break.
    pub lead: u64,
    /// Versions other than this one that will be restored at all.
    pub ahead: u64,
}

/// Counters while a run goes on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub saves: CallFigures,
    pub restores: CallFigures,
    pub hits: [u64; MAX_TIERS],
    pub leads: Vec<u64>,
    pub reaches: Vec<Reach>,
    pub refused: u64,
    pub copying: Nanos,
    pub first_restore: Option<Nanos>,
    pub application_over: Nanos,
}

impl Counters {
    pub fn save(&mut self, bytes: u64, stall: Nanos) {
        self.saves.count(bytes, stall);
    }

    pub fn restore(&mut self, bytes: u64, stall: Nanos, tier: TierId) {
        self.restores.count(bytes, stall);
        self.hits[usize::from(tier.0)] += 1;
    }

    /// A restore is called, with so many of the next ones ready.
    pub fn lead(&mut self, now: Nanos, lead: u64) {
        self.first_restore.get_or_insert(now);
        self.leads.push(lead);
    }
}

/// What a run came to.
#[derive(Clone, PartialEq, Debug)]
pub struct RunFigures {
    /// Events that the core has taken.
    pub events: u64,
    /// When everything was at rest.
    pub finished: Nanos,
    /// When the scripts were over.
    pub application_over: Nanos,
    /// When the first restore was called.
    pub first_restore: Nanos,
    /// The time of all copies of the application.
    pub copying: Nanos,
    /// Calls that were refused.
    pub refused: u64,
    /// The saves.
    pub saves: CallFigures,
    /// The restores.
    pub restores: CallFigures,
    /// Restores that were served from each tier.
    pub hits: [u64; MAX_TIERS],
    /// For each restore in order: how many of the next ones were ready in the fastest tier.
    pub leads: Vec<u64>,
    /// For each restore in order, how far was provided.
    pub reaches: Vec<Reach>,
    /// The counters of the core.
    pub core: CoreStats,
}
