//! The thread that copies this rank's parts to a remote place, one at a time, and deletes there
//! what is not to be kept any more. Nobody waits for it but who closes.
//!
//! All ranks agree in a save whether its checkpoint is copied, which they do only when none of them
//! is still at an earlier one: the remote place has steps that all ranks have.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use unspool::{Error, ErrorKind, Spool, Wait};

use crate::agreement::Part;
use crate::folder::Folder;
use crate::shelf::{Shelf, on_its_own};
use crate::waiting::wait_until;

/// The copier of one Checkpointer.
#[derive(Debug)]
pub(crate) struct Copier {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    shelf: Shelf,
    folder: Folder,
    spool: Arc<Spool>,
    timeout: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Parts that count there, oldest first.
    counted: Vec<Part>,
    next: Next,
    /// What the thread copies at this moment.
    copying: Option<Part>,
    removals: VecDeque<Removal>,
    /// The first removal failed, and is tried again with the next copy.
    stuck: bool,
    /// The thread is at a removal.
    removing: bool,
    /// Checkpoints that were due there, while an earlier one was on its way.
    skipped: u64,
    /// What went wrong and was not told yet.
    failure: Option<Error>,
    phase: Phase,
}

/// The part that is copied next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    None,
    /// This step, when it counts here.
    Promised(u64),
    Waiting(Part),
}

/// What is to be deleted in the remote place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Removal {
    Below(u64),
    /// What came after a step that was restored; all, when there is none.
    After(Option<u64>),
}

impl Removal {
    fn wants(self, step: u64) -> bool {
        match self {
            Removal::Below(below) => step < below,
            Removal::After(last) => last.is_none_or(|last| step > last),
        }
    }
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
    Copy(Part),
    Remove(Removal),
    End,
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

impl Copier {
    /// Starts the thread. `counted`: the parts that are there already.
    pub(crate) fn start(
        shelf: Shelf,
        folder: Folder,
        spool: Arc<Spool>,
        counted: Vec<Part>,
        timeout: Duration,
    ) -> Result<Copier, Error> {
        let state = State {
            counted,
            next: Next::None,
            copying: None,
            removals: VecDeque::new(),
            stuck: false,
            removing: false,
            skipped: 0,
            failure: None,
            phase: Phase::Open,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let shared = Arc::new(Shared { shelf, folder, spool, timeout, state, changed });
        let own = Arc::clone(&shared);
        let started = Builder::new().name("unspool-remote".into()).spawn(move || own.work());
        started.map_err(|cause| {
            let message = format!("A thread cannot be started: {cause}.");
            Error::new(ErrorKind::Io, message).caused_by(cause)
        })?;
        Ok(Copier { shared })
    }

    pub(crate) fn shelf(&self) -> &Shelf {
        &self.shared.shelf
    }

    /// The parts that count there, oldest first.
    pub(crate) fn counted(&self) -> Vec<Part> {
        self.shared.lock().counted.clone()
    }

    pub(crate) fn copies(&self) -> Copies {
        let state = self.shared.lock();
        Copies {
            place: self.shared.shelf.place(),
            steps: state.counted.iter().map(|part| part.step).collect(),
            copying: state.copying.map(|part| part.step),
            skipped: state.skipped,
        }
    }

    /// What went wrong and was not told yet.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.shared.lock().failure.take()
    }

    /// Whether another part could be copied now.
    pub(crate) fn is_free(&self) -> bool {
        let state = self.shared.lock();
        state.next == Next::None && state.copying.is_none()
    }

    /// A checkpoint was due there, and is not copied.
    pub(crate) fn skip(&self) {
        self.shared.lock().skipped += 1;
    }

    /// The part of `step` is copied when it counts here.
    pub(crate) fn promise(&self, step: u64) {
        self.shared.lock().next = Next::Promised(step);
    }

