//! The Checkpointer: one rank's hold on the folder of a run.
//!
//! It owns no arrays. The caller saves them into the [`Spool`] between
//! [`begin`](Checkpointer::begin) and [`commit`](Checkpointer::commit), with the step as version,
//! and restores them from there.

mod levels;
mod opening;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use unspool::{Error, ErrorKind, Spool, Unflushed, Wait};
use unspool_codec::increment::is_increment;

use crate::agreement::{Agreed, Copy, Held, Said};
use crate::claim::Claim;
use crate::committer::{Committer, Job, Places, Saves};
use crate::copier::{Copier, Copies, Copying, Progress, Removal};
use crate::exchange::{Call, Exchanges};
use crate::frames::discard;
use crate::increments::Fulls;
use crate::interval::{Every, Rule};
use crate::level::{OpenedLevel, RemoteSettings};
use crate::manifest::{MOST_VALUES, Manifest, Part, Run};
use crate::pace::{Beat, Look, Pace};
use crate::partner::Partner;
use crate::ranks::Ranks;
use crate::retention::Stays;
use crate::worker::lock;
use opening::{Opened, check_ranks, draw, open_part, opened_by_all};

/// What a Checkpointer is opened with.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The folder of the run; it is made when the one that is to contain it exists.
    pub path: PathBuf,
    /// When a checkpoint is due.
    pub rule: Rule,
    /// How many checkpoints that count stay, at least 1.
    pub keep: u32,
    /// Which ones stay besides.
    pub stays: Stays,
    /// Whether the run can be asked to stop by [`Checkpointer::stop`].
    pub stops: bool,
    /// The time after which the run is asked to stop.
    pub limit: Option<Duration>,
    /// The longest wait for other ranks and for the disk.
    pub timeout: Duration,
    /// Copies beyond the machine.
    pub remote: Option<RemoteSettings>,
    /// Which checkpoints are given to another rank as well, on another machine where there is one.
    pub partner: Option<Every>,
    /// How often a checkpoint is stored in full, and not as what has changed since the one before;
    /// `None`: always.
    pub increments: Option<Fulls>,
}

impl Settings {
    /// These, with the last two checkpoints that stay, nothing that asks the run to stop, waits of
    /// at most 300 s, no copies beyond the machine, and no increments.
    pub fn new(path: impl Into<PathBuf>, rule: Rule) -> Settings {
        let timeout = Duration::from_secs(300);
        let (remote, partner, increments) = (None, None, None);
        let (path, keep, stays) = (path.into(), 2, Stays::default());
        let (stops, limit) = (false, None);
        Settings { path, rule, keep, stays, stops, limit, timeout, remote, partner, increments }
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
    committer: Committer,
    partner: Option<Partner>,
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
    /// What all ranks restore next.
    wanted: Option<Part>,
    mending: Mending,
    /// All ranks have told each other what they have at the end.
    agreed_end: bool,
    /// What the application has loaded since the last save.
    loaded: Option<u64>,
    /// How good the application says that steps are.
    scores: BTreeMap<u64, f64>,
}

impl Life {
    /// What `step` has to come after. One that was loaded is gone on from where the step is newer
    /// than it, and not newer than the last one.
    fn before(&self, step: u64) -> Standing {
        let (Standing::Opened(Some(last)) | Standing::Restored(last) | Standing::Saved(last)) =
            self.standing
        else {
            return self.standing;
        };
        let back = self.loaded.filter(|loaded| *loaded < step && step <= last);
        back.map_or(self.standing, Standing::Restored)
    }
}

/// What is damaged here, and what other ranks keep of it.
#[derive(Debug, Default)]
struct Mending {
    /// Whether another rank keeps a copy of this rank's part of what is restored next.
    kept: bool,
    /// Parts that are damaged here, as long as no copy of them has come.
    damaged: BTreeSet<Part>,
    /// Parts that another rank was asked for.
    asked: BTreeSet<Part>,
    /// Another rank is to be asked now.
    asks: bool,
    /// The step that all ranks restore once more, with what others keep of it.
    again: Option<u64>,
}

/// First byte of what a rank says when it could not restore a step and asks the rank that keeps a
/// copy of its part. 0: it has restored it; 1: it could not; 2: it refused.
const ASKS: u8 = 3;

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
    /// It is to be copied beyond the machine.
    copy: bool,
}

