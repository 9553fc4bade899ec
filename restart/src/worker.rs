//! A thread that does jobs one at a time, and the waits for it.
//!
//! What its owner and the thread share is one [`Book`] under one lock, which is free while a job is
//! done. What waits there, and in which order, is the owner's: [`Jobs::next`] takes it out.
//!
//! - A wait has an end, and may be interrupted. A place that hangs keeps the thread, no one else.
//! - A job that panics has failed, and the next one is taken.
//! - The thread ends when it finds nothing to do any more. One that is given up drops what waits,
//!   and ends after the job that it is at.
//! - The child of a fork has no such thread: what waits there stays, and waits end by their time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use unspool::{Error, ErrorKind, Wait};

/// How often a wait asks whether to go on.
const POLL: Duration = Duration::from_millis(50);

/// What the thread of a [`Worker`] does.
pub trait Jobs: Send + Sync + Sized + 'static {
    /// What the owner and the thread write down: what waits, and what has come of it.
    type Own: Send;
    /// A job.
    type Job: Clone + Send;

    /// The name of the thread.
    const THREAD: &'static str;
    /// What is waited for when it ends.
    const LAST: &'static str;
    /// Whether the time of a wait begins anew when a job ends.
    const ANEW: bool = false;

    /// What a job is about, such as `step 3`.
    fn about(job: &Self::Job) -> String;

    /// Takes out the job that is next.
    fn next(&self, own: &mut Self::Own) -> Option<Self::Job>;

    /// Does a job.
    ///
    /// # Errors
    /// Why it failed.
    fn run(&self, job: &mut Self::Job, worker: &Worker<Self>) -> Result<(), Error>;

    /// Writes down what has come of a job.
    fn done(&self, job: Self::Job, outcome: Result<(), Error>, worker: &Worker<Self>);

    /// Ends what a job waits for, as nobody waits for the job any more.
    fn stop(&self) {}

    /// Drops what waits.
    fn forget(&self, own: &mut Self::Own);

    /// The text of an error: so many seconds are over, and what was waited for is not there.
    fn late(&self, what: &str, book: &Book<Self>, seconds: f64) -> String;
}

/// A thread, for its owner. Dropped, it is given up.
pub struct Worker<J: Jobs> {
    jobs: Arc<J>,
    shared: Arc<Shared<J>>,
}

struct Shared<J: Jobs> {
    timeout: Duration,
    book: Mutex<Book<J>>,
    changed: Condvar,
}

/// What is under the lock of a [`Worker`].
pub struct Book<J: Jobs> {
    /// What is its owner's.
    pub own: J::Own,
    /// The job that the thread is at.
    pub at: Option<J::Job>,
    /// What went wrong and was not told yet.
    pub failure: Option<Error>,
    /// Grows when a job ends.
    ended: u64,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// The thread ends when it finds nothing to do.
    Ending,
    /// The same, and nobody waits for the job that it is at.
    GivenUp,
    /// It does nothing more, and lets go of what its jobs hold.
    Leaving,
    Ended,
}

impl<J: Jobs> Worker<J> {
    /// Starts the thread. A wait without a time of its own takes `timeout` at most.
    ///
    /// # Errors
    /// `Io` when there is no thread.
    pub fn start(jobs: J, own: J::Own, timeout: Duration) -> Result<Worker<J>, Error> {
        let book = Book { own, at: None, failure: None, ended: 0, phase: Phase::Open };
        let (book, changed) = (Mutex::new(book), Condvar::new());
        let (jobs, shared) = (Arc::new(jobs), Arc::new(Shared { timeout, book, changed }));
        let thread = Worker { jobs: Arc::clone(&jobs), shared: Arc::clone(&shared) };
        spawn(J::THREAD, move || thread.work())?;
        Ok(Worker { jobs, shared })
    }

    /// What the thread does.
    pub fn jobs(&self) -> &J {
        &self.jobs
    }

    /// The longest wait that has no time of its own.
    pub fn timeout(&self) -> Duration {
        self.shared.timeout
    }

