//! The Checkpointer: one rank's hold on the folder of a run.
//!
//! It owns no arrays. The caller saves them into the [`Spool`] between
//! [`begin`](Checkpointer::begin) and [`commit`](Checkpointer::commit), with the step as version,
//! and restores them from there.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use unspool::{Error, ErrorKind, Spool, Wait};

use crate::agreement::{self, Part};
use crate::committer::{Committer, Job, discard};
use crate::exchange::{Call, Exchanges};
use crate::folder::Folder;
use crate::interval::Rule;
use crate::listing;
use crate::manifest::{MOST_VALUES, Manifest, Run};
use crate::pace::{Beat, Look, Pace};
use crate::ranks::Ranks;

/// What a Checkpointer is opened with.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The folder of the run; it is made when the one that is to contain it exists.
    pub path: PathBuf,
    /// When a checkpoint is due.
    pub rule: Rule,
    /// How many checkpoints that count stay, at least 1.
    pub keep: u32,
    /// Whether the run can be asked to stop by [`Checkpointer::stop`].
    pub stops: bool,
    /// The time after which the run is asked to stop.
    pub limit: Option<Duration>,
    /// The longest wait for other ranks and for the disk.
    pub timeout: Duration,
}

impl Settings {
    /// These, with two checkpoints that stay, nothing that asks the run to stop, and waits of at
    /// most 300 s.
    pub fn new(path: impl Into<PathBuf>, rule: Rule) -> Settings {
        let timeout = Duration::from_secs(300);
        Settings { path: path.into(), rule, keep: 2, stops: false, limit: None, timeout }
    }
}

/// What became of restoring a checkpoint on one rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is restored.
    Restored,
    /// Its bytes cannot be read, in a sentence: an older one may do.
    Unreadable(String),
    /// The application asked for what it does not have, in a sentence.
    Refused(String),
}

/// One rank's hold on the folder of a run. Its calls are made by one thread; those that take
/// `ranks` are made by all ranks in the same order.
pub struct Checkpointer {
    spool: Arc<Spool>,
    folder: Folder,
    committer: Committer,
    exchanges: Exchanges,
    settings: Settings,
    rank: u32,
    size: u32,
    run: Run,
    opened: Instant,
    stop: AtomicBool,
    warnings: Vec<String>,
    pace: Mutex<Pace>,
    life: Mutex<Life>,
}

#[derive(Debug)]
struct Life {
    standing: Standing,
    saving: Option<Saving>,
    /// All ranks have told each other what they have at the end.
    agreed_end: bool,
}

/// What the next step has to come after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// Nothing was restored or saved; this lies there.
    Opened(Option<u64>),
    /// What came after this step is not wanted any more.
    Restored(u64),
    /// This step was saved.
    Saved(u64),
}

/// A save that has begun.
#[derive(Debug)]
struct Saving {
    step: u64,
    values: String,
    begun: Instant,
}

/// What a rank found when it opened its part.
struct Opened {
    folder: Folder,
    spool: Arc<Spool>,
    counted: Vec<Part>,
    warnings: Vec<String>,
}

impl Checkpointer {
    /// Opens this rank's part on all ranks. `make` opens a durable spool in the directory that it
    /// is given.
    ///
    /// # Errors
    /// What `make` returned; `Io`; `Invalid` when another number of ranks has left checkpoints
    /// there; `Timeout` when ranks do not answer; the error of another rank.
    pub fn open<E: From<Error> + fmt::Display>(
        settings: Settings,
        ranks: &dyn Ranks,
        make: impl FnOnce(&Path) -> Result<Arc<Spool>, E>,
    ) -> Result<Checkpointer, E> {
        let (rank, size) = (ranks.rank(), ranks.size());
        let exchanges = Exchanges::default();
        let opened = open_part(&settings, rank, size, make);
        let said = match &opened {
            Ok(opened) => {
                [&[0][..], &draw().0.to_le_bytes(), &agreement::encode(&opened.counted)].concat()
            }
            Err(error) => [&[1][..], error.to_string().as_bytes()].concat(),
        };
        let all = exchanges.all(ranks, Call::Open, &said, settings.timeout);
        let Opened { folder, spool, counted, warnings } = opened?;
        let (run, of_ranks) = all.and_then(|all| opened_by_all(&all)).map_err(E::from)?;
        let latest = agreement::common(&of_ranks).last().map(|part| part.step);
        let committer =
            Committer::start(Arc::clone(&spool), folder.clone(), counted, settings.timeout)
                .map_err(E::from)?;
        let stops = settings.stops || settings.limit.is_some();
        let pace = Pace::new(settings.rule, size == 1, stops);
        let standing = Standing::Opened(latest);
        Ok(Checkpointer {
            spool,
            folder,
            committer,
            exchanges,
            settings,
            rank,
            size,
            run,
            opened: Instant::now(),
            stop: AtomicBool::new(false),
            warnings,
            pace: Mutex::new(pace),
            life: Mutex::new(Life { standing, saving: None, agreed_end: false }),
        })
    }