impl Checkpointer {
    /// Opens this rank's part on all ranks. `make` opens a durable spool in the directory that it
    /// is given; or, with increments, one without a disk, where it is given none.
    ///
    /// # Errors
    /// What `make` returned; `Interrupted`; `Io`; `Invalid` when another number of ranks has left
    /// checkpoints there, or there is no such rank; `Timeout` when ranks do not answer; the error
    /// of another rank.
    pub fn open<E: From<Error> + fmt::Display>(
        mut settings: Settings,
        ranks: &dyn Ranks,
        wait: &Wait<'_>,
        make: impl FnOnce(Option<&Path>) -> Result<Arc<Spool>, E>,
    ) -> Result<Checkpointer, E> {
        let (rank, size) = (ranks.rank(), ranks.size());
        check_ranks(rank, size)?;
        let exchanges = Exchanges::default();
        let own = draw();
        let opened = open_part(&mut settings, (rank, size, own), wait, make);
        let said = match &opened {
            Ok(opened) => opened.message(own),
            Err(error) => [&[1][..], error.to_string().as_bytes()].concat(),
        };
        let all = exchanges.all(ranks, Call::Open, &said, settings.timeout);
        let Opened { folder, data, stage, parts, mut warnings, remote, mut partner } = opened?;
        let (run, agreed, hosts) = all.and_then(|all| opened_by_all(&all)).map_err(E::from)?;
        let latest = agreed.either.last().map(|part| part.step);
        let timeout = settings.timeout;
        let every = settings.remote.as_ref().map(|remote| remote.every);
        let copier = remote.zip(every).map(|(opened, every)| {
            let OpenedLevel { shelf, parts, .. } = opened;
            let shelf = if rank == 0 { shelf } else { shelf.claimed(Claim::of(run)) };
            let (data, folder) = (Arc::clone(&data), folder.clone());
            let progress = Progress::of(parts, latest.unwrap_or(0));
            Copier::start(Copying { shelf, every, folder, data }, progress, timeout).map(Arc::new)
        });
        let copier = copier.transpose().map_err(E::from)?;
        let places = Places { data, stage, folder, copier };
        let committer = Committer::start(places, Saves::of(parts), timeout).map_err(E::from)?;
        if partner.as_mut().is_some_and(|partner| !partner.begin(&hosts)) {
            let note = "Some ranks and the partners that keep their parts are on the same machine.";
            warnings.push(note.to_owned());
        }
        let stops = settings.stops || settings.limit.is_some();
        let pace = Pace::new(settings.rule, size == 1, stops);
        let standing = Standing::Opened(latest);
        let checkpointer = Checkpointer {
            committer,
            partner,
            exchanges,
            settings,
            rank,
            size,
            run,
            opened: Instant::now(),
            stop: AtomicBool::new(false),
            warnings,
            pace: Mutex::new(pace),
            life: Mutex::new(Life {
                standing,
                saving: None,
                wanted: None,
                mending: Mending::default(),
                agreed_end: false,
                loaded: None,
                scores: BTreeMap::new(),
            }),
        };
        // What an earlier process did not get there.
        checkpointer.copy_newest(&agreed);
        Ok(checkpointer)
    }

