//! The thread that makes checkpoints count: it waits until the frame of a step is durable, writes
//! the manifest, and deletes what is not to be kept any more.
//!
//! A step that could not be made durable stays where it is. It is tried again when the Checkpointer
//! is closed, and goes when a later step takes its place.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant, SystemTime};

use unspool::{Error, ErrorKind, Spool, Wait};

use crate::agreement::Part;
use crate::copier::Copier;
use crate::folder::Folder;
use crate::interval::Costs;
use crate::manifest::Manifest;
use crate::parts::Parts;
use crate::stage::Stage;
use crate::waiting::wait_until;

/// The most saves that wait to be made durable; their arrays take room in the tiers of the spool,
/// which is what limits them as a rule.
const MOST_WAITING: usize = 16;

/// A save whose arrays are in the spool.
#[derive(Debug)]
pub(crate) struct Job {
    /// What is written when it is durable, but for times.
    pub(crate) manifest: Manifest,
    /// When the save began.
    pub(crate) begun: Instant,
    /// The seconds for which the application waited in it.
    pub(crate) blocked: f64,
    /// Whether it is copied to the remote place when it counts.
    pub(crate) copy: bool,
}

/// The committer of one Checkpointer.
#[derive(Debug)]
pub(crate) struct Committer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The durable one.
    spool: Arc<Spool>,
    /// Where checkpoints are taken from, if they are not saved into that one.
    stage: Option<Arc<Stage>>,
    folder: Folder,
    copier: Option<Arc<Copier>>,
    timeout: Duration,
    state: Mutex<State>,
    changed: Condvar,
    /// Nobody waits for it any more.
    abandoned: AtomicBool,
}

#[derive(Debug)]
struct State {
    /// Parts that are here.
    parts: Parts,
    waiting: VecDeque<Job>,
    /// What is below this step is to be deleted, but for these.
    remove_below: Option<(u64, Vec<u64>)>,
    /// The thread is at work, without the lock.
    working: bool,
    /// The step that could not be made durable, for another try.
    failed: Option<Job>,
    /// What went wrong and was not told yet.
    failure: Option<Error>,
    costs: Option<Costs>,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Open,
    /// The thread ends when it finds nothing to do.
    Ending,
    Ended,
}

/// What the thread does next.
enum Work {
    Commit { job: Box<Job>, superseded: Option<Box<Job>> },
    Remove(u64, Vec<u64>),
    End,
}

impl Committer {
    /// Starts the thread. `parts`: those that are there already.
    pub(crate) fn start(
        spool: Arc<Spool>,
        stage: Option<Arc<Stage>>,
        folder: Folder,
        copier: Option<Arc<Copier>>,
        parts: Parts,
        timeout: Duration,
    ) -> Result<Committer, Error> {
        let state = State {
            parts,
            waiting: VecDeque::new(),
            remove_below: None,
            working: false,
            failed: None,
            failure: None,
            costs: None,
            phase: Phase::Open,
        };
        let (state, changed, abandoned) =
            (Mutex::new(state), Condvar::new(), AtomicBool::new(false));
        let shared = Shared { spool, stage, folder, copier, timeout, state, changed, abandoned };
        let shared = Arc::new(shared);
        let own = Arc::clone(&shared);
        let started = Builder::new().name("unspool-commit".into()).spawn(move || own.work());
        started.map_err(|cause| {
            let message = format!("A thread cannot be started: {cause}.");
            Error::new(ErrorKind::Io, message).caused_by(cause)
        })?;
        Ok(Committer { shared })
    }

    /// The parts that count here, oldest first.
    pub(crate) fn counted(&self) -> Vec<Part> {
        self.shared.lock().parts.counted()
    }

    /// The newest of them that has no frame in common with the newest one.
    pub(crate) fn apart(&self) -> Option<u64> {
        self.shared.lock().parts.apart()
    }

    /// What checkpoints have cost.
    pub(crate) fn costs(&self) -> Option<Costs> {
        self.shared.lock().costs
    }