    /// The spool with the arrays of this rank.
    #[must_use]
    pub fn spool(&self) -> &Arc<Spool> {
        &self.spool
    }

    /// What was found damaged at the opening, in sentences.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What went wrong after the call that it belongs to, and was not told yet.
    pub fn take_failure(&self) -> Option<Error> {
        self.committer.take_failure()
    }

    /// Asks the run to stop: a checkpoint is due then, once. It may be called from any thread.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the run is to stop, as [`due`](Self::due) has found out: the same on all ranks, and
    /// only with a checkpoint that is due.
    #[must_use]
    pub fn stopping(&self) -> bool {
        lock(&self.pace).stopping()
    }

    /// The seconds from a save to the next one; `None` where time does not decide.
    #[must_use]
    pub fn interval(&self) -> Option<f64> {
        lock(&self.pace).interval()
    }

    /// Whether a checkpoint is due at `step`: the same on all ranks.
    ///
    /// # Errors
    /// `Timeout` when ranks do not answer.
    pub fn due(&self, step: u64, ranks: &dyn Ranks) -> Result<bool, Error> {
        let (stop, costs) = (self.asked_to_stop(), self.committer.costs());
        let look = lock(&self.pace).look(step, self.now(), stop, costs);
        let mine = match look {
            Look::Answer(answer) => return Ok(answer),
            Look::Exchange(beat) => beat.encode(),
        };
        let all = self.exchanges.all(ranks, Call::Due, &mine, self.settings.timeout)?;
        let beats: Option<Vec<Beat>> = all.iter().map(|bytes| Beat::decode(bytes)).collect();
        let beats = beats.ok_or_else(nonsense)?;
        Ok(lock(&self.pace).heard(&beats, self.now()))
    }

    /// Begins the checkpoint of `step` with these small values, a JSON text: agrees with all ranks
    /// on what is there, and waits until there is room for one more. The caller then saves the
    /// arrays under the version `step`, and calls [`commit`](Self::commit) or
    /// [`abandon`](Self::abandon).
    ///
    /// # Errors
    /// `Invalid` when the step does not come after what lies there, or the values are too large;
    /// `Timeout`, `Interrupted`, `Io`, `Closed`.
    pub fn begin(
        &self,
        step: u64,
        values: String,
        ranks: &dyn Ranks,
        wait: &Wait<'_>,
    ) -> Result<(), Error> {
        let standing = lock(&self.life).standing;
        check_step(step, standing, &self.settings.path)?;
        check_values(&values)?;
        let common = self.agree(Call::Save(step), ranks)?;
        self.delete_old(&common);
        let begun = Instant::now();
        match standing {
            Standing::Opened(last) => self.clear_after(last)?,
            Standing::Restored(last) => self.clear_after(Some(last))?,
            Standing::Saved(_) => {}
        }
        self.committer.wait_for_room(wait)?;
        lock(&self.life).saving = Some(Saving { step, values, begun });
        Ok(())
    }

    /// The arrays of the step that has begun are in the spool: makes it count, later.
    ///
    /// # Errors
    /// `Invalid` when no save has begun; those of [`Spool::regions`].
    pub fn commit(&self) -> Result<(), Error> {
        let Some(Saving { step, values, begun }) = lock(&self.life).saving.take() else {
            return Err(Error::new(ErrorKind::Invalid, "No save has begun."));
        };
        let head = self.spool.regions(step as i64)?;
        let manifest = Manifest {
            step,
            rank: self.rank,
            ranks: self.size,
            run: self.run,
            bytes: head.regions.iter().map(|region| region.bytes).sum(),
            milliseconds: 0,
            written: 0,
            values,
        };
        let blocked = begun.elapsed().as_secs_f64();
        self.committer.add(Job { manifest, begun, blocked });
        lock(&self.life).standing = Standing::Saved(step);
        lock(&self.pace).saved(step, self.now());
        Ok(())
    }

    /// The arrays of the step that has begun could not be saved, or are not wanted: the next one is
    /// due after another interval.
    pub fn abandon(&self) {
        if let Some(saving) = lock(&self.life).saving.take() {
            // As a rule it is not there.
            let _ = self.spool.discard(saving.step as i64);
            lock(&self.pace).saved(saving.step, self.now());
        }
    }

