//! The guarantees of the engine in many interleavings. A lost wake-up shows as a deadlock, because
//! under shuttle no wait times out.

#[path = "../../engine/transfer/tests/common/mod.rs"]
mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use common::{Log, Store, fill, job, reports};
use unspool_core::{CheckpointId, Event, Nanos, TierId, TierKind, TransferId};
use unspool_tiers::{AnyTier, Arena, Tier};
use unspool_transfer::sync::thread;
use unspool_transfer::{Engine, ManualClock, Options, Shutdown, Sink, Submitted, TransferError};

const BYTES: u64 = 64;
const SCHEDULES: usize = 2000;
const TIMEOUT: Duration = Duration::from_secs(1);

struct Stack {
    log: Arc<Log>,
    store: Arc<Store>,
    engine: Arc<Engine>,
}

fn stack(jobs: u64, store_workers: usize) -> Stack {
    let host = Arc::new(Arena::new(TierKind::Host, 1 << 16).expect("small"));
    let (store, log) = (Arc::new(Store::default()), Arc::new(Log::default()));
    (0..jobs).for_each(|id| fill(&host, id, BYTES));
    let tiers = vec![AnyTier::Arena(Arena::clone(&host)), AnyTier::Store(store.clone())];
    let clock = Arc::new(ManualClock::default());
    let options = Options { clock, store_workers, in_flight: 64, ..Options::default() };
    let engine = Arc::new(Engine::start(tiers, options, log.clone()).expect("threads"));
    Stack { log, store, engine }
}

/// Adds the reports that the engine returned as answers.
fn with_answers(log: &Log, answers: impl IntoIterator<Item = (u64, Submitted)>) -> Vec<Event> {
    let never = answers.into_iter().filter(|(_, answer)| *answer == Submitted::NeverRuns);
    let cancelled =
        never.map(|(id, _)| Event::TransferCancelled { transfer: TransferId(1000 + id) });
    log.events().into_iter().chain(cancelled).collect()
}

fn assert_each_once(events: &[Event], jobs: usize) {
    let count = reports(events);
    assert_eq!(count.len(), jobs, "{events:?}");
    assert!(count.values().all(|&n| n == 1), "{events:?}");
}

fn check(test: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(test, SCHEDULES);
}

#[test]
fn no_wake_up_is_lost() {
    check(|| {
        let stack = stack(3, 2);
        for id in 0..3 {
            assert_eq!(stack.engine.submit(job(id, BYTES, 0, 1)), Submitted::ReportFollows);
        }
        stack.log.wait_for(3);
        stack.engine.shutdown(Shutdown::Drain, TIMEOUT).unwrap();
        assert_each_once(&stack.log.events(), 3);
    });
}

#[test]
fn submitters_in_two_threads_are_both_served() {
    check(|| {
        let stack = stack(2, 1);
        let engine = Arc::clone(&stack.engine);
        let other = thread::spawn(move || engine.submit(job(1, BYTES, 0, 1)));
        let mine = stack.engine.submit(job(0, BYTES, 0, 1));
        assert_eq!(
            (mine, other.join().unwrap()),
            (Submitted::ReportFollows, Submitted::ReportFollows)
        );
        stack.log.wait_for(2);
        stack.engine.shutdown(Shutdown::Cancel, TIMEOUT).unwrap();
        assert_each_once(&stack.log.events(), 2);
    });
}

#[test]
fn a_cancel_that_races_with_its_job_gives_one_report() {
    check(|| {
        let stack = stack(2, 1);
        let engine = Arc::clone(&stack.engine);
        let submitted: Vec<_> = (0..2).map(|id| engine.submit(job(id, BYTES, 0, 1))).collect();
        let canceller = thread::spawn(move || engine.cancel(TransferId(1001)));
        let answer = canceller.join().unwrap();
        stack.engine.shutdown(Shutdown::Drain, TIMEOUT).unwrap();
        assert_eq!(submitted, [Submitted::ReportFollows; 2]);
        assert_each_once(&with_answers(&stack.log, [(1, answer)]), 2);
        let frames = stack.store.list().unwrap().len();
        let events = stack.log.events();
        let done = events.iter().filter(|e| matches!(e, Event::TransferDone { .. })).count();
        assert_eq!(frames, done, "what is reported as done is there, and nothing else");
    });
}