    /// The spool that the arrays of this rank are saved into.
    #[must_use]
    pub fn spool(&self) -> &Arc<Spool> {
        self.places().stage.as_ref().map_or(&self.places().data, |stage| stage.spool())
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

    /// What went wrong with copies beyond the machine, and was not told yet. Checkpoints count
    /// without them.
    pub fn take_copy_failure(&self) -> Option<Error> {
        let of_partner = self.partner.as_ref().and_then(Partner::take_failure);
        of_partner.or_else(|| self.places().copier.as_ref()?.take_failure())
    }

    /// How far the copies beyond the machine are, where there are any.
    #[must_use]
    pub fn copies(&self) -> Option<Copies> {
        Some(self.places().copier.as_ref()?.copies())
    }

    /// The checkpoints of which a GPU has found what has changed, so that only that left it.
    #[must_use]
    pub fn hashed_on_gpu(&self) -> u64 {
        self.places().stage.as_ref().map_or(0, |stage| stage.hashed())
    }

    /// Asks the run to stop: a checkpoint is due then, once. It may be called from any thread.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the run is to stop, as [`due`](Self::due) or a save has found out: the same on all
    /// ranks. One rank alone finds out here as well where [`due`](Self::due) was not asked since
    /// the last save, so that nothing is lost by stopping.
    #[must_use]
    pub fn stopping(&self) -> bool {
        lock(&self.pace).stopping(self.asked_to_stop())
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
        self.check_open()?;
        let (stop, costs) = (self.asked_to_stop(), self.committer.book().own.costs);
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
        self.check_open()?;
        let standing = lock(&self.life).before(step);
        check_step(step, standing, &self.settings.path)?;
        check_values(&values)?;
        let mut said = self.said();
        self.places().copier.iter().for_each(|copier| copier.say(&mut said, step, self.now()));
        let partner = self.partner.as_ref();
        said.partner_due = partner.is_some_and(|partner| partner.is_due(step, self.now()));
        said.stop = self.asked_to_stop();
        let agreed = self.agree(Call::Save(step), &said, ranks)?;
        if agreed.ranks.iter().any(|said| said.stop) {
            lock(&self.pace).told_to_stop();
        }
        if agreed.copy == Copy::Skipped {
            self.places().copier.iter().for_each(|copier| copier.skip());
        }
        // What is gone on from may be old, and what is newer goes below.
        if !matches!(standing, Standing::Restored(_)) {
            self.delete_old(&agreed);
        }
        let begun = Instant::now();
        if agreed.partner_due {
            self.give_newest(&agreed, ranks)?;
            self.partner.iter().for_each(|partner| partner.took(step, self.now()));
        }
        match standing {
            Standing::Opened(last) => self.clear_after(last)?,
            Standing::Restored(last) => {
                self.committer.settle(wait)?;
                self.set_aside(last, &agreed.local)?;
            }
            Standing::Saved(_) => {}
        }
        self.make_way(step, wait)?;
        self.committer.wait_for_room(wait)?;
        self.places().stage.iter().try_for_each(|stage| stage.expect(step))?;
        let copy = agreed.copy == Copy::Yes;
        lock(&self.life).saving = Some(Saving { step, values, begun, copy });
        Ok(())
    }

    /// The arrays of the step that has begun are in the spool: makes it count, later.
    ///
    /// # Errors
    /// `Invalid` when no save has begun; those of [`Spool::regions`].
    pub fn commit(&self) -> Result<(), Error> {
        let Some(Saving { step, values, begun, copy }) = lock(&self.life).saving.take() else {
            return Err(Error::new(ErrorKind::Invalid, "No save has begun."));
        };
        let head = self.spool().regions(step as i64)?;
        if is_increment(&head) {
            let message = "Arrays called `unspool.increment` and `unspool.chunks` are what an \
                           increment is stored as: give them other names.";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let manifest = Manifest {
            step,
            rank: self.rank,
            ranks: self.size,
            run: self.run,
            bytes: head.regions.iter().map(|region| region.bytes).sum(),
            milliseconds: 0,
            written: 0,
            increment: None,
            frame: None,
            values,
        };
        let blocked = begun.elapsed().as_secs_f64();
        if copy {
            self.places().copier.iter().for_each(|copier| copier.promise(step, self.now()));
        }
        self.places().stage.iter().for_each(|stage| stage.took(head.frame_bytes()));
        self.committer.add(Job { manifest, begun, blocked, copy });
        let mut life = lock(&self.life);
        (life.standing, life.loaded) = (Standing::Saved(step), None);
        // It may be of the step that was wanted, and of another run.
        life.wanted = None;
        drop(life);
        lock(&self.pace).saved(step, self.now());
        Ok(())
    }

    /// The arrays of the step that has begun could not be saved, or are not wanted: the next one is
    /// due after another interval.
    pub fn abandon(&self) {
        if let Some(saving) = lock(&self.life).saving.take() {
            // As a rule it is not there.
            let _ = self.spool().discard(saving.step as i64);
            self.places().stage.iter().for_each(|stage| stage.expect_nothing());
            lock(&self.pace).saved(saving.step, self.now());
        }
    }

    /// The newest checkpoint that counts, if any, after waiting for those that were saved.
    ///
    /// # Errors
    /// `Timeout`, `Interrupted`.
    pub fn latest(&self, ranks: &dyn Ranks, wait: &Wait<'_>) -> Result<Option<u64>, Error> {
        self.candidate(&[], ranks, wait)
    }

    /// The newest checkpoint that counts and is none of `unreadable`, after waiting for those that
    /// were saved. What another rank keeps of it comes here now; [`ready`](Self::ready) brings it
    /// where only the remote place has it.
    ///
    /// # Errors
    /// `Timeout`, `Interrupted`.
    pub fn candidate(
        &self,
        unreadable: &[u64],
        ranks: &dyn Ranks,
        wait: &Wait<'_>,
    ) -> Result<Option<u64>, Error> {
        self.check_open()?;
        self.committer.settle(wait)?;
        let agreed = self.agree(Call::Latest, &self.said(), ranks)?;
        let mut life = lock(&self.life);
        let again = life.mending.again.take();
        let mut parts = agreed.either.iter().copied();
        let wanted =
            parts.rfind(|part| again == Some(part.step) || !unreadable.contains(&part.step));
        life.wanted = wanted;
        let own = wanted.map(|part| Held { rank: self.rank, part });
        life.mending.kept =
            own.is_some_and(|own| agreed.ranks.iter().any(|said| said.held.contains(&own)));
        drop(life);
        let Some(part) = wanted else { return Ok(None) };
        self.take_back(part, &agreed, ranks)?;
        Ok(Some(part.step))
    }

    /// Tells all ranks what became of restoring `step`, and hears from them. Empty when all have
    /// restored it; else why not, in sentences, and [`candidate`](Self::candidate) says what comes
    /// next: the same step once more, where other ranks keep copies of all that is damaged, or an
    /// older one.
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
            Outcome::Unreadable(why) => {
                let asks = std::mem::take(&mut lock(&self.life).mending.asks);
                let kind = if asks { ASKS } else { 1 };
                [&[kind][..], why.as_bytes()].concat()
            }
            Outcome::Refused(why) => [&[2][..], why.as_bytes()].concat(),
        };
        let all = self.exchanges.all(ranks, Call::Outcome, &said, self.settings.timeout)?;
        let (mut sentences, mut all_ask) = (Vec::new(), true);
        for (rank, said) in all.iter().enumerate().filter(|(_, said)| said.first() != Some(&0)) {
            let (kind, why) = said.split_first().ok_or_else(nonsense)?;
            let why = String::from_utf8_lossy(why);
            let asks = if *kind == ASKS { ", and asks the rank that keeps a copy" } else { "" };
            let sentence = format!("Rank {rank} could not restore step {step}{asks}: {why}");
            if *kind == 2 {
                return Err(Error::new(ErrorKind::Invalid, sentence));
            }
            sentences.push(sentence);
            all_ask &= *kind == ASKS;
        }
        if !sentences.is_empty() && all_ask {
            lock(&self.life).mending.again = Some(step);
        }
        if sentences.is_empty() {
            lock(&self.life).standing = Standing::Restored(step);
            lock(&self.pace).saved(step, self.now());
        }
        Ok(sentences)
    }

