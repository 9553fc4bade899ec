//! The thread that copies this rank's parts to a remote place, one at a time, and deletes there
//! what is not to be kept any more. Nobody waits for it but who closes.
//!
//! All ranks agree in a save whether its checkpoint is copied, which they do only when none of them
//! is still at an earlier one: the remote place has steps that all ranks have.

use std::collections::VecDeque;
use std::sync::Arc;

use unspool::{Error, Spool, Wait};

use crate::agreement::Said;
use crate::folder::Folder;
use crate::frames::on_its_own;
use crate::interval::Every;
use crate::manifest::Part;
use crate::shelf::Shelf;
use crate::worker::{Book, Jobs, Worker};

/// The copier of one Checkpointer.
pub(crate) type Copier = Worker<Copying>;

/// From where parts are copied, where to, and which.
pub(crate) struct Copying {
    pub(crate) shelf: Shelf,
    pub(crate) every: Every,
    pub(crate) folder: Folder,
    pub(crate) data: Arc<Spool>,
}

#[derive(Default)]
pub(crate) struct Progress {
    /// Parts that count there, oldest first.
    counted: Vec<Part>,
    /// The step and the time of the last checkpoint that was to be copied.
    last: (u64, f64),
    next: Next,
    removals: VecDeque<Removal>,
    /// The first removal failed, and is tried again with the next copy.
    stuck: bool,
    /// Checkpoints that were due there, while an earlier one was on its way.
    skipped: u64,
}

impl Progress {
    /// That of a place which has these parts, of a run that has come to `step`.
    pub(crate) fn of(counted: Vec<Part>, step: u64) -> Progress {
        Progress { counted, last: (step, 0.0), ..Progress::default() }
    }
}

/// The part that is copied next.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Next {
    #[default]
    None,
    /// This step, when it counts here.
    Promised(u64),
    Waiting(Part),
}

/// What is to be deleted in the remote place.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Removal {
    /// What is below this step, but for these.
    Below(u64, Vec<u64>),
    /// What came after a step that was restored; all, when there is none.
    After(Option<u64>),
}

impl Removal {
    fn wants(&self, step: u64) -> bool {
        match self {
            Removal::Below(below, stays) => step < *below && !stays.contains(&step),
            Removal::After(last) => last.is_none_or(|last| step > last),
        }
    }
}

/// What the thread does next.
#[derive(Clone)]
pub(crate) enum Work {
    Copy(Part),
    Remove(Removal),
}

/// How far the copies in a remote place are, on one rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copies {
    /// The place.
    pub place: String,
    /// The steps that count there, as far as this rank goes.
    pub steps: Vec<u64>,
    /// The step that is on its way.
    pub copying: Option<u64>,
    /// The checkpoints that were due there while an earlier one was on its way.
    pub skipped: u64,
}

impl Worker<Copying> {
    /// The parts that count there, oldest first.
    pub(crate) fn counted(&self) -> Vec<Part> {
        self.book().own.counted.clone()
    }

    pub(crate) fn copies(&self) -> Copies {
        let book = self.book();
        Copies {
            place: self.jobs().shelf.place(),
            steps: book.own.counted.iter().map(|part| part.step).collect(),
            copying: copying(&book).map(|part| part.step),
            skipped: book.own.skipped,
        }
    }

    /// What this rank says of it before a save of `step` at time `now`.
    pub(crate) fn say(&self, said: &mut Said, step: u64, now: f64) {
        let book = self.book();
        said.due = self.jobs().every.is_due_after(book.own.last, step, now);
        said.free = book.own.next == Next::None && copying(&book).is_none();
    }

    /// A checkpoint was due there, and is not copied.
    pub(crate) fn skip(&self) {
        self.book().own.skipped += 1;
    }

    /// The part of `step`, saved at time `now`, is copied when it counts here.
    pub(crate) fn promise(&self, step: u64, now: f64) {
        let own = &mut self.book().own;
        (own.last, own.next) = ((step, now), Next::Promised(step));
    }

    /// The part of `step` does not count here, and is not copied.
    pub(crate) fn withdraw(&self, step: u64) {
        self.change(|Book { own, .. }| {
            if own.next == Next::Promised(step) {
                own.next = Next::None;
            }
        });
    }

    /// Copies this part, which counts here, unless it is there; in place of one that waits.
    pub(crate) fn copy(&self, part: Part) {
        self.change(|book| {
            let known = book.own.counted.contains(&part) || copying(book) == Some(part);
            book.own.next = if known { Next::None } else { Next::Waiting(part) };
            book.own.stuck = false;
        });
    }

    /// The steps whose frames are needed here, as they are being copied.
    pub(crate) fn needs(&self) -> Vec<u64> {
        let book = self.book();
        let next = match book.own.next {
            Next::None => None,
            Next::Promised(step) | Next::Waiting(Part { step, .. }) => Some(step),
        };
        copying(&book).map(|part| part.step).into_iter().chain(next).collect()
    }

