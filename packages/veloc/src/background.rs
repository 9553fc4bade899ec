//! The thread that makes checkpoints durable in scratch, copies them to persistent, and removes
//! what is not kept. It takes the place of VELOC's back-end process.
//!
//! A checkpoint whose copy failed stays in scratch. It is tried again by the next wait; a later one
//! that arrives in persistent takes its place.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use unspool::Wait;
use unspool_restart::{Part, Run};

use crate::names::{self, Content};
use crate::order::{Age, Order, oldest_kept};
use crate::parts::Parts;

/// The most checkpoints that are on their way.
const MOST_WAITING: usize = 16;

/// A checkpoint whose copies into the spool, or whose file, are done.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) step: u64,
    pub(crate) content: Content,
    /// The number of the run; it is given when the job is added.
    pub(crate) run: Run,
    /// Whether the program wrote a file.
    pub(crate) routed: bool,
    /// Whether it is copied to persistent.
    pub(crate) persist: bool,
    pub(crate) begun: Instant,
}

/// The thread, and what it shares with the calls.
pub(crate) struct Background {
    shared: Arc<Shared>,
}

struct Shared {
    parts: Parts,
    state: Mutex<State>,
    changed: Condvar,
    /// Nobody waits for it any more.
    abandoned: AtomicBool,
}

struct State {
    kept: BTreeMap<u64, Kept>,
    order: Order,
    /// What is being removed, without the lock.
    removing: Vec<u64>,
    /// What a restart reads: it is not removed meanwhile.
    pinned: Option<u64>,
    waiting: VecDeque<Job>,
    working: Option<u64>,
    failed: Option<Job>,
    /// What went wrong and was not told yet.
    failure: Option<String>,
    /// Jobs that have ended, so that a wait sees them go on.
    ended: u64,
    phase: Phase,
}

/// A checkpoint in scratch.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) part: Part,
    pub(crate) content: Content,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// The thread ends when it finds nothing to do.
    Ending,
    Ended,
}

impl Background {
    /// Starts the thread. `kept`: what scratch has already.
    pub(crate) fn start(parts: Parts, kept: BTreeMap<u64, Kept>) -> Result<Background, String> {
        let state = State {
            kept,
            order: Order::of(parts.run),
            removing: Vec::new(),
            pinned: None,
            waiting: VecDeque::new(),
            working: None,
            failed: None,
            failure: None,
            ended: 0,
            phase: Phase::Open,
        };
        let (state, changed, abandoned) =
            (Mutex::new(state), Condvar::new(), AtomicBool::new(false));
        let shared = Arc::new(Shared { parts, state, changed, abandoned });
        let own = Arc::clone(&shared);
        let started = Builder::new().name("unspool-veloc".into()).spawn(move || own.work());
        started.map_err(|cause| format!("A thread cannot be started: {cause}."))?;
        Ok(Background { shared })
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.shared.parts
    }

    /// What scratch has under `step`, durable or on its way.
    pub(crate) fn kept(&self, step: u64) -> Option<Kept> {
        self.shared.lock().kept.get(&step).cloned()
    }

    /// The steps that scratch has, with the runs that wrote them.
    pub(crate) fn all_kept(&self) -> Vec<(u64, Kept)> {
        self.shared.lock().kept.iter().map(|(step, kept)| (*step, kept.clone())).collect()
    }

    /// Takes a checkpoint, after [`wait_for_room`](Self::wait_for_room).
    pub(crate) fn add(&self, mut job: Job) {
        let mut state = self.shared.lock();
        job.run = state.order.save(job.step);
        let part = Part { step: u64::from(names::unstep(job.step).1), run: job.run };
        state.kept.insert(job.step, Kept { part, content: job.content.clone() });
        state.waiting.push_back(job);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Puts back what came from persistent: it is in the spool, and durable.
    pub(crate) fn keep(&self, step: u64, kept: Kept) {
        self.shared.lock().kept.insert(step, kept);
    }

    /// Keeps a checkpoint in scratch from being removed as an old one, or no one any more.
    pub(crate) fn pin(&self, step: Option<u64>) {
        self.shared.lock().pinned = step;
    }

    /// Removes what scratch has of a checkpoint, when it is not on its way any more.
    pub(crate) fn remove(&self, step: u64, timeout: Duration) -> Result<(), String> {
        self.wait_until(timeout, |state| {
            state.working != Some(step)
                && state.waiting.iter().all(|job| job.step != step)
                && !state.removing.contains(&step)
        })?;
        let mut state = self.shared.lock();
        state.failed.take_if(|job| job.step == step);
        let Some(kept) = state.kept.remove(&step) else { return Ok(()) };
        drop(state);
        self.shared.parts.remove(step, &kept.content)
    }

    /// Waits until one more can be taken.
    pub(crate) fn wait_for_room(&self, timeout: Duration) -> Result<(), String> {
        self.wait_until(timeout, |state| state.waiting.len() < MOST_WAITING)
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        is_idle(&self.shared.lock())
    }

    /// What went wrong and was not told yet.
    pub(crate) fn take_failure(&self) -> Option<String> {
        self.shared.lock().failure.take()
    }

    /// Waits until nothing is on its way; what failed is tried once more.
    pub(crate) fn settle(&self, timeout: Duration) -> Result<(), String> {
        let mut state = self.shared.lock();
        let alone = is_idle(&state);
        if let Some(job) = state.failed.take_if(|_| alone) {
            state.failure = None;
            state.waiting.push_back(job);
        }
        drop(state);
        self.shared.changed.notify_all();
        self.wait_until(timeout, is_idle)?;
        self.take_failure().map_or(Ok(()), Err)
    }

    /// Ends the thread when nothing is on its way, and waits for that.
    pub(crate) fn end(&self, timeout: Duration) -> Result<(), String> {
        let settled = self.settle(timeout);
        let mut state = self.shared.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Ending;
        }
        drop(state);
        if settled.is_err() {
            // What is still on its way is given up where it can be.
            self.shared.abandoned.store(true, Ordering::Relaxed);
            self.shared.lock().waiting.clear();
            self.shared.parts.stop();
        }
        self.shared.changed.notify_all();
        settled.and_then(|()| self.wait_until(timeout, |state| state.phase == Phase::Ended))
    }