    /// What went wrong and was not told yet.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.shared.lock().failure.take()
    }

    /// Takes a part that was fetched, and is here now.
    pub(crate) fn take_fetched(&self, manifest: &Manifest) {
        self.shared.lock().parts.add(manifest);
    }

    /// The part of `step` is not to count here for now: its manifest is gone.
    pub(crate) fn forget(&self, step: u64) {
        self.shared.lock().parts.retain(|one| one != step);
    }

    /// Keeps of the parts that count here those up to `last`; their manifests are gone.
    pub(crate) fn forget_after(&self, last: Option<u64>) {
        self.shared.lock().parts.retain(|step| last.is_some_and(|last| step <= last));
    }

    /// Waits until another save can be taken.
    pub(crate) fn wait_for_room(&self, wait: &Wait<'_>) -> Result<(), Error> {
        let slots = self.shared.stage.as_ref().map_or(MOST_WAITING, |stage| stage.slots());
        self.wait_until(wait, "saves to become durable", |state| {
            let at_work = usize::from(state.working && self.shared.stage.is_some());
            state.waiting.len() + at_work < slots.min(MOST_WAITING)
        })?;
        self.make_way(slots);
        Ok(())
    }

    /// What could not be made durable gives way where the stage has no room for it and another one.
    fn make_way(&self, slots: usize) {
        let Some(stage) = &self.shared.stage else { return };
        let mut state = self.shared.lock();
        let crowded = state.waiting.len() + usize::from(state.working) + 1 >= slots;
        let given_up = state.failed.take_if(|_| crowded);
        drop(state);
        given_up.iter().for_each(|job| stage.forget(job.manifest.step));
    }

    /// Takes a save.
    pub(crate) fn add(&self, job: Job) {
        self.shared.lock().waiting.push_back(job);
        self.shared.changed.notify_all();
    }

    /// Has everything below `step` deleted, but for the steps of `needed`.
    pub(crate) fn remove_below(&self, step: u64, needed: Vec<u64>) {
        let mut state = self.shared.lock();
        let goes = state.parts.goes(step, &needed);
        let any = state.parts.counted().iter().any(|part| goes(part.step));
        drop(goes);
        if any {
            state.remove_below = Some((step, needed));
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Tries again what could not be made durable.
    pub(crate) fn retry(&self) {
        let mut state = self.shared.lock();
        // A later save that waits takes its place.
        let alone = state.waiting.is_empty();
        if let Some(job) = state.failed.take_if(|_| alone) {
            state.waiting.push_back(job);
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Waits until there is nothing left to do.
    pub(crate) fn settle(&self, wait: &Wait<'_>) -> Result<(), Error> {
        self.wait_until(wait, "checkpoints to become durable", |state| {
            state.waiting.is_empty() && state.remove_below.is_none() && !state.working
        })
    }

    /// Ends the thread, and waits for that.
    pub(crate) fn end(&self, wait: &Wait<'_>) -> Result<(), Error> {
        let mut state = self.shared.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Ending;
        }
        drop(state);
        self.shared.changed.notify_all();
        self.wait_until(wait, "the last checkpoint", |state| state.phase == Phase::Ended)
    }

    /// Whether the thread has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.shared.lock().phase == Phase::Ended
    }

    /// Gives up what is not durable yet; nobody waits for the thread.
    pub(crate) fn abandon(&self) {
        self.shared.abandoned.store(true, Ordering::Relaxed);
        let mut state = self.shared.lock();
        state.waiting.clear();
        if state.phase == Phase::Open {
            state.phase = Phase::Ending;
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    fn wait_until(
        &self,
        wait: &Wait<'_>,
        what: &str,
        done: impl Fn(&State) -> bool,
    ) -> Result<(), Error> {
        let late = |state: &State, seconds: f64| {
            format!(
                "After {seconds:.1} s this rank still waits for {what}: {} of them are not. Is the \
                 file system at {} there, and as fast as it should be?",
                state.waiting.len() + usize::from(state.working),
                self.shared.folder.path().display(),
            )
        };
        let place = (&self.shared.state, &self.shared.changed);
        wait_until(place, (wait, self.shared.timeout), what, done, late)
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        loop {
            match self.next() {
                Work::Commit { job, superseded } => {
                    if let Some(old) = superseded {
                        // Whether that works or not, it does not count; deleting comes later again.
                        let step = old.manifest.step;
                        let _ = self.folder.remove(|one| one == step);
                        let _ = discard(&self.spool, |one| one == step);
                        self.stage.iter().for_each(|stage| stage.forget(step));
                    }
                    self.commit(*job);
                }
                Work::Remove(below, needed) => self.remove(below, &needed),
                Work::End => break,
            }
        }
        self.lock().phase = Phase::Ended;
        self.changed.notify_all();
    }

    fn next(&self) -> Work {
        let mut state = self.lock();
        state.working = false;
        self.changed.notify_all();
        loop {
            let work = if let Some(job) = state.waiting.pop_front() {
                let old = state.failed.take_if(|old| old.manifest.step != job.manifest.step);
                Some(Work::Commit { job: Box::new(job), superseded: old.map(Box::new) })
            } else if let Some((below, needed)) = state.remove_below.take() {
                Some(Work::Remove(below, needed))
            } else {
                (state.phase == Phase::Ending).then_some(Work::End)
            };
            if let Some(work) = work {
                state.working = true;
                return work;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn commit(&self, mut job: Job) {
        let written = self.make_durable(&mut job);
        let mut state = self.lock();
        match written {
            Ok(()) => {
                let Manifest { step, run, .. } = job.manifest;
                state.parts.add(&job.manifest);
                let commit = job.begun.elapsed().as_secs_f64();
                let new = Costs { blocked: job.blocked, commit };
                state.costs = Some(Costs::and(state.costs, new));
                drop(state);
                self.copier.iter().filter(|_| job.copy).for_each(|c| c.copy(Part { step, run }));
            }
            Err(cause) => {
                let last = state.parts.counted().last().map(|part| part.step);
                state.failure = Some(not_counted(job.manifest.step, last, cause));
                let step = job.manifest.step;
                state.failed = Some(job);
                drop(state);
                self.copier.iter().for_each(|copier| copier.withdraw(step));
            }
        }
    }

    fn make_durable(&self, job: &mut Job) -> Result<(), Error> {
        let step = job.manifest.step;
        let interrupted = || self.abandoned.load(Ordering::Relaxed);
        let wait =
            Wait { timeout: Some(self.timeout), interrupted: &interrupted, ..Wait::default() };
        if let Some(stage) = &self.stage {
            job.manifest.increment = stage.take(&self.spool, (step, job.begun), &wait)?;
        }
        let flushed = self.spool.flush(&wait);
        // Another step may be what could not be flushed.
        let durable = self.spool.durable(step as i64);
        if !matches!(durable, Ok(true)) {
            flushed?;
            durable?;
            let message = "Its arrays are not on the disk.";
            return Err(Error::new(ErrorKind::Lost, message));
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        job.manifest.written = now.map_or(0, |since| since.as_secs());
        job.manifest.milliseconds = job.begun.elapsed().as_millis() as u64;
        self.folder.write(&job.manifest)?;
        self.stage.iter().for_each(|stage| stage.count(step));
        Ok(())
    }

    fn remove(&self, below: u64, needed: &[u64]) {
        let goes = self.lock().parts.goes(below, needed);
        let removed = self.folder.remove(&goes);
        let removed = removed.and_then(|()| {
            self.lock().parts.retain(|step| !goes(step));
            discard(&self.spool, &goes)
        });
        if let Err(cause) = removed {
            let message = format!("Checkpoints before step {below} are not deleted: {cause}");
            let error = Error::new(cause.kind(), message).caused_by(cause);
            self.lock().failure.get_or_insert(error);
        }
    }
}

/// Discards the frames of steps, whole or lost.
pub(crate) fn discard(spool: &Spool, wanted: impl Fn(u64) -> bool) -> Result<(), Error> {
    let lost = spool.lost()?.into_keys();
    let versions = spool.versions()?.into_iter().chain(lost);
    for version in versions.filter(|version| u64::try_from(*version).is_ok_and(&wanted)) {
        match spool.discard(version) {
            Err(error) if matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Discarded) => {}
            done => done?,
        }
    }
    Ok(())
}

fn not_counted(step: u64, last: Option<u64>, cause: Error) -> Error {
    let last = last.map_or("None counts yet.".to_owned(), |last| {
        format!("The last one of this rank that counts is step {last}; it stays.")
    });
    let message = format!(
        "The checkpoint of step {step} does not count: {cause} {last} The next save takes its \
         place, and `close` tries once more."
    );
    Error::new(cause.kind(), message).caused_by(cause)
}

#[cfg(test)]
#[path = "committer_tests.rs"]
mod tests;
