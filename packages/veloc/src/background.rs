//! The thread that makes checkpoints durable in scratch, copies them to persistent, and removes
//! what is not kept. It takes the place of VELOC's back-end process.
//!
//! A checkpoint whose copy failed stays in scratch. It is tried again by the next wait; a later one
//! that arrives in persistent takes its place.

use std::collections::{BTreeMap, VecDeque};

use unspool::{Error, ErrorKind, Wait};
use unspool_restart::{Book, Jobs, Part, Worker};

use crate::names;
use crate::order::{Age, Order, oldest_kept};
use crate::parts::{Job, Kept, Parts, text};

/// The thread, and what it shares with the calls.
pub(crate) struct Background(Worker<Parts>);

pub(crate) struct Progress {
    kept: BTreeMap<u64, Kept>,
    order: Order,
    /// What is being removed, without the lock.
    removing: Vec<u64>,
    /// What a restart reads: it is not removed meanwhile.
    pinned: Option<u64>,
    waiting: VecDeque<Job>,
    failed: Option<Job>,
}

impl Background {
    /// Starts the thread. `kept`: what scratch has already.
    pub(crate) fn start(parts: Parts, kept: BTreeMap<u64, Kept>) -> Result<Background, String> {
        let (order, timeout) = (Order::of(parts.run), parts.timeout);
        let (removing, waiting) = (Vec::new(), VecDeque::new());
        let own = Progress { kept, order, removing, pinned: None, waiting, failed: None };
        Worker::start(parts, own, timeout).map(Background).map_err(text)
    }

    pub(crate) fn parts(&self) -> &Parts {
        self.0.jobs()
    }

    /// What scratch has under `step`, durable or on its way.
    pub(crate) fn kept(&self, step: u64) -> Option<Kept> {
        self.0.book().own.kept.get(&step).cloned()
    }

    /// What scratch has of the name with this number, by step.
    pub(crate) fn kept_of(&self, number: u32) -> BTreeMap<u64, Kept> {
        let mut kept = self.0.book().own.kept.clone();
        kept.retain(|step, _| names::unstep(*step).0 == number);
        kept
    }

    /// Takes a checkpoint, whose save has waited for room in memory.
    pub(crate) fn add(&self, mut job: Job) {
        self.0.change(|Book { own, .. }| {
            job.run = own.order.save(job.step);
            let part = Part { step: u64::from(names::unstep(job.step).1), run: job.run };
            own.kept.insert(job.step, Kept { part, content: job.content.clone() });
            own.waiting.push_back(job);
        });
    }

    /// Puts back what came from persistent: it is in the spool, and durable.
    pub(crate) fn keep(&self, step: u64, kept: Kept) {
        self.0.book().own.kept.insert(step, kept);
    }

    /// Keeps a checkpoint in scratch from being removed as an old one, or no one any more.
    pub(crate) fn pin(&self, step: Option<u64>) {
        self.0.book().own.pinned = step;
    }

    /// Removes what scratch has of a checkpoint, when it is not on its way any more.
    pub(crate) fn remove(&self, step: u64) -> Result<(), String> {
        self.wait_until(|Book { own, at, .. }| {
            at.as_ref().is_none_or(|job| job.step != step)
                && own.waiting.iter().all(|job| job.step != step)
                && !own.removing.contains(&step)
        })?;
        let kept = self.0.change(|Book { own, .. }| {
            own.failed.take_if(|job| job.step == step);
            own.kept.remove(&step)
        });
        kept.map_or(Ok(()), |kept| self.parts().remove(step, &kept.content))
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        on_their_way(&self.0.book()) == 0
    }

    /// What went wrong and was not told yet.
    pub(crate) fn take_failure(&self) -> Option<String> {
        self.0.take_failure().map(text)
    }

    /// Waits until nothing is on its way; what failed is tried once more.
    pub(crate) fn settle(&self) -> Result<(), String> {
        self.0.change(|book| {
            let alone = on_their_way(book) == 0;
            if let Some(job) = book.own.failed.take_if(|_| alone) {
                book.failure = None;
                book.own.waiting.push_back(job);
            }
        });
        self.wait_until(|book| on_their_way(book) == 0)?;
        self.take_failure().map_or(Ok(()), Err)
    }

    /// Ends the thread when nothing is on its way, and waits for that.
    pub(crate) fn end(&self) -> Result<(), String> {
        // What is still on its way is given up where it can be.
        self.settle().inspect_err(|_| self.0.give_up())?;
        self.0.end(&Wait::default()).map_err(text)
    }