    /// Waits as long as jobs end, at most `timeout` for each.
    fn wait_until(&self, timeout: Duration, done: impl Fn(&State) -> bool) -> Result<(), String> {
        let mut state = self.shared.lock();
        let (mut ended, mut since) = (state.ended, Instant::now());
        while !done(&state) {
            if state.ended != ended {
                (ended, since) = (state.ended, Instant::now());
            }
            let left = timeout.saturating_sub(since.elapsed());
            if left.is_zero() {
                let count = state.waiting.len() + usize::from(state.working.is_some());
                return Err(format!(
                    "After {:.0} s, {count} checkpoints are still on their way, and none has \
                     arrived since. They stay so. Are scratch and persistent there, and as fast as \
                     they should be? `timeout` in the configuration sets how long to wait.",
                    timeout.as_secs_f64()
                ));
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}

fn is_idle(state: &State) -> bool {
    state.waiting.is_empty() && state.working.is_none()
}

impl Drop for Background {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Ending;
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            let done = catch_unwind(AssertUnwindSafe(|| self.carry(&job)));
            let done = done.unwrap_or_else(|_| {
                let (_, version) = names::unstep(job.step);
                let name = &job.content.name;
                Err(format!("A mistake in Unspool, at checkpoint {version} of {name}: report it."))
            });
            let mut state = self.lock();
            match done {
                // What failed before is not the newest any more.
                Ok(()) => drop(state.failed.take()),
                Err(why) => {
                    state.failure = Some(why);
                    state.failed = Some(job);
                }
            }
        }
        self.lock().phase = Phase::Ended;
        self.changed.notify_all();
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        state.ended += u64::from(state.working.take().is_some());
        self.changed.notify_all();
        loop {
            if let Some(job) = state.waiting.pop_front() {
                state.working = Some(job.step);
                return Some(job);
            }
            if state.phase == Phase::Ending {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn carry(&self, job: &Job) -> Result<(), String> {
        let interrupted = || self.abandoned.load(Ordering::Relaxed);
        let wait = Wait { interrupted: &interrupted, ..Wait::default() };
        let (_, version) = names::unstep(job.step);
        let what = format!("Checkpoint {version} of {}", job.content.name);
        let (manifest, content) = self.parts.make_durable(job, &wait).map_err(|why| {
            format!(
                "{what} is not durable: {why} Earlier ones stay. VELOC_Checkpoint_wait tries again."
            )
        })?;
        if let Some(kept) = self.lock().kept.get_mut(&job.step) {
            kept.content = content.clone();
        }
        if job.persist {
            self.parts.persist(&manifest, &content).map_err(|why| {
                format!(
                    "{what} is durable in scratch, and not in persistent: {why} \
                     VELOC_Checkpoint_wait tries again."
                )
            })?;
        }
        self.remove_old(job).map_err(|why| format!("Old checkpoints are not removed: {why}"))
    }

    /// Removes what is not kept, in scratch and in persistent.
    fn remove_old(&self, job: &Job) -> Result<(), String> {
        let number = names::unstep(job.step).0;
        let old = self.take_old(number);
        let removed = old.iter().try_for_each(|(step, old)| self.parts.remove(*step, &old.content));
        self.lock().removing.clear();
        self.changed.notify_all();
        removed?;
        let age = |part: Part| {
            let step = names::step(number, part.step as u32);
            self.lock().order.age(step, part.run)
        };
        self.parts.remove_old_in_persistent(&job.content.name, job.run, age)
    }

    /// Takes what is old of a name in scratch, to be removed.
    fn take_old(&self, number: u32) -> Vec<(u64, Kept)> {
        let mut state = self.lock();
        let waits = |step: u64| state.waiting.iter().any(|job| job.step == step);
        let of_name = state.kept.iter().filter(|(step, _)| names::unstep(**step).0 == number);
        let durable = of_name.filter(|(step, _)| !waits(**step));
        let ages = durable.map(|(step, kept)| (state.order.age(*step, kept.part.run), *step));
        let ages: Vec<_> = ages.collect();
        let oldest = oldest_kept(ages.iter().map(|(age, _)| *age), self.parts.keep_in_scratch());
        let is_old = |(age, step): &&(Age, u64)| {
            oldest.is_some_and(|oldest| *age < oldest) && state.pinned != Some(*step)
        };
        state.removing = ages.iter().filter(is_old).map(|(_, step)| *step).collect();
        let steps = state.removing.clone();
        steps.into_iter().filter_map(|step| Some((step, state.kept.remove(&step)?))).collect()
    }
}
