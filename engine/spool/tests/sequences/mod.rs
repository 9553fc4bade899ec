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
mod plan;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use unspool::gpu::{DeviceMemory, Gpu, Stream};
use unspool::{Accumulate, Batched, Codecs, DiskSettings, On, Settings, Spec, Spool, Wait};

pub use arrays::Bank;
pub use plan::{Dice, Done, Plan, Wrong};

use arrays::Content;
use check::Checks;

/// Longer than anything takes; a wait that reaches it is a fault.
pub const LIMIT: Duration = Duration::from_secs(60);

/// What a sequence that fails says.
pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// A stream of the application with an array that only it uses.
struct Lane {
    stream: Stream,
    array: DeviceMemory,
}

/// One sequence under way.
struct Player<'a> {
    spool: &'a Batched,
    /// Whether saves go through the adaptor, so that some wait for others.
    batches: bool,
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
    play_together(plan, bank, 1)
}

/// Plays sequences of as many threads at once on one spool.
///
/// # Errors
/// When a call fails, or bytes differ.
pub fn play_together(plan: &Plan, bank: &Bank, threads: u64) -> Outcome<Done> {
    let spool = open(plan)?;
    let one = |number| Player::new(&spool, plan, bank, number)?.play(plan.operations);
    let done = on_threads(threads, one).map_err(|error| in_plan(error, plan))?;
    close(&spool).map_err(|error| in_plan(error.into(), plan))?;
    Ok(done)
}

fn on_threads(count: u64, body: impl Fn(u64) -> Outcome<Done> + Sync) -> Outcome<Done> {
    let body = &body;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || body(number))).collect();
        threads.into_iter().try_fold(Done::default(), |sum, thread| {
            Ok(sum.and(thread.join().map_err(|_| "a thread has panicked")??))
        })
    })
}

fn open(plan: &Plan) -> Result<Batched, unspool::Error> {
    let spool = Spool::open(Settings {
        device: (plan.device > 0).then_some(plan.device),
        host: (plan.host > 0).then_some(plan.host),
        disk: plan.disk.as_ref().map(DiskSettings::new),
        on: On::Cuda(Some(plan.on)),
        check_order: plan.check_order,
        codec: Codecs::all(if plan.encoded { Spec::Lossless } else { Spec::Raw }),
        timeout: LIMIT,
        ..Settings::default()
    })?;
    Ok(Batched::new(Arc::new(spool), accumulate(plan)))
}

/// The spool behind an adaptor, once nothing waits in front of it.
fn settled(batched: &Batched) -> Result<&Spool, unspool::Error> {
    batched.hand_over(&Wait::default())?;
    Ok(batched.spool())
}

/// Hands over what waits, and closes the spool.
fn close(batched: &Batched) -> Result<(), unspool::Error> {
    settled(batched)?.close()
}

/// Some checkpoints are larger than what a batch takes, and some launches come by themselves.
fn accumulate(plan: &Plan) -> Accumulate {
    let held_at_most = Duration::from_micros(500 * (plan.seed % 7));
    Accumulate { checkpoints: plan.accumulate, bytes: plan.largest, held_at_most }
}

/// Plays the sequences of these seeds on four threads, each with spools of its own, until one
/// fails.
///
/// # Errors
/// That of the one that fails.
pub fn play_many(
    seeds: Range<u64>,
    bank: &Bank,
    plan: impl Fn(u64) -> Plan + Sync,
) -> Outcome<Done> {
    let next = AtomicU64::new(seeds.start);
    on_threads(4, |_| {
        let mut done = Done::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return Ok(done);
            }
            let played = play(&plan(seed), bank);
            done = done.and(played.inspect_err(|_| next.store(seeds.end, Ordering::Relaxed))?);
        }
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
    let refused = |error: &dyn fmt::Display, heard: &mut dyn FnMut(String)| {
        heard(error.to_string());
        mend();
        Ok(Done { refused: 1, ..Done::default() })
    };
    let spool = match open(plan) {
        Ok(spool) => spool,
        Err(error) => return refused(&error, heard),
    };
    let mut player = match Player::new(&spool, plan, bank, 0) {
        Ok(player) => player,
        Err(error) => return refused(&error, heard),
    };
    for _ in 0..plan.operations {
        player.checks.begin();
        if let Err(error) = player.one() {
            if error.is::<Wrong>() {
                return Err(in_plan(error, plan));
            }
            heard(error.to_string());
            player.refused(error.downcast_ref());
        }
    }
    // A batch that another thread has handed over is refused without a call that could say so.
    if let Err(error) = spool.hand_over(&player.wait()) {
        heard(error.to_string());
        player.refused(Some(&error));
    }
    mend();
    let done = player.play(0).map_err(|error| in_plan(error, plan))?;
    close(&spool).map_err(|error| in_plan(error.into(), plan))?;
    Ok(done)
}

