//! Saves that a GPU still encodes after their calls have returned: one thread looks at what the
//! encoders write about them, and reports each in the order in which they were handed over.
//!
//! - Nothing here waits with a lock held, and the thread ends with the spool: what the GPU has not
//!   done by then is given up, and its memory is never lent again.
//! - What a GPU did not take is encoded here, by the host, in its turn: whoever launches does not
//!   wait for that.
//! - Checkpoints that could not be encoded were not saved. The next call that can fail tells all of
//!   them.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use unspool_core::{CheckpointId, Event, Kept, Place, RequestId, Version};
use unspool_cuda::{DeviceError, Poll, Punctual};
use unspool_gpu_codec::{EncodeError, Parts};
use unspool_transfer::sync::{Condvar, Mutex, lock, thread, wait_timeout};

use crate::coding::{Chain, Taken, not_encoded};
use crate::error::{Error, ErrorKind};
use crate::hand::{Handed, Outcome, Work};
use crate::hub::Hub;
use crate::state::State;
use crate::unsaved::{self, Unsaved};

/// The longest nap while there is nothing to look at.
const IDLE: Duration = Duration::from_millis(100);

/// The shortest and the longest nap between two looks: small checkpoints are encoded in less time
/// than most systems sleep at least.
const NAP: (Duration, Duration) = (Duration::from_micros(5), Duration::from_micros(500));

/// After so long without a result the driver is asked whether the device has failed.
const ASK: Duration = Duration::from_millis(100);

/// The most saves that are reported under one lock.
const AT_ONCE: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Settler {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    handed: VecDeque<Handed>,
    /// Of those that are held: how many, and bytes of their values.
    held: (u32, u64),
    thread: Option<thread::JoinHandle<()>>,
    /// Nothing is taken any more, and what is left is given up.
    is_over: bool,
    /// The thread is about to return.
    has_ended: bool,
}

impl Settler {
    /// The save in `place.tier` whose room of whole units ends at `place`, if it is still pending.
    fn before(&self, place: Place, alignment: u64) -> Option<Chain> {
        let queue = lock(&self.queue);
        let end = |handed: &Handed| handed.place.offset + handed.most.next_multiple_of(alignment);
        let is_before =
            |handed: &&Handed| handed.place.tier == place.tier && end(handed) == place.offset;
        let found = queue.handed.iter().rev().find(is_before)?;
        let (behind, request) = (Arc::clone(&found.launched), found.request);
        Some(Chain { behind, request, alignment })
    }

    /// Takes all that are held, in their order, to be launched by the caller.
    pub(crate) fn take_held(&self) -> Vec<Taken> {
        let mut queue = lock(&self.queue);
        if queue.held.0 == 0 {
            return Vec::new();
        }
        queue.held = (0, 0);
        queue.handed.iter_mut().filter_map(Handed::take_held).collect()
    }

    /// What became of one that was taken.
    pub(crate) fn launched(&self, request: RequestId, work: Work) {
        let mut queue = lock(&self.queue);
        let Some(handed) = queue.handed.iter_mut().find(|one| one.request == request) else {
            // The spool was closed meanwhile.
            drop(queue);
            return work.forget();
        };
        if let Work::Encoding(encoding, _) = &work {
            let _ = handed.launched.set(encoding.parts().last().clone());
        }
        handed.work = work;
        drop(queue);
        self.changed.notify_all();
    }

