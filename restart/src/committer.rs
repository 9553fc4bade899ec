//! The thread that makes checkpoints count: it waits until the frame of a step is durable, writes
//! the manifest, and deletes what is not to be kept any more.
//!
//! A step that could not be made durable stays where it is. It is tried again when the Checkpointer
//! is closed, and goes when a later step takes its place.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use unspool::{Error, Spool, Wait};

use crate::copier::{Copier, Removal};
use crate::folder::Folder;
use crate::frames::{discard, flush};
use crate::interval::Costs;
use crate::manifest::{Manifest, Part};
use crate::parts::Parts;
use crate::stage::Stage;
use crate::worker::{Book, Jobs, Worker};

/// The most saves that wait to be made durable; their arrays take room in the tiers of the spool,
/// which is what limits them as a rule.
const MOST_WAITING: usize = 16;

/// A save whose arrays are in the spool.
#[derive(Clone, Debug)]
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
pub(crate) type Committer = Worker<Places>;

/// Where the parts of a rank are.
pub(crate) struct Places {
    /// The durable spool of the folder.
    pub(crate) data: Arc<Spool>,
    /// What the application saves into where that is another one.
    pub(crate) stage: Option<Stage>,
    pub(crate) folder: Folder,
    pub(crate) copier: Option<Arc<Copier>>,
}

#[derive(Default)]
pub(crate) struct Saves {
    /// Parts that are here.
    pub(crate) parts: Parts,
    /// What checkpoints have cost.
    pub(crate) costs: Option<Costs>,
    waiting: VecDeque<Job>,
    /// What is below this step is to be deleted, but for these.
    remove_below: Option<(u64, Vec<u64>)>,
    /// The step that could not be made durable, for another try.
    failed: Option<Job>,
    /// What came after the step that the application went back to: it goes when a step counts.
    aside: Option<Aside>,
}

/// What came after a step that the application went back to.
#[derive(Clone, Debug)]
pub(crate) struct Aside {
    /// That step.
    pub(crate) last: u64,
    /// The parts here.
    parts: Vec<Part>,
}

impl Saves {
    /// Those of a folder with these parts.
    pub(crate) fn of(parts: Parts) -> Saves {
        Saves { parts, ..Saves::default() }
    }

    /// Sets aside what comes after `last` of what counts on `all` ranks, beside what is: the steps
    /// of that.
    pub(crate) fn set_aside(&mut self, last: u64, all: &[Part]) -> BTreeSet<u64> {
        let before = self.aside.take().map_or(Vec::new(), |aside| aside.parts);
        let mut parts = self.parts.counted();
        parts.retain(|part| part.step > last && (all.contains(part) || before.contains(part)));
        let steps = parts.iter().map(|part| part.step).collect();
        self.aside = Some(Aside { last, parts });
        steps
    }

    /// What is set aside.
    pub(crate) fn aside(&self) -> Option<&Aside> {
        self.aside.as_ref()
    }

    /// The parts that count, oldest first.
    fn counted(&self) -> Vec<Part> {
        let mut counted = self.parts.counted();
        let aside = self.aside.as_ref().map_or(&[][..], |aside| &aside.parts);
        counted.retain(|part| !aside.contains(part));
        counted
    }

    /// Whether a step is set aside; it may be going at this moment.
    pub(crate) fn is_aside(&self, step: u64) -> bool {
        self.aside.as_ref().is_some_and(|aside| aside.parts.iter().any(|part| part.step == step))
    }

    /// Forgets a part that is set aside: whether it was.
    pub(crate) fn make_way(&mut self, step: u64) -> bool {
        let Some(aside) = &mut self.aside else { return false };
        let before = aside.parts.len();
        aside.parts.retain(|part| part.step != step);
        let was = aside.parts.len() < before;
        if was {
            self.parts.retain(|one| one != step);
        }
        was
    }
}

/// What the thread does next.
#[derive(Clone)]
pub(crate) enum Work {
    /// A save, and the step that could not be made durable before it.
    Commit(Box<Job>, Option<u64>),
    Remove(u64, Vec<u64>),
}

impl Worker<Places> {
    /// The parts that count here, oldest first.
    pub(crate) fn counted(&self) -> Vec<Part> {
        self.book().own.counted()
    }

    /// Waits until another save can be taken.
    pub(crate) fn wait_for_room(&self, wait: &Wait<'_>) -> Result<(), Error> {
        let stage = &self.jobs().stage;
        let slots = stage.as_ref().map_or(MOST_WAITING, |stage| stage.slots());
        self.wait_until(wait, "saves to become durable", |book| {
            let at_work = usize::from(book.at.is_some() && stage.is_some());
            book.own.waiting.len() + at_work < slots.min(MOST_WAITING)
        })?;
        // What could not be made durable gives way where the stage has no room for it and another.
        let Some(stage) = stage else { return Ok(()) };
        let mut book = self.book();
        let crowded = on_their_way(&book) + 1 >= slots;
        let given_up = book.own.failed.take_if(|_| crowded);
        drop(book);
        given_up.iter().for_each(|job| stage.forget(job.manifest.step));
        Ok(())
    }

    /// Takes a save.
    pub(crate) fn add(&self, job: Job) {
        self.change(|book| book.own.waiting.push_back(job));
    }

    /// Has everything below `step` deleted, but for the steps of `needed`.
    pub(crate) fn remove_below(&self, step: u64, needed: Vec<u64>) {
        self.change(|Book { own, .. }| {
            let goes = own.parts.goes(step, &needed);
            let any = own.parts.counted().iter().any(|part| goes(part.step));
            drop(goes);
            if any {
                own.remove_below = Some((step, needed));
            }
        });
    }