/// Plays a sequence on a GPU that may break at any time: calls may fail from then on, and the spool
/// has to end all the same.
///
/// # Errors
/// When bytes differ, or the end does not come.
pub fn play_until_it_breaks(plan: &Plan, bank: &Bank) -> Outcome<Done> {
    let spool = open(plan)?;
    let mut player = Player::new(&spool, plan, bank, 0)?;
    for _ in 0..plan.operations {
        match player.one() {
            Err(error) if error.is::<Wrong>() => return Err(in_plan(error, plan)),
            Err(_) => player.done.refused += 1,
            Ok(()) => {}
        }
    }
    let (done, began) = (player.done, Instant::now());
    // What it says does not matter, only that it does.
    let _ = close(&spool);
    if began.elapsed() > LIMIT / 2 {
        return Err(in_plan("closing took too long".into(), plan));
    }
    Ok(done)
}

fn in_plan(error: Box<dyn Error + Send + Sync>, plan: &Plan) -> Box<dyn Error + Send + Sync> {
    format!("seed {}: {error} (the whole plan: {plan:?})", plan.seed).into()
}

impl<'a> Player<'a> {
    /// Number `number` of the players of a spool, who have versions of their own each.
    fn new(spool: &'a Batched, plan: &Plan, bank: &'a Bank, number: u64) -> Outcome<Player<'a>> {
        let gpu = spool.spool().gpu().ok_or("the spool has no GPU")?.clone();
        let largest = plan.largest.min(bank.len());
        Ok(Player {
            lanes: lanes(&gpu, largest)?,
            checks: Checks::new(&gpu, 16 * largest)?,
            spool,
            batches: plan.accumulate > 0,
            gpu,
            bank,
            dice: Dice::new(plan.seed + (number << 32)),
            largest,
            saved: BTreeMap::new(),
            next: (number * 1_000_000).cast_signed(),
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
            18 if self.dice.one_in(4) => Ok(self.spool.spool().forget_hints()?),
            18 if self.dice.one_in(4) => Ok(settled(self.spool)?.flush(&self.wait())?),
            _ => self.give_up(),
        }
    }

    /// A call has failed: nothing is known of its results, and what it says is not saved may have
    /// waited for others since an earlier call.
    fn refused(&mut self, error: Option<&unspool::Error>) {
        self.checks.forget();
        self.done.refused += 1;
        for (version, _) in error.into_iter().flat_map(unspool::Error::unsaved) {
            if matches!(self.is_there(*version), Ok(false)) {
                self.saved.remove(version);
            }
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

    /// The spool, once `version` does not wait in front of it.
    fn spool_for(&self, version: i64) -> Result<&Spool, unspool::Error> {
        self.spool.hand_over_for(version, &self.wait())?;
        Ok(self.spool.spool())
    }

    /// Whether `version` waits, or is saved.
    fn is_there(&self, version: i64) -> Result<bool, unspool::Error> {
        Ok(self.spool.waits().contains(&version) || self.spool.spool().contains(version)?)
    }

    fn discard(&mut self) -> Outcome {
        let Some(version) = self.any() else { return Ok(()) };
        self.spool_for(version)?.discard(version)?;
        self.saved.remove(&version);
        self.done.discards += 1;
        if self.is_there(version)? {
            return Err(Wrong(format!("version {version} is there after its discard")).into());
        }
        Ok(())
    }

    /// The order of the next restores, which is not kept.
    fn expect(&mut self) -> Outcome {
        let mut versions = self.shuffled();
        versions.truncate(1 + self.dice.below(6) as usize);
        Ok(self.spool.spool().expect(versions)?)
    }
}

/// Streams of the application: its own, and both default streams.
fn lanes(gpu: &Gpu, largest: u64) -> Outcome<Vec<Lane>> {
    let context = gpu.context();
    let streams = [
        Stream::new(context)?,
        Stream::new(context)?,
        Stream::legacy_default(context),
        // SAFETY: the number of the per-thread default stream.
        unsafe { Stream::borrow(context, 2) }?,
    ];
    let lane = |stream| -> Outcome<Lane> {
        Ok(Lane { stream, array: DeviceMemory::new(context, largest)? })
    };
    streams.into_iter().map(lane).collect()
}