    /// The application has loaded the checkpoint of `step`, and may go on from it: a save of a step
    /// after it that is not newer than the last one deletes what came after it, as one after
    /// [`restored`](Self::restored) does. A save of a newer step deletes nothing.
    pub fn loaded(&self, step: u64) {
        lock(&self.life).loaded = Some(step);
    }

    /// How good the checkpoint of `step` is, where some of the best stay: lower is better. What
    /// rank 0 says counts.
    pub fn score(&self, step: u64, score: f64) {
        lock(&self.life).scores.insert(step, score);
    }

    /// The small values of a checkpoint that counts on this rank; one that was saved is waited for.
    ///
    /// # Errors
    /// `Unknown`, `Io`, `Timeout`, `Interrupted`.
    pub fn values(&self, step: u64, wait: &Wait<'_>) -> Result<String, Error> {
        self.check_open()?;
        self.arrived(step, wait)?;
        let found =
            self.places().folder.manifests()?.whole.into_iter().find(|one| one.step == step);
        found.map(|manifest| manifest.values).ok_or_else(|| {
            let message = format!("Step {step} does not count on this rank.");
            Error::new(ErrorKind::Unknown, message)
        })
    }

    /// Waits until everything that was saved is durable on this rank.
    ///
    /// # Errors
    /// Why something is not; `Timeout`, `Interrupted`, `Closed`.
    pub fn flush(&self, wait: &Wait<'_>) -> Result<(), Error> {
        self.check_open()?;
        self.committer.retry();
        self.committer.settle(wait)?;
        self.take_failure().map_or(Ok(()), Err)
    }