    /// The part of `step` does not count here, and is not copied.
    pub(crate) fn withdraw(&self, step: u64) {
        let mut state = self.shared.lock();
        if state.next == Next::Promised(step) {
            state.next = Next::None;
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Copies this part, which counts here, unless it is there; in place of one that waits.
    pub(crate) fn copy(&self, part: Part) {
        let mut state = self.shared.lock();
        let known = state.counted.contains(&part) || state.copying == Some(part);
        state.next = if known { Next::None } else { Next::Waiting(part) };
        state.stuck = false;
        drop(state);
        self.shared.changed.notify_all();
    }

    /// The steps whose frames are needed here, as they are being copied.
    pub(crate) fn needs(&self) -> Vec<u64> {
        let state = self.shared.lock();
        let next = match state.next {
            Next::None => None,
            Next::Promised(step) | Next::Waiting(Part { step, .. }) => Some(step),
        };
        state.copying.map(|part| part.step).into_iter().chain(next).collect()
    }

    /// Has everything below `step` deleted there.
    pub(crate) fn remove_below(&self, step: u64) {
        let any = self.shared.lock().counted.iter().any(|part| part.step < step);
        if any {
            self.remove(Removal::Below(step));
        }
    }

    /// Has everything after `last` deleted there; it does not count from now on.
    pub(crate) fn remove_after(&self, last: Option<u64>) {
        self.remove(Removal::After(last));
    }

    fn remove(&self, removal: Removal) {
        let mut state = self.shared.lock();
        state.counted.retain(|part| !removal.wants(part.step));
        if !state.removals.contains(&removal) {
            state.removals.push_back(removal);
        }
        if matches!(state.next, Next::Waiting(part) if removal.wants(part.step)) {
            state.next = Next::None;
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Waits until there is nothing left to do.
    pub(crate) fn settle(&self, wait: &Wait<'_>) -> Result<(), Error> {
        let done = |state: &State| {
            let idle = state.next == Next::None && state.copying.is_none() && !state.removing;
            idle && (state.removals.is_empty() || state.stuck)
        };
        let late = |state: &State, seconds: f64| {
            let what = state.copying.map_or("what is to be deleted there".into(), |part| {
                format!(
                    "step {}, which counts in {}",
                    part.step,
                    self.shared.folder.path().display()
                )
            });
            format!(
                "After {seconds:.1} s {} still waits for {what}. Another opening goes on with it. \
                 Is the place as fast as it should be?",
                self.shared.shelf.place(),
            )
        };
        self.wait_until(wait, "a copy to arrive", done, late)
    }

    /// Ends the thread, and what it does.
    pub(crate) fn stop(&self) {
        self.shared.shelf.stop();
        let mut state = self.shared.lock();
        state.next = Next::None;
        state.removals.clear();
        if state.phase == Phase::Open {
            state.phase = Phase::Ending;
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Ends the thread, as [`stop`](Self::stop) does, and waits for that.
    pub(crate) fn end(&self, wait: &Wait<'_>) -> Result<(), Error> {
        self.stop();
        let late = |_: &State, seconds: f64| {
            format!("After {seconds:.1} s {} does not answer yet.", self.shared.shelf.place())
        };
        self.wait_until(wait, "the last copy", |state| state.phase == Phase::Ended, late)
    }

    fn wait_until(
        &self,
        wait: &Wait<'_>,
        what: &str,
        done: impl Fn(&State) -> bool,
        late: impl Fn(&State, f64) -> String,
    ) -> Result<(), Error> {
        let place = (&self.shared.state, &self.shared.changed);
        wait_until(place, (wait, self.shared.timeout), what, done, late)
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        loop {
            match self.next() {
                Work::Copy(part) => self.copy(part),
                Work::Remove(removal) => self.remove(removal),
                Work::End => break,
            }
        }
        self.lock().phase = Phase::Ended;
        self.changed.notify_all();
    }

    fn next(&self) -> Work {
        let mut state = self.lock();
        loop {
            if !state.stuck
                && let Some(&removal) = state.removals.front()
            {
                state.removing = true;
                return Work::Remove(removal);
            }
            if let Next::Waiting(part) = state.next
                && state.removals.is_empty()
            {
                (state.next, state.copying) = (Next::None, Some(part));
                return Work::Copy(part);
            }
            if state.phase == Phase::Ending {
                return Work::End;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn copy(&self, part: Part) {
        let replaces = self.lock().counted.iter().any(|one| one.step == part.step);
        let put = self.put(part, replaces);
        let mut state = self.lock();
        state.copying = None;
        if replaces {
            state.counted.retain(|one| one.step != part.step);
        }
        // One that is unwanted meanwhile is removed next.
        let unwanted = state.removals.iter().any(|removal| removal.wants(part.step));
        match put {
            _ if unwanted => {}
            Ok(()) => {
                // What did not get there before is not missed any more.
                state.failure = None;
                state.counted.push(part);
                state.counted.sort_unstable();
            }
            Err(cause) => {
                state.failure = Some(self.not_copied(part, cause));
            }
        }
        drop(state);
        self.changed.notify_all();
    }

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

    fn put(&self, part: Part, replaces: bool) -> Result<(), Error> {
        let (manifest, frame) = on_its_own(&self.folder, &self.spool, part)?;
        self.shelf.put(&manifest, &*frame, replaces)
    }

    fn remove(&self, removal: Removal) {
        let removed = self.shelf.remove(|step| removal.wants(step)).map(drop);
        let mut state = self.lock();
        state.removing = false;
        match removed {
            Ok(()) => drop(state.removals.pop_front()),
            Err(cause) => {
                // Nothing comes there before what is to go: it is tried with the next copy.
                state.stuck = true;
                if let Next::Waiting(part) = state.next {
                    state.next = Next::None;
                    state.failure = Some(self.not_copied(part, cause));
                } else {
                    let place = self.shelf.place();
                    let message = format!("Old checkpoints in {place} are not deleted: {cause}");
                    let error = Error::new(cause.kind(), message).caused_by(cause);
                    state.failure.get_or_insert(error);
                }
            }
        }
        drop(state);
        self.changed.notify_all();
    }
}