    /// Has everything below `step` deleted there, but for what stays.
    pub(crate) fn remove_below(&self, step: u64, stays: Vec<u64>) {
        let removal = Removal::Below(step, stays);
        let any = self.book().own.counted.iter().any(|part| removal.wants(part.step));
        if any {
            self.remove(removal);
        }
    }

    /// Has everything of a kind deleted there; it does not count from now on.
    pub(crate) fn remove(&self, removal: Removal) {
        self.change(|Book { own, .. }| {
            own.counted.retain(|part| !removal.wants(part.step));
            if matches!(own.next, Next::Waiting(part) if removal.wants(part.step)) {
                own.next = Next::None;
            }
            if !own.removals.contains(&removal) {
                own.removals.push_back(removal);
            }
        });
    }

    /// Waits until there is nothing left to do.
    pub(crate) fn settle(&self, wait: &Wait<'_>) -> Result<(), Error> {
        self.wait_until(wait, "a copy to arrive", |Book { own, at, .. }| {
            let idle = own.next == Next::None && at.is_none();
            idle && (own.removals.is_empty() || own.stuck)
        })
    }
}

/// What the thread copies at this moment.
fn copying(book: &Book<Copying>) -> Option<Part> {
    match book.at {
        Some(Work::Copy(part)) => Some(part),
        _ => None,
    }
}

impl Jobs for Copying {
    type Own = Progress;
    type Job = Work;

    const THREAD: &'static str = "unspool-remote";
    const LAST: &'static str = "the last copy";

    fn about(work: &Work) -> String {
        match work {
            Work::Copy(part) => format!("the copy of step {}", part.step),
            Work::Remove(_) => "old copies".to_owned(),
        }
    }

    fn next(&self, own: &mut Progress) -> Option<Work> {
        if let Some(removal) = own.removals.front() {
            return (!own.stuck).then(|| Work::Remove(removal.clone()));
        }
        let Next::Waiting(part) = own.next else { return None };
        own.next = Next::None;
        Some(Work::Copy(part))
    }

    fn run(&self, work: &mut Work, worker: &Copier) -> Result<(), Error> {
        match work {
            &mut Work::Copy(part) => {
                let replaces = worker.counted().iter().any(|one| one.step == part.step);
                let (manifest, frame) = on_its_own(&self.folder, &self.data, part)?;
                self.shelf.put_part(&manifest, &*frame, replaces)
            }
            Work::Remove(removal) => self.shelf.remove(|step| removal.wants(step)).map(drop),
        }
    }

    fn done(&self, work: Work, outcome: Result<(), Error>, worker: &Copier) {
        let Book { own, at, failure, .. } = &mut *worker.book();
        *at = None;
        match (work, outcome) {
            (Work::Copy(part), outcome) => {
                own.counted.retain(|one| one.step != part.step);
                // One that is unwanted meanwhile is removed next.
                let unwanted = own.removals.iter().any(|removal| removal.wants(part.step));
                match outcome {
                    _ if unwanted => {}
                    Ok(()) => {
                        // What did not get there before is not missed any more.
                        *failure = None;
                        own.counted.push(part);
                        own.counted.sort_unstable();
                    }
                    Err(cause) => *failure = Some(self.not_copied(part, cause)),
                }
            }
            (Work::Remove(_), Ok(())) => drop(own.removals.pop_front()),
            (Work::Remove(_), Err(cause)) => {
                // Nothing comes there before what is to go: it is tried with the next copy.
                own.stuck = true;
                if let Next::Waiting(part) = own.next {
                    own.next = Next::None;
                    *failure = Some(self.not_copied(part, cause));
                } else {
                    let place = self.shelf.place();
                    let message = format!("Old checkpoints in {place} are not deleted: {cause}");
                    let error = Error::new(cause.kind(), message).caused_by(cause);
                    failure.get_or_insert(error);
                }
            }
        }
    }

    fn stop(&self) {
        self.shelf.stop();
    }

    fn forget(&self, own: &mut Progress) {
        own.next = Next::None;
        own.removals.clear();
    }

    fn late(&self, what: &str, book: &Book<Copying>, seconds: f64) -> String {
        let place = self.shelf.place();
        if what == Self::LAST {
            return format!("After {seconds:.1} s {place} does not answer yet.");
        }
        let what = copying(book).map_or("what is to be deleted there".into(), |part| {
            format!("step {}, which counts in {}", part.step, self.folder.path().display())
        });
        format!(
            "After {seconds:.1} s {place} still waits for {what}. Another opening goes on with it. \
             Is the place as fast as it should be?"
        )
    }
}

impl Copying {
    fn not_copied(&self, part: Part, cause: Error) -> Error {
        let message = format!(
            "Step {} counts in {}, and its copy did not reach {}: {cause} A later checkpoint takes \
             its place, or the next opening tries again.",
            part.step,
            self.folder.path().display(),
            self.shelf.place()
        );
        Error::new(cause.kind(), message).caused_by(cause)
    }
}
