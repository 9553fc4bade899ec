//! The end of a spool: bounded, once, whoever calls. A durable spool that cannot write everything
//! stays open for another try, unless it is told to give up what is left.

use std::time::Duration;

use unspool_core::{CheckpointId, Nanos};
use unspool_tiers::AnyTier;
use unspool_transfer::Shutdown;
use unspool_transfer::sync::{thread, wait_timeout};

use crate::durability;
use crate::error::{Error, ErrorKind};
use crate::runtime::completion::take_deferred;
use crate::runtime::deferred::{self, named, names};
use crate::runtime::rates;
use crate::runtime::reasons;
use crate::runtime::shared::{Shared, check_intact};
use crate::runtime::state::{Phase, State};
use crate::runtime::waiting::{POLL, Until};
use crate::time::{duration, nanos};
use crate::wait::Wait;

/// Threads are given so long to end, also when no time is left.
const LEAST: Duration = Duration::from_millis(100);

/// How long a close waits for the memory of its arenas, so that what opens next finds it free: it
/// comes back as soon as the GPU is done with what was enqueued, which may be long.
const RETURNING: Duration = Duration::from_millis(100);

/// The time between two looks at transfers that end soon.
const NAP: Duration = Duration::from_millis(1);

/// What becomes of what a durable spool cannot write when it is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unflushed {
    /// It is kept: the close fails, and the spool stays open for another try.
    Keep,
    /// It is given up: the spool is closed, and the error names what was not durable.
    Discard,
}

/// Closes `shared`; when it is closed already, nothing is done.
pub(crate) fn close(shared: &Shared, unflushed: Unflushed, wait: &Wait<'_>) -> Result<(), Error> {
    let timeout = wait.timeout.unwrap_or(shared.settings.timeout);
    let end = End { shared, wait, timeout, deadline: shared.clock.now().plus(nanos(timeout)) };
    let Some(closing) = end.begin()? else { return Ok(()) };
    let intact = check_intact(&shared.state());
    let keeps = is_durable(shared) && intact.is_ok();
    let written = if keeps { end.write_all() } else { end.drain() };
    match written {
        Err(error) if keeps && unflushed == Unflushed::Keep => Err(still_open(shared, error)),
        written => intact.and(end.finish(closing, written)),
    }
}

/// One close: how long it may take, and who may end it early.
struct End<'a> {
    shared: &'a Shared,
    wait: &'a Wait<'a>,
    timeout: Duration,
    deadline: Nanos,
}

/// New calls are refused while it lives. Dropping it opens the spool again, also after a panic of
/// the caller's code.
struct Closing<'a>(&'a Shared);

impl Closing<'_> {
    /// From now on nothing is decided any more.
    fn close(self, state: &mut State) {
        state.phase = Phase::Closed;
        state.driver.end_record();
        self.0.closing_ended.notify_all();
        std::mem::forget(self);
    }
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.state().phase = Phase::Open;
        self.0.closing_ended.notify_all();
    }
}