    /// What is written down, to be read.
    pub fn book(&self) -> MutexGuard<'_, Book<J>> {
        lock(&self.shared.book)
    }

    /// Changes what is written down, and has everybody look at it.
    pub fn change<T>(&self, how: impl FnOnce(&mut Book<J>) -> T) -> T {
        let changed = how(&mut self.book());
        self.shared.changed.notify_all();
        changed
    }

    /// What went wrong and was not told yet.
    pub fn take_failure(&self) -> Option<Error> {
        self.book().failure.take()
    }

    /// Waits for `what`, until `done`.
    ///
    /// # Errors
    /// `Timeout` with what [`Jobs::late`] says, `Interrupted`.
    pub fn wait_until(
        &self,
        wait: &Wait<'_>,
        what: &str,
        done: impl Fn(&Book<J>) -> bool,
    ) -> Result<(), Error> {
        let timeout = wait.timeout.unwrap_or(self.shared.timeout);
        let mut book = self.book();
        let (mut ended, mut since) = (book.ended, Instant::now());
        while !done(&book) {
            if J::ANEW && book.ended != ended {
                (ended, since) = (book.ended, Instant::now());
            }
            let left = timeout.saturating_sub(since.elapsed());
            if left.is_zero() {
                let message = self.jobs.late(what, &book, timeout.as_secs_f64());
                return Err(Error::new(ErrorKind::Timeout, message));
            }
            let waited = self.shared.changed.wait_timeout(book, left.min(POLL));
            drop(waited.unwrap_or_else(PoisonError::into_inner).0);
            // Code of the caller: without the lock.
            if (wait.interrupted)() {
                return Err(interrupted(what));
            }
            book = self.book();
        }
        Ok(())
    }

    /// Has the thread end when it finds nothing to do, and waits for that.
    ///
    /// # Errors
    /// Those of [`wait_until`](Self::wait_until).
    pub fn end(&self, wait: &Wait<'_>) -> Result<(), Error> {
        self.change(|book| {
            if book.phase == Phase::Open {
                book.phase = Phase::Ending;
            }
        });
        self.wait_until(wait, J::LAST, |book| book.phase == Phase::Ended)
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.book().phase == Phase::Ended
    }

    /// Drops what waits, and has the thread end. Nobody waits for the job that it is at.
    pub fn give_up(&self) {
        self.jobs.stop();
        self.change(|book| {
            self.jobs.forget(&mut book.own);
            if book.phase != Phase::Ended {
                book.phase = Phase::GivenUp;
            }
        });
    }

    /// Whether nobody waits for the job that is being done.
    pub fn is_given_up(&self) -> bool {
        self.book().phase == Phase::GivenUp
    }

    fn work(self) {
        while let Some(mut job) = self.next() {
            let run = || self.jobs.run(&mut job, &self);
            let outcome = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
                let message = format!("A mistake in Unspool, at {}: report it.", J::about(&job));
                Err(Error::new(ErrorKind::Io, message))
            });
            self.jobs.done(job, outcome, &self);
        }
        // Who has waited for the end may open at once what the jobs held, such as a folder.
        let shared = Arc::clone(&self.shared);
        lock(&shared.book).phase = Phase::Leaving;
        drop(self);
        lock(&shared.book).phase = Phase::Ended;
        shared.changed.notify_all();
    }

    fn next(&self) -> Option<J::Job> {
        let mut book = self.book();
        (book.at, book.ended) = (None, book.ended + 1);
        self.shared.changed.notify_all();
        loop {
            book.at = self.jobs.next(&mut book.own);
            if book.at.is_some() || book.phase != Phase::Open {
                return book.at.clone();
            }
            book = self.shared.changed.wait(book).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<J: Jobs> Drop for Worker<J> {
    fn drop(&mut self) {
        // The thread drops its own one, too.
        if !matches!(self.book().phase, Phase::Leaving | Phase::Ended) {
            self.give_up();
        }
    }
}

/// Locks, also after a panic of another thread.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What `work` gives, on a thread of its own: a caller who is interrupted does not wait for a place
/// that does not answer. The thread ends when the place does, or after the patience for it.
///
/// # Errors
/// Those of `work`; `Interrupted`; `Io` when there is no thread.
pub(crate) fn interruptible<T: Send + 'static>(
    wait: &Wait<'_>,
    what: &str,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (give, take) = channel();
    spawn("unspool-ask", move || drop(give.send(work())))?;
    loop {
        match take.recv_timeout(POLL) {
            Ok(done) => return done,
            Err(RecvTimeoutError::Timeout) if (wait.interrupted)() => {
                return Err(interrupted(what));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let message = format!("The thread that waited for {what} has ended by a mistake.");
                return Err(Error::new(ErrorKind::Io, message));
            }
        }
    }
}

/// Starts a thread.
///
/// # Errors
/// `Io`.
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    Builder::new().name(name.into()).spawn(run).map(drop).map_err(|cause| {
        let message = format!("A thread cannot be started: {cause}.");
        Error::new(ErrorKind::Io, message).caused_by(cause)
    })
}

/// The error of a wait that its caller has ended.
fn interrupted(what: &str) -> Error {
    Error::new(ErrorKind::Interrupted, format!("The wait for {what} was interrupted."))
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
