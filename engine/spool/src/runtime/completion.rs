//! Saves that a GPU still encodes after their calls have returned: one thread looks at what the
//! encoders write about them, and reports each in the order in which they were handed over.
//!
//! - Nothing here waits with a lock held, and the thread ends with the spool: what the GPU has not
//!   done by then is given up, and its memory is never lent again.
//! - Checkpoints that could not be encoded were not saved. The next call that can fail tells all of
//!   them.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use unspool_core::{Event, Kept, Place, RequestId, Version};
use unspool_cuda::{DeviceError, Poll, Punctual};
use unspool_gpu_codec::{EncodeError, PendingParts};
use unspool_transfer::sync::{Condvar, Mutex, lock, thread, wait_timeout};

use crate::coding::{Encoding, Placed, Predecessor, not_encoded};
use crate::error::{Error, ErrorKind};
use crate::runtime::deferred::{self, Unsaved};
use crate::runtime::memory::has_room_for_thread;
use crate::runtime::shared::Shared;
use crate::runtime::state::{Grant, State};

/// The longest nap while there is nothing to look at.
const IDLE: Duration = Duration::from_millis(100);

/// The shortest and the longest nap between two looks: small checkpoints are encoded in less time
/// than most systems sleep at least.
const NAP: (Duration, Duration) = (Duration::from_micros(5), Duration::from_micros(500));

/// After so long without a result the driver is asked whether the device has failed.
const ASK: Duration = Duration::from_millis(100);

/// The most saves that are reported under one lock.
const AT_ONCE: usize = 16;

/// The result of an encoder on a GPU: where the checkpoint lies, or why there is none.
pub(crate) type EncodeOutcome = Result<Placed, EncodeError>;

/// A save whose call has returned while a GPU encodes it.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) encoding: Encoding,
    pub(crate) grant: Grant,
    /// Its ticket was dropped: nothing is saved, and only its memory is waited for.
    pub(crate) is_abandoned: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Completions<S = InFlight> {
    queue: Mutex<Queue<S>>,
    changed: Condvar,
}

/// A save in the queue.
pub(crate) trait Queued {
    fn request(&self) -> RequestId;
    /// `None` for one that was given up by its caller.
    fn version(&self) -> Option<i64>;
}

impl Queued for InFlight {
    fn request(&self) -> RequestId {
        self.grant.request
    }

    fn version(&self) -> Option<i64> {
        (!self.is_abandoned).then_some(self.grant.version())
    }
}

#[derive(Debug)]
struct Queue<S> {
    /// In the order in which they are reported.
    saves: VecDeque<S>,
    thread: Option<thread::JoinHandle<()>>,
    /// Nothing is taken any more, and what is left is given up.
    is_over: bool,
    /// The thread is about to return.
    has_ended: bool,
}

impl<S> Default for Completions<S> {
    fn default() -> Self {
        let (saves, thread) = (VecDeque::new(), None);
        let queue = Queue { saves, thread, is_over: false, has_ended: false };
        Completions { queue: Mutex::new(queue), changed: Condvar::new() }
    }
}

impl<S: Queued> Completions<S> {
    /// Waits until nothing is pending of what is pending now, at most until `left` is over: gives
    /// the versions that are pending then.
    fn drained(&self, left: Duration) -> Vec<i64> {
        // By the clock: each report ends a nap early.
        let began = Instant::now();
        let mut queue = lock(&self.queue);
        let last = queue.saves.back().map(S::request);
        loop {
            let end = queue.saves.iter().position(|save| Some(save.request()) == last);
            let Some(end) = end else { return Vec::new() };
            if began.elapsed() >= left {
                return queue.saves.range(..=end).filter_map(S::version).collect();
            }
            queue = wait_timeout(&self.changed, queue, Duration::from_millis(2).min(left));
        }
    }
}

impl Completions {
    /// The pending save whose room ends where `place` begins.
    pub(crate) fn before(&self, place: Place, alignment: u64) -> Option<Predecessor> {
        let queue = lock(&self.queue);
        queue.saves.iter().rev().find_map(|save| save.grant.before(place, alignment))
    }

    /// Takes out the first save, if it has a result or is known to have `failed`.
    fn next_done(&self, failed: Option<EncodeError>) -> Option<(InFlight, EncodeOutcome)> {
        let mut queue = lock(&self.queue);
        let first = queue.saves.front()?;
        let result = first.encoding.try_result().or(failed.map(Err))?;
        queue.saves.pop_front().map(|save| (save, result))
    }