impl<'a> End<'a> {
    /// Refuses calls from now on, after a close of another thread has ended; `None` when there is
    /// nothing left to do.
    fn begin(&self) -> Result<Option<Closing<'a>>, Error> {
        let own = thread::current().id();
        let mut state = self.shared.state();
        loop {
            match state.phase {
                Phase::Closed => return Ok(None),
                // A signal handler within that call, which goes on when this one returns.
                Phase::Closing { by } if by == own => return Ok(None),
                Phase::Closing { .. } => {
                    drop(wait_timeout(&self.shared.closing_ended, state, self.nap()));
                    let what = "another call that closes the spool";
                    if (self.wait.interrupted)() {
                        return Err(reasons::interrupted(what));
                    }
                    state = self.shared.state();
                    if self.left().is_zero() {
                        return Err(reasons::timed_out(&state, what, self.timeout));
                    }
                }
                Phase::Open => {
                    state.phase = Phase::Closing { by: own };
                    state.wake_all();
                    return Ok(Some(Closing(self.shared)));
                }
            }
        }
    }

    fn left(&self) -> Duration {
        duration(self.deadline.since(self.shared.clock.now()))
    }

    /// A part of what is left, after which somebody may ask to stop.
    fn nap(&self) -> Duration {
        self.shared.clock.nap(nanos(self.left())).min(POLL)
    }

    /// Waits for what a GPU still encodes.
    fn drain(&self) -> Result<(), Error> {
        loop {
            let pending = self.shared.drain(self.left().min(POLL));
            if pending.is_empty() {
                return Ok(());
            }
            if (self.wait.interrupted)() {
                return Err(reasons::interrupted("the encoders of a GPU"));
            }
            if self.left().is_zero() {
                return Err(deferred::late(&pending, self.timeout));
            }
        }
    }

    /// Makes everything durable, while the core still listens.
    fn write_all(&self) -> Result<(), Error> {
        self.drain()?;
        let wait = Wait { timeout: Some(self.left()), ..*self.wait };
        durability::write_all(self.shared, self.shared.state(), &wait, Until::Answered)?;
        self.end_discards()
    }

    /// Waits for the transfers of checkpoints that were discarded meanwhile: only after them does
    /// the core have their copies deleted, and what is not deleted would come back.
    fn end_discards(&self) -> Result<(), Error> {
        loop {
            let state = self.shared.state();
            // A checkpoint that is discarded has left the frame index.
            if state.moving.values().all(|(id, _)| state.frames.frame(*id).is_some()) {
                return Ok(());
            }
            drop(wait_timeout(&self.shared.closing_ended, state, self.nap().min(NAP)));
            let what = "transfers of discarded checkpoints";
            if (self.wait.interrupted)() {
                return Err(reasons::interrupted(what));
            }
            if self.left().is_zero() {
                return Err(reasons::timed_out(&self.shared.state(), what, self.timeout));
            }
        }
    }

    /// Closes the spool; `written` says whether all that had to be waited for is done.
    fn finish(&self, closing: Closing<'_>, written: Result<(), Error>) -> Result<(), Error> {
        let shared = self.shared;
        let given_up = shared.end_completions(if written.is_ok() { self.left() } else { LEAST });
        let mut state = shared.state();
        closing.close(&mut state);
        let mut pending = durability::not_durable(shared, &state);
        pending.retain(|(version, _)| !given_up.contains(version));
        let failed = take_deferred(&mut state);
        // Nobody would know of what is still written.
        for transfer in state.moving.keys() {
            let _ = shared.engine.cancel(*transfer);
        }
        drop(state);
        rates::remember(shared);
        let late = (!given_up.is_empty()).then(|| deferred::given_up(&given_up, self.timeout));
        let settled = both(late, failed);
        let settled = settled.and(shared.decoding.check_all(self.left()));
        let stopped = self.stop_workers(written.is_ok());
        let released = self.release(&stopped, &mut pending);
        let kept = lost(written, &pending);
        let ordered = shared.order.as_ref().map_or(Ok(()), |check| check.verdict());
        both(kept.err(), settled.err()).and(stopped).and(released).and(ordered)
    }

    /// Ends the workers. What they still have to do matters to a durable spool only: deletions, or
    /// discarded checkpoints would come back.
    fn stop_workers(&self, may_wait: bool) -> Result<(), Error> {
        let how = if is_durable(self.shared) { Shutdown::Drain } else { Shutdown::Cancel };
        loop {
            let is_last = !may_wait || self.left().is_zero();
            let slice = if is_last { LEAST } else { self.left().min(POLL) };
            let Err(cause) = self.shared.engine.shutdown(how, slice) else { return Ok(()) };
            if is_last || (self.wait.interrupted)() {
                let message =
                    format!("The spool is closed, but not all of its work has ended. {cause}");
                return Err(Error::new(ErrorKind::Timeout, message).caused_by(cause).finally());
            }
        }
    }

    /// Gives back the memory of the arenas and what lies outside this process. Takes what is
    /// durable then out of `pending`.
    fn release(
        &self,
        stopped: &Result<(), Error>,
        pending: &mut Vec<(i64, CheckpointId)>,
    ) -> Result<(), Error> {
        let shared = self.shared;
        // Closing the disk waits for calls under way, which here might last for ever. It then
        // closes by itself, after the last of them.
        if stopped.is_err() || shared.is_syncing() {
            return Ok(());
        }
        for arena in shared.tiers.iter().filter_map(AnyTier::arena) {
            // While the caller still holds a ticket in it, its memory stays until the spool is
            // dropped.
            let _ = arena.retire();
            arena.let_go_within(self.left().max(LEAST));
        }
        unspool_cuda::settle(RETURNING);
        let Some(disk) = &shared.disk else { return Ok(()) };
        let stored = durability::stored(shared);
        disk.close().map_err(|cause| {
            let message = format!("The disk tier cannot be closed: {cause}");
            Error::new(ErrorKind::Io, message).caused_by(cause).finally()
        })?;
        pending.retain(|(_, id)| !stored.contains(id));
        Ok(())
    }
}

/// What is late and what has failed.
fn both(late: Option<Error>, failed: Option<Error>) -> Result<(), Error> {
    match (late, failed) {
        (Some(late), Some(failed)) => Err(late.besides(&failed)),
        (late, failed) => late.or(failed).map_or(Ok(()), Err),
    }
}

fn is_durable(shared: &Shared) -> bool {
    !shared.durable_tiers.is_empty()
}

/// The error of a spool that could not write everything and is open again.
fn still_open(shared: &Shared, error: Error) -> Error {
    let pending = durability::not_durable(shared, &shared.state());
    let versions: Vec<i64> = pending.into_iter().map(|(version, _)| version).collect();
    let pending = match &versions[..] {
        [] => String::new(),
        some => format!(" {} not durable yet.", named(some, "is", "are")),
    };
    let message = format!(
        "{error}{pending} The spool is still open and has all of it: remove the cause and close it \
         again, or give up what is not durable with `discard_unflushed`."
    );
    let kind = error.kind();
    error.saying(message).about(versions.into_iter().map(|version| (version, kind)).collect())
}

/// The error of a spool that was closed with `pending`, because of `written`.
fn lost(written: Result<(), Error>, pending: &[(i64, CheckpointId)]) -> Result<(), Error> {
    let interrupted = |error: &Error| error.kind() == ErrorKind::Interrupted;
    if pending.is_empty() {
        // What was late has ended all the same.
        return written.or_else(|error| if interrupted(&error) { Err(error) } else { Ok(()) });
    }
    let cause = written.err().unwrap_or_else(|| {
        let message = "Other calls saved them while the spool was being closed.";
        Error::new(ErrorKind::Closed, message)
    });
    let versions: Vec<i64> = pending.iter().map(|(version, _)| *version).collect();
    let message = format!(
        "The spool was closed, and has given up what was not durable: {}. {cause}",
        names(&versions).to_lowercase()
    );
    let kind = cause.kind();
    let unsaved = versions.into_iter().map(|version| (version, kind)).collect();
    Err(cause.saying(message).about(unsaved).finally())
}
