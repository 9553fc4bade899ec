//! Injected faults and their frequencies.

use unspool_core::Nanos;

use crate::random::Random;

/// Shares of operations with a fault, between 0 (never) and 1 (always).
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Faults {
    /// Transfers that fail temporarily.
    pub io: f64,
    /// Transfers that break their link until the faults stop.
    pub permanent: f64,
    /// Transfers into a store that find the medium full.
    pub no_space: f64,
    /// Actual capacity of the medium of every store in bytes.
    pub medium: Option<u64>,
    /// Reads from a store that find a flipped bit; the frame stays damaged.
    pub corrupt: f64,
    /// Reads from a store that find no frame.
    pub missing: f64,
    /// Transfers that take ten times as long.
    pub slow: f64,
    /// Cancelled transfers in a queue that are dropped; the others run.
    pub cancel_queued: f64,
    /// Cancelled running transfers that are aborted; the others run to their end.
    pub cancel_running: f64,
    /// Deletions that fail and leave the frame in place.
    pub delete: f64,
    /// Writes of the application to a store that fail.
    pub direct_write: f64,
    /// Probability that an event is followed by a tick that the core did not request.
    pub tick: f64,
    /// When the fastest tier loses memory in each life, if it is an arena, and the share of its
    /// bytes that it keeps, or more where they are in use.
    pub shrinks: Option<(Nanos, f64)>,
    /// When the device of the fastest tier is lost in each life, if that tier is an arena.
    pub loses: Option<Nanos>,
    /// The faults stop at this time; with `Nanos::NEVER`, when the scripts end.
    pub until: Nanos,
}

impl Faults {
    /// No faults, and a cancelled transfer is dropped if possible.
    #[must_use]
    pub fn none() -> Faults {
        Faults { cancel_queued: 1.0, cancel_running: 0.0, until: Nanos::NEVER, ..Faults::default() }
    }

    /// Whether any transfer, deletion or write can fail.
    #[must_use]
    pub fn can_fail(&self) -> bool {
        let shares = [self.io, self.permanent, self.no_space, self.corrupt, self.missing];
        let others = [self.delete, self.direct_write];
        shares.iter().chain(&others).any(|share| *share > 0.0) || self.medium.is_some()
    }
}

/// Random faults: none for many seeds, because a machine without faults must be tested too.
pub fn faults(random: &mut Random) -> Faults {
    let cancel_queued = random.pick(&[0.0, 0.5, 1.0]);
    let cancel_running = random.pick(&[0.0, 0.5, 1.0]);
    let tick = random.pick(&[0.0, 0.0, 0.2]);
    let calm = Faults { cancel_queued, cancel_running, tick, ..Faults::none() };
    if random.chance(0.35) {
        return calm;
    }
    let mut share = |often: f64| if random.chance(0.4) { often * random.unit() } else { 0.0 };
    Faults {
        io: share(0.5),
        permanent: share(0.05),
        no_space: share(0.3),
        corrupt: share(0.2),
        missing: share(0.2),
        slow: share(0.3),
        delete: share(0.3),
        direct_write: share(0.3),
        medium: random.chance(0.15).then(|| random.range(4000, 100_000)),
        until: if random.chance(0.3) { Nanos(random.below(3_000_000)) } else { Nanos::NEVER },
        loses: random.chance(0.15).then(|| Nanos(random.below(500_000))),
        shrinks: random.chance(0.3).then(|| (Nanos(random.below(500_000)), random.unit())),
        ..calm
    }
}