    /// Looks at the first save; waits a while where there is none.
    fn look(&self) -> Look {
        let queue = lock(&self.queue);
        if queue.is_over {
            return Look::Over;
        }
        match queue.saves.front().map(|first| &first.encoding) {
            Some(encoding) if encoding.try_result().is_none() => {
                Look::Pending(encoding.parts().clone())
            }
            Some(_) => Look::Done,
            None => {
                drop(wait_timeout(&self.changed, queue, IDLE));
                Look::Nothing
            }
        }
    }

    /// Ends the thread, within `limit` or by leaving it to itself: gives the versions that were
    /// still pending.
    fn end(&self, limit: Duration) -> Vec<i64> {
        let mut queue = lock(&self.queue);
        queue.is_over = true;
        let (thread, left) = (queue.thread.take(), std::mem::take(&mut queue.saves));
        self.changed.notify_all();
        if let Some(thread) = thread {
            let began = Instant::now();
            while !queue.has_ended && began.elapsed() < limit {
                queue = wait_timeout(&self.changed, queue, limit);
            }
            let has_ended = queue.has_ended;
            drop(queue);
            if has_ended {
                let _ = thread.join();
            }
        }
        let given_up = left.iter().filter_map(InFlight::version).collect();
        left.into_iter().for_each(|save| save.encoding.forget());
        given_up
    }
}

impl Shared {
    /// Takes over a save whose call returns while a GPU encodes it.
    ///
    /// # Errors
    /// `Io` when no thread can be started; the save is abandoned.
    pub(crate) fn complete_later(
        self: &Arc<Self>,
        state: &mut State,
        save: InFlight,
    ) -> Result<(), Error> {
        let mut queue = lock(&self.completions.queue);
        if queue.thread.is_none() && !queue.is_over && has_room_for_thread() {
            let (completions, shared) = (Arc::clone(&self.completions), Arc::downgrade(self));
            let thread = thread::Builder::new().name("unspool-complete".to_owned());
            queue.thread = thread.spawn(move || run(&completions, &shared)).ok();
        }
        let (request, version) = (save.grant.request, Version(save.grant.version()));
        if queue.thread.is_none() {
            drop(queue);
            save.encoding.forget();
            self.give_up_save(state, &save.grant);
            let message = "The system gives no thread to wait for the GPU. Nothing was saved.";
            return Err(Error::new(ErrorKind::Io, message));
        }
        let is_first = queue.saves.is_empty();
        let is_abandoned = save.is_abandoned;
        queue.saves.push_back(save);
        drop(queue);
        if is_first {
            self.completions.changed.notify_all();
        }
        self.feed(state, Event::SaveInFlight { request });
        if is_abandoned {
            self.feed(state, Event::Discard { version });
        }
        Ok(())
    }

    /// Waits until everything that was handed over before is reported, at most for `left`: gives
    /// the versions that are not.
    pub(crate) fn drain(&self, left: Duration) -> Vec<i64> {
        self.completions.drained(left)
    }

    /// Ends the thread that settles, within `left`. What is still pending is given up: gives its
    /// versions.
    pub(crate) fn end_completions(&self, left: Duration) -> Vec<i64> {
        self.completions.end(left)
    }

    /// What failed after its call had returned, and was not told yet, before a call does anything.
    ///
    /// # Errors
    /// That.
    pub(crate) fn report_deferred(&self, state: &mut State) -> Result<(), Error> {
        let Some(error) = take_deferred(state) else { return Ok(()) };
        let message = format!("{error} This call did nothing.");
        Err(error.saying(message))
    }

    /// Reports the first saves in the queue that have a result; `failed` is that of the first one
    /// where the device tells none.
    fn report_done(&self, mut failed: Option<EncodeError>) {
        let mut state = self.state();
        let ready = || self.completions.next_done(failed.take());
        for (save, result) in std::iter::from_fn(ready).take(AT_ONCE) {
            self.report_save(&mut state, save, result);
        }
        drop(state);
        self.completions.changed.notify_all();
    }

    fn report_save(&self, state: &mut State, save: InFlight, result: EncodeOutcome) {
        let InFlight { encoding, grant, is_abandoned } = save;
        let request = grant.request;
        match completed(state, (encoding, &grant), result, is_abandoned) {
            Ok(Some(kept)) => self.feed(state, Event::Saved { request, kept: Some(kept) }),
            Ok(None) => self.give_up_save(state, &grant),
            Err(error) => {
                self.give_up_save(state, &grant);
                state.deferred.push(Unsaved { version: grant.version(), error });
            }
        }
    }