#[test]
fn a_shutdown_that_races_with_a_submit_gives_one_report() {
    for how in [Shutdown::Drain, Shutdown::Cancel] {
        check(move || {
            let stack = stack(2, 1);
            let engine = Arc::clone(&stack.engine);
            let submitter =
                thread::spawn(move || [0, 1].map(|id| (id, engine.submit(job(id, BYTES, 0, 1)))));
            stack.engine.shutdown(how, TIMEOUT).unwrap();
            let answers = submitter.join().unwrap();
            assert_each_once(&with_answers(&stack.log, answers), 2);
        });
    }
}

#[test]
fn two_shutdowns_at_once_both_end() {
    check(|| {
        let stack = stack(1, 2);
        let answer = stack.engine.submit(job(0, BYTES, 0, 1));
        let engine = Arc::clone(&stack.engine);
        let other = thread::spawn(move || engine.shutdown(Shutdown::Cancel, TIMEOUT));
        stack.engine.shutdown(Shutdown::Drain, TIMEOUT).unwrap();
        other.join().unwrap().unwrap();
        assert_each_once(&with_answers(&stack.log, [(0, answer)]), 1);
    });
}

#[test]
fn deletions_and_movements_share_nothing_that_can_block() {
    check(|| {
        let stack = stack(2, 1);
        assert_eq!(stack.engine.submit(job(0, BYTES, 0, 1)), Submitted::ReportFollows);
        stack.log.wait_for(1);
        assert_eq!(stack.engine.delete(CheckpointId(0), TierId(1)), Submitted::ReportFollows);
        assert_eq!(stack.engine.submit(job(1, BYTES, 0, 1)), Submitted::ReportFollows);
        stack.log.wait_for(3);
        stack.engine.shutdown(Shutdown::Drain, TIMEOUT).unwrap();
        assert_eq!(stack.store.list().unwrap().len(), 1);
    });
}

#[test]
fn an_alarm_in_the_past_goes_off_at_once() {
    check(|| {
        let stack = stack(0, 1);
        stack.engine.wake_at(Some(Nanos(0)));
        stack.log.wait_for(1);
        stack.engine.shutdown(Shutdown::Cancel, TIMEOUT).unwrap();
        assert_eq!(stack.log.events(), [Event::Tick]);
    });
}

/// A sink with a planted bug: it omits the notification.
#[derive(Default)]
struct Forgetful {
    came: unspool_transfer::sync::Mutex<bool>,
    changed: unspool_transfer::sync::Condvar,
}

impl Sink for Forgetful {
    fn event(&self, _event: Event, _error: Option<TransferError>) {
        *unspool_transfer::sync::lock(&self.came) = true;
    }

    fn span(&self, _span: unspool_transfer::Span) {}
}

#[test]
fn a_planted_lost_wake_up_is_found() {
    let found = catch_unwind(AssertUnwindSafe(|| {
        check(|| {
            let sink = Arc::new(Forgetful::default());
            let host = Arc::new(Arena::new(TierKind::Host, 1 << 16).unwrap());
            fill(&host, 0, BYTES);
            let store = Arc::new(Store::default());
            let tiers = vec![AnyTier::Arena(Arena::clone(&host)), AnyTier::Store(store)];
            let engine = Engine::start(tiers, Options::default(), sink.clone()).unwrap();
            assert_eq!(engine.submit(job(0, BYTES, 0, 1)), Submitted::ReportFollows);
            let mut came = unspool_transfer::sync::lock(&sink.came);
            while !*came {
                came = unspool_transfer::sync::wait(&sink.changed, came);
            }
            drop(came);
            engine.shutdown(Shutdown::Cancel, TIMEOUT).unwrap();
        });
    }));
    assert!(found.is_err(), "a sink that notifies nobody must show as a deadlock");
}

#[test]
fn a_planted_second_report_is_found() {
    let found = catch_unwind(AssertUnwindSafe(|| {
        check(|| {
            let stack = stack(1, 1);
            let answer = stack.engine.submit(job(0, BYTES, 0, 1));
            let _ = stack.engine.cancel(TransferId(1000));
            stack.engine.shutdown(Shutdown::Drain, TIMEOUT).unwrap();
            // The planted bug: every answer to a cancel is taken for a report.
            let events = with_answers(&stack.log, [(0, answer), (0, Submitted::NeverRuns)]);
            assert_each_once(&events, 1);
        });
    }));
    assert!(found.is_err(), "in some schedule the job runs although it was cancelled");
}
