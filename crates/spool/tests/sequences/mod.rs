//! Random sequences of calls on a spool with a GPU, compared byte for byte with what was saved: on
//! the fake driver as a test, and on a real GPU as the example `gpu_sequences`.
//!
//! Everything is enqueued on several streams and overwritten right after, so that a wait that is
//! missing somewhere shows as bytes of something else. Nothing is looked at before the end, or
//! before there is no room for more results.

#![allow(dead_code)]

mod arrays;
mod check;
mod moves;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use unspool::gpu::{DeviceMemory, Gpu, Stream};
use unspool::{DiskSettings, On, Settings, Spool, Wait};

pub use arrays::Bank;
use arrays::Content;
use check::Checks;

/// Longer than anything takes; a wait that reaches it is a fault.
pub const LIMIT: Duration = Duration::from_secs(60);

/// What a sequence that fails says.
pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Bytes that are not what they should be, which nothing excuses.
#[derive(Debug)]
pub struct Wrong(String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Wrong {}

/// What a sequence is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub operations: u64,
    /// Bytes of the tiers.
    pub device: u64,
    pub host: u64,
    pub disk: Option<PathBuf>,
    /// Bytes of the largest region.
    pub largest: u64,
    pub check_order: bool,
}

impl Plan {
    /// Arenas that hold a few regions of `largest` bytes, and a disk in `directory`; every fifth
    /// seed has no host tier, and every other one the check of order.
    #[must_use]
    pub fn small(seed: u64, largest: u64, directory: &Path) -> Plan {
        Plan {
            seed,
            operations: 30,
            device: 3 * largest,
            host: if seed.is_multiple_of(5) { 0 } else { 9 * largest },
            disk: Some(directory.to_owned()),
            largest,
            check_order: seed.is_multiple_of(2),
        }
    }
}

/// How often what was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Done {
    pub saves: u64,
    pub restores: u64,
    pub given_up: u64,
    pub discards: u64,
    /// Calls that were refused, where that was asked for.
    pub refused: u64,
    pub compared_bytes: u64,
}

impl Done {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Done) -> Done {
        Done {
            saves: self.saves + other.saves,
            restores: self.restores + other.restores,
            given_up: self.given_up + other.given_up,
            discards: self.discards + other.discards,
            refused: self.refused + other.refused,
            compared_bytes: self.compared_bytes + other.compared_bytes,
        }
    }
}

/// Numbers from a seed (SplitMix64).
pub struct Dice(u64);

impl Dice {
    #[must_use]
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// A stream of the application with an array that only it uses.
struct Lane {
    stream: Stream,
    array: DeviceMemory,
}

/// One sequence under way.
struct Player<'a> {
    spool: Spool,
    gpu: Gpu,
    bank: &'a Bank,
    dice: Dice,
    largest: u64,
    lanes: Vec<Lane>,
    checks: Checks,
    /// What is saved, with the contents of its regions.
    saved: BTreeMap<i64, Vec<Content>>,
    next: i64,
    done: Done,
}

/// Plays one sequence.
///
/// # Errors
/// When a call fails, or bytes differ.
pub fn play(plan: &Plan, bank: &Bank) -> Outcome<Done> {
    let player = Player::open(plan, bank)?;
    player.play(plan.operations).map_err(|error| in_plan(error, plan))
}

/// Plays the sequences of these seeds on four threads, each with spools of its own, until one fails.
///
/// # Errors
/// That of the one that fails.
pub fn play_many(
    seeds: Range<u64>,
    bank: &Bank,
    plan: impl Fn(u64) -> Plan + Sync,
) -> Outcome<Done> {
    let next = AtomicU64::new(seeds.start);
    let worker = || -> Outcome<Done> {
        let mut done = Done::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return Ok(done);
            }
            let played = play(&plan(seed), bank);
            done = done.and(played.inspect_err(|_| next.store(seeds.end, Ordering::Relaxed))?);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().try_fold(Done::default(), |sum, thread| {
            Ok(sum.and(thread.join().map_err(|_| "a thread has panicked")??))
        })
    })
}