    /// Waits as long as jobs end.
    fn wait_until(&self, done: impl Fn(&Book<Parts>) -> bool) -> Result<(), String> {
        self.0.wait_until(&Wait::default(), "checkpoints", done).map_err(text)
    }
}

fn on_their_way(book: &Book<Parts>) -> usize {
    book.own.waiting.len() + usize::from(book.at.is_some())
}

impl Jobs for Parts {
    type Own = Progress;
    type Job = Job;

    const THREAD: &'static str = "unspool-veloc";
    const LAST: &'static str = "the last checkpoint";
    const ANEW: bool = true;

    fn about(job: &Job) -> String {
        format!("checkpoint {} of {}", names::unstep(job.step).1, job.content.name)
    }

    fn next(&self, own: &mut Progress) -> Option<Job> {
        own.waiting.pop_front()
    }

    fn run(&self, job: &mut Job, worker: &Worker<Parts>) -> Result<(), Error> {
        self.carry(job, worker).map_err(|why| Error::new(ErrorKind::Io, why))
    }

    fn done(&self, job: Job, outcome: Result<(), Error>, worker: &Worker<Parts>) {
        let mut book = worker.book();
        match outcome {
            // What failed before is not the newest any more.
            Ok(()) => book.own.failed = None,
            Err(why) => (book.failure, book.own.failed) = (Some(why), Some(job)),
        }
    }

    fn stop(&self) {
        self.place.stop();
    }

    fn forget(&self, own: &mut Progress) {
        own.waiting.clear();
    }

    fn late(&self, _: &str, book: &Book<Parts>, seconds: f64) -> String {
        format!(
            "After {seconds:.0} s, {} checkpoints are still on their way, and none has arrived \
             since. They stay so. Are scratch and persistent there, and as fast as they should be? \
             `timeout` in the configuration sets how long to wait.",
            on_their_way(book)
        )
    }
}

impl Parts {
    fn carry(&self, job: &Job, worker: &Worker<Parts>) -> Result<(), String> {
        let interrupted = || worker.is_given_up();
        let wait = Wait { interrupted: &interrupted, ..Wait::default() };
        let what = format!("Checkpoint {} of {}", names::unstep(job.step).1, job.content.name);
        let (manifest, content) = self.make_durable(job, &wait).map_err(|why| {
            format!(
                "{what} is not durable: {why} Earlier ones stay. VELOC_Checkpoint_wait tries again."
            )
        })?;
        if let Some(kept) = worker.book().own.kept.get_mut(&job.step) {
            kept.content = content.clone();
        }
        if job.persist {
            self.persist(&manifest, &content).map_err(|why| {
                format!(
                    "{what} is durable in scratch, and not in persistent: {why} \
                     VELOC_Checkpoint_wait tries again."
                )
            })?;
        }
        self.remove_old(job, worker)
            .map_err(|why| format!("Old checkpoints are not removed: {why}"))
    }

    /// Removes what is not kept, in scratch and in persistent.
    fn remove_old(&self, job: &Job, worker: &Worker<Parts>) -> Result<(), String> {
        let number = names::unstep(job.step).0;
        let old = worker.change(|Book { own, .. }| own.take_old(number, self.keep_in_scratch));
        let removed = old.iter().try_for_each(|(step, old)| self.remove(*step, &old.content));
        worker.change(|book| book.own.removing.clear());
        removed?;
        let age = |part: Part| {
            let step = names::step(number, part.step as u32);
            worker.book().own.order.age(step, part.run)
        };
        self.remove_old_in_persistent(&job.content.name, job.run, age)
    }
}

impl Progress {
    /// Takes what is old of a name in scratch, to be removed.
    fn take_old(&mut self, number: u32, keep: usize) -> Vec<(u64, Kept)> {
        let waits = |step: u64| self.waiting.iter().any(|job| job.step == step);
        let of_name = self.kept.iter().filter(|(step, _)| names::unstep(**step).0 == number);
        let durable = of_name.filter(|(step, _)| !waits(**step));
        let ages = durable.map(|(step, kept)| (self.order.age(*step, kept.part.run), *step));
        let ages: Vec<_> = ages.collect();
        let oldest = oldest_kept(ages.iter().map(|(age, _)| *age), keep);
        let is_old = |(age, step): &&(Age, u64)| {
            oldest.is_some_and(|oldest| *age < oldest) && self.pinned != Some(*step)
        };
        self.removing = ages.iter().filter(is_old).map(|(_, step)| *step).collect();
        let steps = self.removing.iter();
        steps.filter_map(|step| Some((*step, self.kept.remove(step)?))).collect()
    }
}