    /// Reports that nothing was saved.
    pub(crate) fn give_up_save(&self, state: &mut State, grant: &Grant) {
        self.feed(state, Event::SaveAborted { request: grant.request });
        state.frames.remove(grant.checkpoint);
    }
}

/// One error for all that were not saved and not told of; each is told once.
pub(crate) fn take_deferred(state: &mut State) -> Option<Error> {
    deferred::as_one_error(std::mem::take(&mut state.deferred))
}

/// Completes the entry in the arena; `None` for a save that was given up.
fn completed(
    state: &mut State,
    (encoding, grant): (Encoding, &Grant),
    result: EncodeOutcome,
    is_abandoned: bool,
) -> Result<Option<Kept>, Error> {
    let version = grant.version();
    let done = match result {
        Ok(done) => done,
        Err(cause) => {
            encoding.forget();
            let failed = not_encoded(version, &cause.into_device_error());
            return if is_abandoned { Ok(None) } else { Err(failed) };
        }
    };
    if is_abandoned {
        return Ok(None);
    }
    let sealed = encoding.encoded.sealed_as(&done.result)?;
    let kept = Kept { offset: done.offset, bytes: done.result.bytes };
    encoding.commit(&done).map_err(|cause| {
        let message = format!("Version {version} was not saved: {cause}");
        Error::new(ErrorKind::Io, message).caused_by(cause)
    })?;
    state.sealed(grant.checkpoint, sealed);
    Ok(Some(kept))
}

/// What the thread finds.
enum Look {
    /// There is no save.
    Nothing,
    /// The first save is still being encoded.
    Pending(PendingParts),
    /// It has a result.
    Done,
    /// The spool is closed.
    Over,
}

/// For how long the first save was looked at.
#[derive(Default)]
struct Watch {
    since: Option<Instant>,
    /// How long that was when the driver was asked.
    asked: Duration,
}

impl Watch {
    /// Naps, or asks the driver when that is due: gives the failure of the device.
    fn wait(&mut self, parts: &PendingParts) -> Option<EncodeError> {
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        if waited < self.asked + ASK {
            std::thread::sleep((waited / 8).clamp(NAP.0, NAP.1));
            return None;
        }
        self.asked = waited;
        failure(parts)
    }
}

/// Tells that the thread returns, also when it panics.
struct Ended<'a>(&'a Completions);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        lock(&self.0.queue).has_ended = true;
        self.0.changed.notify_all();
    }
}

/// Reports saves until the spool is closed. Between two looks the thread naps without a lock, and a
/// save that is taken over meanwhile does not wake it: those before it come first.
fn run(completions: &Completions, shared: &Weak<Shared>) {
    let _punctual = Punctual::begin();
    let _ended = Ended(completions);
    let mut watch = Watch::default();
    loop {
        let failed = match completions.look() {
            Look::Over => return,
            Look::Nothing if shared.strong_count() == 0 => return,
            Look::Nothing => continue,
            Look::Done => None,
            Look::Pending(parts) => match watch.wait(&parts) {
                None => continue,
                failed => failed,
            },
        };
        let Some(shared) = shared.upgrade() else { return };
        shared.report_done(failed);
        watch = Watch::default();
    }
}

/// The failure of the device under an encoder, if it has failed.
fn failure(parts: &PendingParts) -> Option<EncodeError> {
    match parts.fence().poll() {
        Poll::Failed(cause) => Some(DeviceError::into(cause)),
        // Done without a result: the next look sees it, or its wait tells that there is none.
        Poll::Done => parts.wait(Duration::from_millis(1)).err(),
        Poll::NotYet => None,
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;

    impl Queued for i64 {
        fn request(&self) -> RequestId {
            RequestId(self.cast_unsigned())
        }

        fn version(&self) -> Option<i64> {
            Some(*self)
        }
    }

    #[test]
    fn a_wait_ends_though_others_go_on_saving() {
        let completions = Completions::<i64>::default();
        lock(&completions.queue).saves.push_back(0);
        assert_eq!(completions.drained(Duration::ZERO), [0]);
        std::thread::scope(|scope| {
            let wait = scope.spawn(|| completions.drained(Duration::from_secs(30)));
            for number in 1.. {
                if wait.is_finished() {
                    break;
                }
                let mut queue = lock(&completions.queue);
                queue.saves.push_back(number);
                queue.saves.pop_front();
                drop(queue);
                std::thread::yield_now();
            }
            assert!(wait.join().unwrap().is_empty());
        });
    }
}