    /// The newest checkpoint that counts, if any.
    ///
    /// # Errors
    /// `Timeout`.
    pub fn latest(&self, ranks: &dyn Ranks) -> Result<Option<u64>, Error> {
        self.candidate(&[], ranks)
    }

    /// The newest checkpoint that counts and is none of `unreadable`.
    ///
    /// # Errors
    /// `Timeout`.
    pub fn candidate(&self, unreadable: &[u64], ranks: &dyn Ranks) -> Result<Option<u64>, Error> {
        let common = self.agree(Call::Latest, ranks)?;
        let mut steps = common.into_iter().map(|part| part.step);
        Ok(steps.rfind(|step| !unreadable.contains(step)))
    }

    /// Tells all ranks what became of restoring `step`, and hears from them. Empty when all have
    /// restored it; else why not, in sentences, and an older one has to do.
    ///
    /// # Errors
    /// `Invalid` when a rank refused it, `Timeout`.
    pub fn restored(
        &self,
        step: u64,
        outcome: &Outcome,
        ranks: &dyn Ranks,
    ) -> Result<Vec<String>, Error> {
        let said = match outcome {
            Outcome::Restored => vec![0],
            Outcome::Unreadable(why) => [&[1][..], why.as_bytes()].concat(),
            Outcome::Refused(why) => [&[2][..], why.as_bytes()].concat(),
        };
        let all = self.exchanges.all(ranks, Call::Outcome, &said, self.settings.timeout)?;
        let mut sentences = Vec::new();
        for (rank, said) in all.iter().enumerate().filter(|(_, said)| said.first() != Some(&0)) {
            let (kind, why) = said.split_first().ok_or_else(nonsense)?;
            let why = String::from_utf8_lossy(why);
            let sentence = format!("Rank {rank} could not restore step {step}: {why}");
            if *kind == 2 {
                return Err(Error::new(ErrorKind::Invalid, sentence));
            }
            sentences.push(sentence);
        }
        if sentences.is_empty() {
            lock(&self.life).standing = Standing::Restored(step);
            lock(&self.pace).saved(step, self.now());
        }
        Ok(sentences)
    }

    /// The small values of a checkpoint that counts on this rank.
    ///
    /// # Errors
    /// `Unknown`, `Io`.
    pub fn values(&self, step: u64) -> Result<String, Error> {
        let found = self.folder.manifests()?.whole.into_iter().find(|one| one.step == step);
        found.map(|manifest| manifest.values).ok_or_else(|| {
            let message = format!("Step {step} does not count on this rank.");
            Error::new(ErrorKind::Unknown, message)
        })
    }

    /// Waits until everything that was saved is durable on this rank.
    ///
    /// # Errors
    /// Why something is not; `Timeout`, `Interrupted`.
    pub fn flush(&self, wait: &Wait<'_>) -> Result<(), Error> {
        self.committer.retry();
        self.committer.settle(wait)?;
        self.take_failure().map_or(Ok(()), Err)
    }

    /// Waits until everything that was saved counts, agrees with all ranks on that, deletes what is
    /// not kept, and ends. Without `ranks` nothing is agreed on, and nothing more deleted. The
    /// spool stays open.
    ///
    /// # Errors
    /// Why something does not count: this is still open then, and another call tries again without
    /// asking the ranks. `Timeout` and `Interrupted`. When ranks do not answer it has ended all the
    /// same.
    pub fn close(&self, ranks: Option<&dyn Ranks>, wait: &Wait<'_>) -> Result<(), Error> {
        self.committer.retry();
        self.committer.settle(wait)?;
        let failure = self.committer.take_failure();
        let agreed = match ranks.filter(|_| self.exchanges.work()) {
            Some(ranks) if !std::mem::replace(&mut lock(&self.life).agreed_end, true) => {
                self.agree(Call::Close, ranks).map(|common| self.delete_old(&common))
            }
            _ => Ok(()),
        };
        self.committer.settle(wait)?;
        if let Some(failure) = failure.or_else(|| self.committer.take_failure()) {
            return Err(failure);
        }
        self.committer.end(wait)?;
        agreed
    }