    /// Whether nobody waits any more for what is left.
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.queue).is_over
    }

    /// What the host was to encode is given up for the reason `besides`.
    pub(crate) fn fail_refused(&self, besides: &str) {
        let mut queue = lock(&self.queue);
        for handed in &mut queue.handed {
            if let Some((_, cause)) = handed.take_refused() {
                handed.work = Work::Failed(cause, Some(besides.to_owned()));
            }
        }
    }

    /// Takes out the first save, if it has a result or is known to have `failed`.
    fn next_done(&self, failed: Option<EncodeError>) -> Option<(Handed, Outcome)> {
        let mut queue = lock(&self.queue);
        let first = queue.handed.front()?;
        let result = first.work.try_result().or(failed.map(Err))?;
        queue.handed.pop_front().map(|handed| (handed, result))
    }

    /// Waits until there is a save, and looks at the first one, which is held for at most `limit`.
    fn look(&self, limit: Duration) -> Look {
        let mut queue = lock(&self.queue);
        if queue.is_over {
            return Look::Over;
        }
        if let Some((one, cause)) = queue.handed.front_mut().and_then(Handed::take_refused) {
            return Look::Refused(Box::new(one), cause);
        }
        let nap = match queue.handed.front().map(|first| &first.work) {
            Some(Work::Held(held)) => match limit.saturating_sub(held.since.elapsed()) {
                Duration::ZERO => return Look::Held,
                left => left.min(IDLE),
            },
            Some(Work::Encoding(encoding, _)) if encoding.try_result().is_none() => {
                return Look::Pending(encoding.parts().clone());
            }
            Some(Work::Launching) | None => IDLE,
            Some(_) => return Look::Done,
        };
        drop(wait_timeout(&self.changed, queue, nap));
        Look::Nothing
    }

    /// Waits until nothing is pending of what is pending now, at most until `left` is over: gives
    /// the versions that are pending then.
    fn drained(&self, left: Duration) -> Vec<i64> {
        // By the clock: each report ends a nap early.
        let began = Instant::now();
        let mut queue = lock(&self.queue);
        let last = queue.handed.back().map(|handed| handed.request);
        loop {
            let end = queue.handed.iter().position(|handed| Some(handed.request) == last);
            let Some(end) = end else { return Vec::new() };
            if began.elapsed() >= left {
                return versions(queue.handed.range(..=end));
            }
            queue = wait_timeout(&self.changed, queue, Duration::from_millis(2).min(left));
        }
    }

    /// Ends the thread, within `limit` or by leaving it to itself: gives the versions that were
    /// still pending.
    fn end(&self, limit: Duration) -> Vec<i64> {
        let mut queue = lock(&self.queue);
        queue.is_over = true;
        let (thread, left) = (queue.thread.take(), std::mem::take(&mut queue.handed));
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
        let given_up = versions(left.iter());
        left.into_iter().for_each(|handed| handed.work.forget());
        given_up
    }
}

/// The versions of those that were not given up by their callers.
fn versions<'a>(handed: impl Iterator<Item = &'a Handed>) -> Vec<i64> {
    handed.filter(|one| !one.is_abandoned).map(|one| one.version).collect()
}

impl Hub {
    /// What the checkpoint that was just granted `place` comes behind on the GPU. `state` is the
    /// lock under which it was granted: what is pending now has not been reported.
    pub(crate) fn chain(&self, state: &State, place: Place) -> Option<Chain> {
        let tier = &state.brain.core().config().tiers[usize::from(place.tier.0)];
        self.settler.before(place, tier.alignment)
    }

    /// Takes over a save that a GPU encodes, or that is held for that. Whether as much is held as
    /// the settings allow.
    ///
    /// # Errors
    /// `Io` when there is no thread for it; the save is given up then.
    pub(crate) fn hand(self: &Arc<Self>, state: &mut State, handed: Handed) -> Result<bool, Error> {
        let most = self.settings.accumulate;
        let mut queue = lock(&self.settler.queue);
        if queue.thread.is_none() && !queue.is_over {
            let (settler, hub) = (Arc::clone(&self.settler), Arc::downgrade(self));
            let thread = thread::Builder::new().name("unspool-settle".to_owned());
            let limit = most.map_or(Duration::ZERO, |most| most.held_at_most);
            queue.thread = thread.spawn(move || run(&settler, &hub, limit)).ok();
        }
        if queue.thread.is_none() {
            drop(queue);
            let (request, id) = (handed.request, handed.checkpoint);
            handed.work.forget();
            self.feed(state, Event::SaveAborted { request });
            state.catalogue.remove(id);
            let message = "The system gives no thread to wait for the GPU. Nothing was saved.";
            return Err(Error::new(ErrorKind::Io, message));
        }
        let (request, version) = (handed.request, handed.version);
        let is_abandoned = handed.is_abandoned;
        let is_first = queue.handed.is_empty();
        if let Work::Held(held) = &handed.work {
            queue.held.0 += 1;
            queue.held.1 += held.bytes();
        }
        let is_full = most.is_some_and(|most| most.is_full(queue.held));
        queue.handed.push_back(handed);
        drop(queue);
        if is_first {
            self.settler.changed.notify_all();
        }
        self.feed(state, Event::SaveHanded { request });
        if is_abandoned {
            self.feed(state, Event::Discard { version: Version(version) });
        }
        Ok(is_full)
    }