    /// Tries again what could not be made durable, unless a later save waits to take its place.
    pub(crate) fn retry(&self) {
        self.change(|Book { own, .. }| {
            if own.waiting.is_empty() {
                own.waiting.extend(own.failed.take());
            }
        });
    }

    /// Waits until there is nothing left to do.
    pub(crate) fn settle(&self, wait: &Wait<'_>) -> Result<(), Error> {
        self.wait_until(wait, "checkpoints to become durable", |book| {
            on_their_way(book) == 0 && book.own.remove_below.is_none()
        })
    }
}

fn on_their_way(book: &Book<Places>) -> usize {
    book.own.waiting.len() + usize::from(book.at.is_some())
}

impl Jobs for Places {
    type Own = Saves;
    type Job = Work;

    const THREAD: &'static str = "unspool-commit";
    const LAST: &'static str = "the last checkpoint";

    fn about(work: &Work) -> String {
        match work {
            Work::Commit(job, _) => format!("step {}", job.manifest.step),
            Work::Remove(below, _) => format!("what is before step {below}"),
        }
    }

    fn next(&self, own: &mut Saves) -> Option<Work> {
        let Some(job) = own.waiting.pop_front() else {
            return own.remove_below.take().map(|(below, needed)| Work::Remove(below, needed));
        };
        let old = own.failed.take_if(|old| old.manifest.step != job.manifest.step);
        Some(Work::Commit(Box::new(job), old.map(|old| old.manifest.step)))
    }

    fn run(&self, work: &mut Work, worker: &Committer) -> Result<(), Error> {
        match work {
            Work::Commit(job, superseded) => {
                superseded.iter().for_each(|step| self.withdraw(*step));
                self.make_durable(job, worker)
            }
            Work::Remove(below, needed) => self.remove(*below, needed, worker),
        }
    }

    fn done(&self, work: Work, outcome: Result<(), Error>, worker: &Committer) {
        let mut book = worker.book();
        match (work, outcome) {
            (Work::Commit(job, _), Ok(())) => {
                let part = job.manifest.part();
                book.own.parts.add(&job.manifest);
                let commit = job.begun.elapsed().as_secs_f64();
                let new = Costs { blocked: job.blocked, commit };
                book.own.costs = Some(Costs::and(book.own.costs, new));
                drop(book);
                self.copier.iter().filter(|_| job.copy).for_each(|c| c.copy(part));
            }
            (Work::Commit(job, _), Err(cause)) => {
                let (step, counted) = (job.manifest.step, book.own.counted());
                book.failure = Some(not_counted(step, counted.last(), cause));
                book.own.failed = Some(*job);
                drop(book);
                self.copier.iter().for_each(|copier| copier.withdraw(step));
            }
            (Work::Remove(below, _), Err(cause)) => {
                let message = format!("Checkpoints before step {below} are not deleted: {cause}");
                let error = Error::new(cause.kind(), message).caused_by(cause);
                book.failure.get_or_insert(error);
            }
            (Work::Remove(..), Ok(())) => {}
        }
    }

    fn forget(&self, own: &mut Saves) {
        own.waiting.clear();
    }

    fn late(&self, what: &str, book: &Book<Places>, seconds: f64) -> String {
        format!(
            "After {seconds:.1} s this rank still waits for {what}: {} of them are not. Is the \
             file system at {} there, and as fast as it should be?",
            on_their_way(book),
            self.folder.path().display(),
        )
    }
}

impl Places {
    /// A step that could not be made durable does not count; where that fails, deleting comes later
    /// again.
    fn withdraw(&self, step: u64) {
        let _ = self.folder.remove(|one| one == step);
        let _ = discard(&self.data, |one| one == step);
        self.stage.iter().for_each(|stage| stage.forget(step));
    }

    fn make_durable(&self, job: &mut Job, worker: &Committer) -> Result<(), Error> {
        let step = job.manifest.step;
        let interrupted = || worker.is_given_up();
        let timeout = Some(worker.timeout());
        let wait = Wait { timeout, interrupted: &interrupted, ..Wait::default() };
        if let Some(stage) = &self.stage {
            job.manifest.increment = stage.take(&self.data, (step, job.begun), &wait)?;
        }
        flush(&self.data, step, &wait)?;
        self.clear_aside(worker)?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        job.manifest.written = now.map_or(0, |since| since.as_secs());
        job.manifest.milliseconds = job.begun.elapsed().as_millis() as u64;
        self.folder.write(&job.manifest)?;
        self.stage.iter().for_each(|stage| stage.count(step));
        Ok(())
    }

    /// Deletes what was set aside, before the next step counts: what goes and what replaces it
    /// never count together.
    fn clear_aside(&self, worker: &Committer) -> Result<(), Error> {
        let Some(Aside { last, parts }) = worker.book().own.aside.clone() else { return Ok(()) };
        let goes: BTreeSet<u64> = parts.iter().map(|part| part.step).collect();
        self.folder.remove(|one| goes.contains(&one))?;
        worker.book().own.parts.retain(|one| !goes.contains(&one));
        self.copier.iter().for_each(|copier| copier.remove(Removal::After(Some(last))));
        discard(&self.data, |one| goes.contains(&one))?;
        worker.book().own.aside = None;
        Ok(())
    }

    fn remove(&self, below: u64, needed: &[u64], worker: &Committer) -> Result<(), Error> {
        let goes = worker.book().own.parts.goes(below, needed);
        self.folder.remove(&goes)?;
        worker.book().own.parts.retain(|step| !goes(step));
        discard(&self.data, &goes)
    }
}

fn not_counted(step: u64, last: Option<&Part>, cause: Error) -> Error {
    let last = last.map_or("None counts yet.".to_owned(), |last| {
        format!("The last one of this rank that counts is step {}; it stays.", last.step)
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