/// Plays one sequence in which calls may fail until `mend` has been called, before all that was
/// saved is restored. `heard` gets their errors.
///
/// # Errors
/// When a call fails after that, or bytes differ.
pub fn play_through_faults(
    plan: &Plan,
    bank: &Bank,
    mend: &dyn Fn(),
    heard: &mut dyn FnMut(String),
) -> Outcome<Done> {
    let mut player = match Player::open(plan, bank) {
        Ok(player) => player,
        Err(refused) => {
            heard(refused.to_string());
            return Ok(Done { refused: 1, ..Done::default() });
        }
    };
    for _ in 0..plan.operations {
        player.checks.begin();
        if let Err(error) = player.one() {
            if error.is::<Wrong>() {
                return Err(in_plan(error, plan));
            }
            heard(error.to_string());
            player.checks.forget();
            player.done.refused += 1;
        }
    }
    mend();
    player.play(0).map_err(|error| in_plan(error, plan))
}

fn in_plan(error: Box<dyn Error + Send + Sync>, plan: &Plan) -> Box<dyn Error + Send + Sync> {
    format!("seed {}: {error} (the whole plan: {plan:?})", plan.seed).into()
}

impl<'a> Player<'a> {
    fn open(plan: &Plan, bank: &'a Bank) -> Outcome<Player<'a>> {
        let spool = Spool::open(Settings {
            device: (plan.device > 0).then_some(plan.device),
            host: (plan.host > 0).then_some(plan.host),
            disk: plan.disk.as_ref().map(DiskSettings::new),
            on: On::Cuda(None),
            check_order: plan.check_order,
            timeout: LIMIT,
            ..Settings::default()
        })?;
        let gpu = spool.gpu().ok_or("the spool has no GPU")?.clone();
        let largest = plan.largest.min(bank.len());
        Ok(Player {
            lanes: lanes(&gpu, largest)?,
            checks: Checks::new(&gpu, 16 * largest)?,
            spool,
            gpu,
            bank,
            dice: Dice::new(plan.seed),
            largest,
            saved: BTreeMap::new(),
            next: 0,
            done: Done::default(),
        })
    }

    fn play(mut self, operations: u64) -> Outcome<Done> {
        for _ in 0..operations {
            self.one()?;
        }
        for version in self.shuffled() {
            self.restore(version)?;
        }
        self.done.compared_bytes += self.checks.settle(&self.lanes)?;
        self.spool.close()?;
        Ok(self.done)
    }

    /// One operation.
    fn one(&mut self) -> Outcome {
        match self.dice.below(20) {
            0..8 => self.save(),
            8..15 => match self.any() {
                Some(version) => self.restore(version),
                None => self.save(),
            },
            15..17 => self.discard(),
            17 => self.expect(),
            18 if self.dice.one_in(4) => Ok(self.spool.forget_hints()?),
            18 if self.dice.one_in(4) => Ok(self.spool.flush(&Wait::at_most(LIMIT))?),
            _ => self.give_up(),
        }
    }

    /// A version that is saved.
    fn any(&mut self) -> Option<i64> {
        let count = self.saved.len() as u64;
        let index = (count > 0).then(|| self.dice.below(count))?;
        self.saved.keys().nth(index as usize).copied()
    }

    fn shuffled(&mut self) -> Vec<i64> {
        let mut versions: Vec<i64> = self.saved.keys().copied().collect();
        for index in (1..versions.len()).rev() {
            versions.swap(index, self.dice.below(index as u64 + 1) as usize);
        }
        versions
    }

    fn lane(&mut self) -> usize {
        self.dice.below(self.lanes.len() as u64) as usize
    }

    fn discard(&mut self) -> Outcome {
        let Some(version) = self.any() else { return Ok(()) };
        self.spool.discard(version)?;
        self.saved.remove(&version);
        self.done.discards += 1;
        if self.spool.contains(version)? {
            return Err(Wrong(format!("version {version} is there after its discard")).into());
        }
        Ok(())
    }

    /// The order of the next restores, which is not kept.
    fn expect(&mut self) -> Outcome {
        let mut versions = self.shuffled();
        versions.truncate(1 + self.dice.below(6) as usize);
        Ok(self.spool.expect(versions)?)
    }
}

/// Streams of the application: its own, and both default streams.
fn lanes(gpu: &Gpu, largest: u64) -> Outcome<Vec<Lane>> {
    let context = gpu.context();
    let streams = [
        Stream::new(context)?,
        Stream::new(context)?,
        Stream::legacy_default(context),
        Stream::per_thread_default(context),
    ];
    let lane = |stream| -> Outcome<Lane> {
        Ok(Lane { stream, array: DeviceMemory::new(context, largest)? })
    };
    streams.into_iter().map(lane).collect()
}
