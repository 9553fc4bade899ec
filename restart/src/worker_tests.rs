//! A worker whose jobs are numbers: what they do is told by them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// Jobs of which one panics, one fails, one takes until it is let go, and others do nothing.
#[derive(Default)]
struct Numbers {
    held: Mutex<bool>,
    let_go: Condvar,
    stops: AtomicU64,
}

const PANICS: u64 = 100;
const FAILS: u64 = 101;
const HOLDS: u64 = 102;

#[derive(Default)]
struct Queue {
    waiting: VecDeque<u64>,
    done: Vec<u64>,
}

impl Jobs for Numbers {
    type Own = Queue;
    type Job = u64;

    const THREAD: &'static str = "unspool-test";
    const LAST: &'static str = "the last number";
    const ANEW: bool = true;

    fn about(job: &u64) -> String {
        job.to_string()
    }

    fn next(&self, own: &mut Queue) -> Option<u64> {
        own.waiting.pop_front()
    }

    fn run(&self, job: &mut u64, worker: &Worker<Numbers>) -> Result<(), Error> {
        assert_eq!(worker.book().at, Some(*job));
        match *job {
            PANICS => panic!("as it is meant to"),
            FAILS => return Err(Error::new(ErrorKind::Lost, "Nothing.")),
            HOLDS => drop(self.let_go.wait_while(self.held.lock().unwrap(), |held| *held)),
            _ => {}
        }
        Ok(())
    }

    fn done(&self, job: u64, outcome: Result<(), Error>, worker: &Worker<Numbers>) {
        let mut book = worker.book();
        book.own.done.extend(outcome.is_ok().then_some(job));
        book.failure = outcome.err().or(book.failure.take());
    }

    fn stop(&self) {
        self.stops.fetch_add(1, Ordering::Relaxed);
    }

    fn forget(&self, own: &mut Queue) {
        own.waiting.clear();
    }

    fn late(&self, what: &str, book: &Book<Numbers>, seconds: f64) -> String {
        format!("After {seconds:.1} s without {what}, {} wait.", book.own.waiting.len())
    }
}

fn worker(jobs: &[u64]) -> Worker<Numbers> {
    let held = jobs.contains(&HOLDS);
    let numbers = Numbers { held: Mutex::new(held), ..Numbers::default() };
    let own = Queue { waiting: jobs.iter().copied().collect(), ..Queue::default() };
    Worker::start(numbers, own, Duration::from_secs(20)).unwrap()
}

fn let_go(worker: &Worker<Numbers>) {
    *worker.jobs().held.lock().unwrap() = false;
    worker.jobs().let_go.notify_all();
}

/// Waits until the thread is at the job that takes long.
fn held(worker: &Worker<Numbers>) {
    worker.wait_until(&Wait::default(), "it", |book| book.at == Some(HOLDS)).unwrap();
}

fn done(worker: &Worker<Numbers>) -> Vec<u64> {
    worker.book().own.done.clone()
}

#[test]
fn jobs_that_wait_are_done_in_order_before_the_end() {
    let worker = worker(&[3, 1, 2]);
    worker.change(|book| book.own.waiting.push_back(4));
    worker.end(&Wait::default()).unwrap();
    assert_eq!(done(&worker), [3, 1, 2, 4]);
    assert!(worker.has_ended() && worker.take_failure().is_none());
}

#[test]
fn a_job_that_panics_has_failed_and_the_next_one_is_done() {
    let worker = worker(&[PANICS, 1]);
    worker.wait_until(&Wait::default(), "it", |book| book.own.done == [1]).unwrap();
    let told = worker.take_failure().unwrap();
    assert_eq!(told.to_string(), "A mistake in Unspool, at 100: report it.");
    worker.change(|book| book.own.waiting.extend([FAILS, 2]));
    worker.end(&Wait::default()).unwrap();
    assert_eq!(done(&worker), [1, 2]);
    assert_eq!(worker.take_failure().unwrap().kind(), ErrorKind::Lost);
}

#[test]
fn a_wait_ends_after_its_time_and_when_its_caller_says_so() {
    let worker = worker(&[HOLDS, 1]);
    held(&worker);
    let told = worker.end(&Wait::at_most(Duration::from_millis(60))).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Timeout);
    assert_eq!(told.to_string(), "After 0.1 s without the last number, 1 wait.");
    // Its caller may look at what is written down.
    let interrupted = || worker.book().own.done.is_empty();
    let wait = Wait { interrupted: &interrupted, ..Wait::default() };
    let told = worker.wait_until(&wait, "a number", |_| false).unwrap_err();
    assert_eq!(told.to_string(), "The wait for a number was interrupted.");
    let_go(&worker);
    worker.end(&Wait::default()).unwrap();
    assert_eq!(done(&worker), [HOLDS, 1]);
}

#[test]
fn the_time_of_a_wait_begins_anew_as_often_as_a_job_ends() {
    let worker = worker(&[]);
    // It is asked every 50 ms: all of it takes longer than the time of the wait.
    let asked = AtomicU64::new(0);
    let interrupted = || {
        worker.change(|book| book.ended += 1);
        asked.fetch_add(1, Ordering::Relaxed);
        false
    };
    let wait = Wait { interrupted: &interrupted, ..Wait::at_most(Duration::from_secs(1)) };
    let done = |_: &Book<Numbers>| asked.load(Ordering::Relaxed) == 30;
    worker.wait_until(&wait, "thirty jobs", done).unwrap();
    worker.end(&Wait::default()).unwrap();
}

#[test]
fn who_gives_up_waits_for_nothing_and_what_waits_is_dropped() {
    let worker = worker(&[HOLDS, 1]);
    held(&worker);
    worker.give_up();
    assert!(worker.is_given_up() && !worker.has_ended());
    let_go(&worker);
    worker.end(&Wait::default()).unwrap();
    assert_eq!(done(&worker), [HOLDS]);
    assert_eq!(worker.jobs().stops.load(Ordering::Relaxed), 1);
}

#[test]
fn a_worker_that_is_dropped_is_given_up_and_leaves_nothing() {
    let worker = worker(&[HOLDS, 1]);
    held(&worker);
    let jobs = Arc::clone(&worker.jobs);
    let shared = Arc::clone(&worker.shared);
    drop(worker);
    assert_eq!(jobs.stops.load(Ordering::Relaxed), 1);
    *jobs.held.lock().unwrap() = false;
    jobs.let_go.notify_all();
    let begun = Instant::now();
    while Arc::strong_count(&shared) > 1 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the thread has not ended");
        std::thread::yield_now();
    }
    assert_eq!(shared.book.lock().unwrap().own.done, [HOLDS]);
    assert_eq!(jobs.stops.load(Ordering::Relaxed), 1, "it is given up once");
}

#[test]
fn a_thread_that_has_ended_holds_nothing_of_its_jobs() {
    // Each of them might be seen between the two.
    for _ in 0..200 {
        let worker = worker(&[1]);
        worker.end(&Wait::default()).unwrap();
        assert_eq!(Arc::strong_count(&worker.jobs), 1);
    }
}
