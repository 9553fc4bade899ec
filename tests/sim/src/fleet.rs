//! Runs of many seeds on all processors.

use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::report::{Failure, run_seed};

/// Maximum number of reported failures; a bug usually breaks many seeds.
const MOST_FAILURES: usize = 10;

/// The seeds to run.
#[derive(Clone, Debug)]
pub enum Seeds {
    /// The seeds of a range.
    Range(Range<u64>),
    /// Seeds from a fresh one on, until this time.
    Until(u64, Instant),
}

impl Seeds {
    /// Fresh seeds for `minutes` minutes.
    #[must_use]
    pub fn minutes(minutes: f64) -> Seeds {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let span = Duration::try_from_secs_f64(minutes * 60.0).unwrap_or_default();
        Seeds::Until(since.as_secs() << 20, Instant::now() + span)
    }

    fn first(&self) -> u64 {
        match self {
            Seeds::Range(range) => range.start,
            Seeds::Until(first, _) => *first,
        }
    }

    fn contains(&self, seed: u64) -> bool {
        match self {
            Seeds::Range(range) => range.contains(&seed),
            Seeds::Until(_, end) => Instant::now() < *end,
        }
    }
}

/// The result of many seeds.
#[derive(Debug, Default)]
pub struct FleetReport {
    /// The first seed.
    pub first: u64,
    /// Number of seeds.
    pub seeds: u64,
    /// Number of events that the cores received.
    pub events: u64,
    /// Number of seeds that broke a rule.
    pub broken: u64,
    /// Some of the failures.
    pub failures: Vec<Failure>,
}

impl fmt::Display for FleetReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FleetReport { first, seeds, events, broken, .. } = self;
        write!(f, "{seeds} seeds from {first} on, {events} events: {broken} break a rule")
    }
}

/// Runs seeds until all are done or enough have failed.
#[must_use]
pub fn run(seeds: Seeds) -> FleetReport {
    let next = AtomicU64::new(seeds.first());
    let report = Mutex::new(FleetReport { first: seeds.first(), ..FleetReport::default() });
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| work(&seeds, &next, &report));
        }
    });
    let mut report = report.into_inner().expect("no worker panics");
    report.failures.sort_by_key(|failure| failure.plan.seed);
    report
}

fn work(seeds: &Seeds, next: &AtomicU64, report: &Mutex<FleetReport>) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if !seeds.contains(seed) {
            return;
        }
        let result = run_seed(seed);
        let mut report = report.lock().expect("no worker panics");
        report.seeds += 1;
        match result {
            Ok(figures) => report.events += figures.events,
            Err(failure) => {
                report.broken += 1;
                if report.failures.len() < MOST_FAILURES {
                    report.failures.push(*failure);
                }
            }
        }
    }
}