    /// Waits until everything that was handed over before is reported, at most for `left`: gives
    /// the versions that are not.
    pub(crate) fn settle_all(&self, left: Duration) -> Vec<i64> {
        self.launch_held();
        self.settler.drained(left)
    }

    /// Ends the thread that settles, within `left`. What is still pending is given up: gives its
    /// versions.
    pub(crate) fn end_settling(&self, left: Duration) -> Vec<i64> {
        self.settler.end(left)
    }

    /// What failed after its call had returned, and was not told yet, before a call does anything.
    ///
    /// # Errors
    /// That.
    pub(crate) fn tell_failure(&self, state: &mut State) -> Result<(), Error> {
        let Some(error) = take_untold(state) else { return Ok(()) };
        let message = format!("{error} This call did nothing.");
        Err(error.saying(message))
    }

    /// Reports the first saves in the queue that have a result; `failed` is that of the first one
    /// where the device tells none.
    fn settle(&self, mut failed: Option<EncodeError>) {
        let mut state = self.state();
        let ready = || self.settler.next_done(failed.take());
        for (handed, result) in std::iter::from_fn(ready).take(AT_ONCE) {
            self.report_save(&mut state, handed, result);
        }
        drop(state);
        self.settler.changed.notify_all();
    }

    fn report_save(&self, state: &mut State, handed: Handed, result: Outcome) {
        let (request, id, version) = (handed.request, handed.checkpoint, handed.version);
        match settled(state, handed, result) {
            Ok(Some(kept)) => self.feed(state, Event::Saved { request, kept: Some(kept) }),
            Ok(None) => self.give_up_save(state, request, id),
            Err(error) => {
                self.give_up_save(state, request, id);
                state.untold.push(Unsaved { version, error });
            }
        }
    }

    fn give_up_save(&self, state: &mut State, request: RequestId, id: CheckpointId) {
        self.feed(state, Event::SaveAborted { request });
        state.catalogue.remove(id);
    }
}

/// One error for all that were not saved and not told of; each is told once.
pub(crate) fn take_untold(state: &mut State) -> Option<Error> {
    unsaved::told(std::mem::take(&mut state.untold))
}

/// Completes the entry in the arena; `None` for a save that was given up.
fn settled(state: &mut State, handed: Handed, result: Outcome) -> Result<Option<Kept>, Error> {
    let Handed { work, checkpoint, version, is_abandoned, place, .. } = handed;
    let done = match result {
        Ok(done) => done,
        Err(cause) => {
            let besides = match &work {
                Work::Failed(_, besides) => besides.clone(),
                _ => None,
            };
            work.forget();
            let failed = not_encoded(version, &cause.into_device_error(), besides.as_deref());
            return if is_abandoned { Ok(None) } else { Err(failed) };
        }
    };
    if is_abandoned {
        return Ok(None);
    }
    let (sealed, kept, committed) = match (work, done) {
        (Work::Encoding(encoding, encoded), Some(done)) => {
            let kept = Kept { offset: done.offset, bytes: done.result.bytes };
            (encoded.sealed_as(&done.result)?, kept, encoding.commit(&done))
        }
        (Work::Sealed(guard, sealed), None) => {
            let kept = sealed.kept(place.offset);
            (*sealed, kept, guard.commit_at(kept.offset, kept.bytes))
        }
        _ => unreachable!("only what is encoded has a result"),
    };
    committed.map_err(|cause| {
        let message = format!("Version {version} was not saved: {cause}");
        Error::new(ErrorKind::Io, message).caused_by(cause)
    })?;
    state.sealed(checkpoint, sealed);
    Ok(Some(kept))
}