    /// Whether it has ended, by [`close`](Self::close).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.committer.has_ended()
    }

    /// Gives up what does not count yet.
    pub fn give_up(&self) {
        self.committer.abandon();
    }

    /// The parts that all ranks have, oldest first.
    fn agree(&self, call: Call, ranks: &dyn Ranks) -> Result<Vec<Part>, Error> {
        let mine = agreement::encode(&self.committer.counted());
        let all = self.exchanges.all(ranks, call, &mine, self.settings.timeout)?;
        let all: Option<Vec<_>> = all.iter().map(|bytes| agreement::decode(bytes)).collect();
        Ok(agreement::common(&all.ok_or_else(nonsense)?))
    }

    fn delete_old(&self, common: &[Part]) {
        let below = agreement::deletable_below(common, self.settings.keep as usize);
        below.into_iter().for_each(|below| self.committer.remove_below(below));
    }

    /// Deletes what came after `last`, which would be taken for newer than what comes now.
    fn clear_after(&self, last: Option<u64>) -> Result<(), Error> {
        let is_after = |step: u64| last.is_none_or(|last| step > last);
        self.folder.remove(is_after)?;
        self.committer.forget_after(last);
        discard(&self.spool, is_after)
    }

    fn asked_to_stop(&self) -> bool {
        let late = self.settings.limit.is_some_and(|limit| self.opened.elapsed() >= limit);
        late || self.stop.load(Ordering::Relaxed)
    }

    fn now(&self) -> f64 {
        self.opened.elapsed().as_secs_f64()
    }
}

impl fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpointer").field("settings", &self.settings).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A random number of a run.
fn draw() -> Run {
    // Every one of these has random keys.
    let half = || u128::from(RandomState::new().build_hasher().finish());
    Run(half() << 64 | half())
}

fn open_part<E: From<Error>>(
    settings: &Settings,
    rank: u32,
    size: u32,
    make: impl FnOnce(&Path) -> Result<Arc<Spool>, E>,
) -> Result<Opened, E> {
    let folder = Folder::make(&settings.path, rank, size)?;
    let others = listing::other_sizes(&settings.path, size)?;
    if let Some(other) = others.first() {
        let message = format!(
            "{} has checkpoints of {other} ranks, and this run has {size}. Start it with {other} \
             ranks, read all parts by `Checkpointer.parts` and save them anew elsewhere, or choose \
             another folder.",
            settings.path.display()
        );
        return Err(Error::new(ErrorKind::Invalid, message).into());
    }
    let spool = make(&folder.data())?;
    let manifests = folder.manifests()?;
    let mut warnings: Vec<String> = manifests.damaged.iter().map(listing::sentence).collect();
    let versions = spool.versions()?;
    let mut counted = Vec::new();
    for Manifest { step, run, .. } in manifests.whole {
        match versions.binary_search(&(step as i64)) {
            Ok(_) => counted.push(Part { step, run }),
            Err(_) => warnings.push(format!(
                "Step {step} does not count: its arrays are not in {}.",
                folder.data().display()
            )),
        }
    }
    Ok(Opened { folder, spool, counted, warnings })
}

/// The run of rank 0, and what each rank has.
fn opened_by_all(all: &[Vec<u8>]) -> Result<(Run, Vec<Vec<Part>>), Error> {
    let (mut run, mut of_ranks) = (None, Vec::new());
    for (rank, said) in all.iter().enumerate() {
        let (failed, said) = said.split_first().ok_or_else(nonsense)?;
        if *failed != 0 {
            let why = String::from_utf8_lossy(said);
            let message = format!("Rank {rank} could not open its part: {why}");
            return Err(Error::new(ErrorKind::Io, message));
        }
        let (tag, parts) = said.split_at_checked(16).ok_or_else(nonsense)?;
        let tag = tag.try_into().map(u128::from_le_bytes).map_err(|_| nonsense())?;
        run.get_or_insert(Run(tag));
        of_ranks.push(agreement::decode(parts).ok_or_else(nonsense)?);
    }
    Ok((run.ok_or_else(nonsense)?, of_ranks))
}

fn nonsense() -> Error {
    let message = "A rank said what this version does not understand: use the same Unspool on all \
                   ranks.";
    Error::new(ErrorKind::Invalid, message)
}

fn check_step(step: u64, standing: Standing, path: &Path) -> Result<(), Error> {
    let message = match standing {
        _ if i64::try_from(step).is_err() => format!("Step {step} is too large for a number."),
        Standing::Opened(Some(last)) if step <= last => format!(
            "{} has a checkpoint of step {last}, and step {step} does not come after it. Call \
             `restore` first to go on from there, or begin in another folder, or remove it with \
             `unspool rm`.",
            path.display()
        ),
        Standing::Restored(last) | Standing::Saved(last) if step <= last => format!(
            "Step {step} does not come after step {last}: the steps of checkpoints increase."
        ),
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::Invalid, message))
}

fn check_values(values: &str) -> Result<(), Error> {
    if values.len() <= MOST_VALUES {
        return Ok(());
    }
    let message = format!(
        "The small values take {} bytes, and at most {MOST_VALUES} are taken: save large ones as \
         arrays.",
        values.len()
    );
    Err(Error::new(ErrorKind::Invalid, message))
}

#[cfg(test)]
#[path = "checkpointer_tests.rs"]
mod tests;