    /// Waits until everything that was saved counts, agrees with all ranks on that, deletes what is
    /// not kept, copies the newest one beyond the machine, and ends. Without `ranks` nothing is
    /// agreed on, and nothing more deleted or copied than is on its way. The spool that arrays are
    /// saved into stays open.
    ///
    /// # Errors
    /// Why something does not count: this is still open then, and another call tries again without
    /// asking the ranks. `Timeout` and `Interrupted`. When ranks do not answer, or the newest
    /// checkpoint did not get to the remote place, it has ended all the same. `Closed` when it had
    /// ended before.
    pub fn close(&self, ranks: Option<&dyn Ranks>, wait: &Wait<'_>) -> Result<(), Error> {
        self.check_open()?;
        self.committer.retry();
        self.committer.settle(wait)?;
        let failure = self.committer.take_failure();
        let agreed = match ranks.filter(|_| self.exchanges.work()) {
            Some(ranks) if !std::mem::replace(&mut lock(&self.life).agreed_end, true) => {
                self.agree(Call::Close, &self.said(), ranks).and_then(|agreed| {
                    self.delete_old(&agreed);
                    self.copy_newest(&agreed);
                    self.give_newest(&agreed, ranks)
                })
            }
            _ => Ok(()),
        };
        self.committer.settle(wait)?;
        if let Some(failure) = failure.or_else(|| self.committer.take_failure()) {
            return Err(failure);
        }
        let copied = self.places().copier.as_ref().map_or(Ok(()), |copier| {
            copier.settle(wait)?;
            copier.take_failure().map_or(Ok(()), Err)
        });
        self.committer.end(wait)?;
        let answers = |error: &Error| error.kind() != ErrorKind::Timeout;
        if let Some(copier) = &self.places().copier {
            if copied.as_ref().err().is_none_or(answers) {
                copier.jobs().shelf.release();
            }
            copier.give_up();
            copier.end(wait)?;
        }
        self.close_own(wait);
        agreed.and(copied)
    }

    /// Where the parts of this rank are.
    fn places(&self) -> &Places {
        self.committer.jobs()
    }

    /// Refuses a call after the end.
    fn check_open(&self) -> Result<(), Error> {
        match self.is_closed() {
            true => Err(Error::new(ErrorKind::Closed, "The checkpointer is closed.")),
            false => Ok(()),
        }
    }

