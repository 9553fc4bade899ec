//! The cost of a run for the application.

use unspool_core::{CoreStats, MAX_TIERS, Nanos, TierId};

/// Counters of the calls of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallFigures {
    /// Calls that were granted or served.
    pub calls: u64,
    /// Total size of their payloads.
    pub bytes: u64,
    /// Total time that they waited.
    pub stall: Nanos,
    /// The longest wait.
    pub longest: Nanos,
    /// Number of calls that waited.
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

/// How many upcoming restores need no wait, at the time of one restore. Versions count once each,
/// and those that are not saved yet count as ready, because a save will bring them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reach {
    /// Number of consecutive next versions, other than this one, that are ready.
    pub lead: u64,
    /// Number of versions, other than this one, that will be restored at all.
    pub ahead: u64,
}

/// Counters of a running run.
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

    /// Records the call of a restore, with the number of next restores that are ready.
    pub fn lead(&mut self, now: Nanos, lead: u64) {
        self.first_restore.get_or_insert(now);
        self.leads.push(lead);
    }
}

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct RunFigures {
    /// Number of events that the core received.
    pub events: u64,
    /// Time at which all activity had ended.
    pub finished: Nanos,
    /// Time at which the scripts ended.
    pub application_over: Nanos,
    /// Time of the first call of a restore.
    pub first_restore: Nanos,
    /// Total time of the application's copies.
    pub copying: Nanos,
    /// Number of refused calls.
    pub refused: u64,
    /// Counters of the saves.
    pub saves: CallFigures,
    /// Counters of the restores.
    pub restores: CallFigures,
    /// Number of restores that were served from each tier.
    pub hits: [u64; MAX_TIERS],
    /// For each restore in order: how many of the next ones were ready in the fastest tier.
    pub leads: Vec<u64>,
    /// For each restore in order, the versions that are ready.
    pub reaches: Vec<Reach>,
    /// The counters of the core.
    pub core: CoreStats,
}