/// What the thread finds.
enum Look {
    /// No save, or none that has come on.
    Nothing,
    /// The first save has been held for long enough.
    Held,
    /// The first save is still being encoded.
    Pending(Parts),
    /// The GPU did not take the first save: the host is to encode it.
    Refused(Box<Taken>, DeviceError),
    /// It has a result.
    Done,
    /// Nothing is to be done any more.
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
    fn wait(&mut self, parts: &Parts) -> Option<EncodeError> {
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
struct Ended<'a>(&'a Settler);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        lock(&self.0.queue).has_ended = true;
        self.0.changed.notify_all();
    }
}

/// The life of the thread. What was held for `limit` is launched. It naps without a lock, and saves
/// that are handed over meanwhile do not wake it: those before them come first.
fn run(settler: &Settler, hub: &Weak<Hub>, limit: Duration) {
    let _punctual = Punctual::begin();
    let _ended = Ended(settler);
    let mut watch = Watch::default();
    // For those that follow one another.
    let mut until = None;
    loop {
        let look = settler.look(limit);
        if !matches!(look, Look::Refused(..) | Look::Done) {
            until = None;
        }
        let failed = match look {
            Look::Over => return,
            Look::Nothing if hub.strong_count() == 0 => return,
            Look::Nothing => continue,
            Look::Held => {
                let Some(hub) = hub.upgrade() else { return };
                hub.launch_held();
                continue;
            }
            Look::Refused(one, cause) => {
                let Some(hub) = hub.upgrade() else { return };
                let limit = hub.gpu.as_ref().map_or(ASK, |gpu| gpu.device().limit());
                let until = *until.get_or_insert_with(|| Instant::now() + limit);
                hub.encode_refused(*one, cause, until);
                continue;
            }
            Look::Done => None,
            Look::Pending(parts) => match watch.wait(&parts) {
                None => continue,
                failed => failed,
            },
        };
        let Some(hub) = hub.upgrade() else { return };
        hub.settle(failed);
        watch = Watch::default();
    }
}

/// The failure of the device under an encoder, if it has failed.
fn failure(parts: &Parts) -> Option<EncodeError> {
    match parts.mark().poll() {
        Poll::Failed(cause) => Some(DeviceError::into(cause)),
        // Done without a result: the next look sees it, or its wait tells that there is none.
        Poll::Done => parts.wait(Duration::from_millis(1)).err(),
        Poll::NotYet => None,
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use unspool_core::TierId;

    use super::*;

    fn handed(number: u64) -> Handed {
        Handed {
            work: Work::Launching,
            launched: Arc::default(),
            request: RequestId(number),
            checkpoint: CheckpointId(number),
            place: Place { tier: TierId(0), offset: 0 },
            most: 0,
            version: number.cast_signed(),
            is_abandoned: false,
        }
    }

    #[test]
    fn a_wait_ends_though_others_go_on_saving() {
        let settler = Settler::default();
        lock(&settler.queue).handed.push_back(handed(0));
        assert_eq!(settler.drained(Duration::ZERO), [0]);
        std::thread::scope(|scope| {
            let wait = scope.spawn(|| settler.drained(Duration::from_secs(30)));
            for number in 1.. {
                if wait.is_finished() {
                    break;
                }
                let mut queue = lock(&settler.queue);
                queue.handed.push_back(handed(number));
                queue.handed.pop_front();
                drop(queue);
                std::thread::yield_now();
            }
            assert!(wait.join().unwrap().is_empty());
        });
    }
}