    /// Whether it has ended, by [`close`](Self::close).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.committer.has_ended()
    }

    /// Gives up what does not count yet.
    pub fn give_up(&self) {
        self.committer.give_up();
        self.places().copier.iter().for_each(|copier| copier.give_up());
        self.close_own(&Wait::at_most(self.settings.timeout));
    }

    /// Closes the durable spool where the application has another one. What is not durable then
    /// does not count, and was told.
    fn close_own(&self, wait: &Wait<'_>) {
        if self.places().stage.is_some() {
            let _ = self.places().data.close_as(Unflushed::Discard, wait);
        }
    }

    /// Waits for the checkpoint of `step` if it was saved and does not count yet.
    fn arrived(&self, step: u64, wait: &Wait<'_>) -> Result<(), Error> {
        let counts = self.committer.counted().iter().any(|part| part.step == step);
        if counts { Ok(()) } else { self.committer.settle(wait) }
    }

    /// What this rank has.
    fn said(&self) -> Said {
        let mut remote =
            self.places().copier.as_ref().map_or(Vec::new(), |copier| copier.counted());
        if let Some(aside) = self.committer.book().own.aside() {
            remote.retain(|part| part.step <= aside.last);
        }
        let held = self.partner.as_ref().map_or(Vec::new(), Partner::held);
        let (mut local, apart) =
            (self.committer.counted(), self.committer.book().own.parts.apart());
        let life = lock(&self.life);
        local.retain(|part| !life.mending.damaged.contains(part));
        let there: BTreeSet<u64> = local.iter().chain(&remote).map(|part| part.step).collect();
        let mut scores: Vec<(u64, f64)> = Vec::new();
        if self.rank == 0 {
            let scored = life.scores.iter().map(|(step, score)| (*step, *score));
            scores.extend(scored.filter(|(step, _)| there.contains(step)));
        }
        drop(life);
        Said { local, remote, held, apart, scores, ..Said::default() }
    }

    /// What all ranks have.
    fn agree(&self, call: Call, said: &Said, ranks: &dyn Ranks) -> Result<Agreed, Error> {
        let all = self.exchanges.all(ranks, call, &said.encode(), self.settings.timeout)?;
        let all: Option<Vec<_>> = all.iter().map(|bytes| Said::decode(bytes)).collect();
        Ok(Agreed::of(all.ok_or_else(nonsense)?))
    }

    /// Deletes what came after `last`, which would be taken for newer than what comes now.
    fn clear_after(&self, last: Option<u64>) -> Result<(), Error> {
        let is_after = |step: u64| last.is_none_or(|last| step > last);
        self.places().folder.remove(is_after)?;
        self.committer.book().own.parts.retain(|step| !is_after(step));
        self.places().copier.iter().for_each(|copier| copier.remove(Removal::After(last)));
        self.partner.iter().try_for_each(|partner| partner.remove(is_after))?;
        self.places().stage.iter().for_each(|stage| stage.begin_anew());
        discard(&self.places().data, is_after)
    }

    /// Has what came after `last` deleted when the step that is saved next is durable. Until then
    /// it counts no more for this process; it does for the next one, if this one ends before.
    fn set_aside(&self, last: u64, all: &[Part]) -> Result<(), Error> {
        let aside = self.committer.book().own.set_aside(last, all);
        // What does not count on all ranks.
        let is_left_over = |step: u64| step > last && !aside.contains(&step);
        self.places().folder.remove(is_left_over)?;
        self.committer.book().own.parts.retain(|step| !is_left_over(step));
        self.partner.iter().try_for_each(|partner| partner.remove(|step| step > last))?;
        self.places().stage.iter().for_each(|stage| stage.begin_anew());
        discard(&self.places().data, is_left_over)
    }

    /// Deletes what is set aside of a step that is saved again.
    fn make_way(&self, step: u64, wait: &Wait<'_>) -> Result<(), Error> {
        if self.committer.book().own.is_aside(step) {
            // The thread may be deleting it, and would take what is saved now for it.
            self.committer.settle(wait)?;
        }
        if !self.committer.book().own.make_way(step) {
            return Ok(());
        }
        self.places().folder.remove(|one| one == step)?;
        discard(&self.places().data, |one| one == step)
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
             `restore` first to go on from there, or load an older one to go on from that, or \
             begin in another folder, or remove it with `unspool rm`.",
            path.display()
        ),
        Standing::Restored(last) | Standing::Saved(last) if step <= last => format!(
            "Step {step} does not come after step {last}: the steps of checkpoints increase. To go \
             back, restore or load the checkpoint to go on from first."
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
