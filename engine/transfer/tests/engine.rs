//! The guarantees of the engine, with real threads.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Fault, Log, Store, content, fill, frame, job, reports};
use unspool_core::{CheckpointId, Event, Failure, Nanos, TierId, TierKind, TransferId};
use unspool_tiers::{AnyTier, Arena, Tier};
use unspool_transfer::{
    Clock, Engine, ManualClock, Options, Pool, Shutdown, Submitted, read_frame, write_frame,
};

const BYTES: u64 = 10_000;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Device and host arenas with a store below them.
struct Stack {
    device: Arc<Arena>,
    host: Arc<Arena>,
    store: Arc<Store>,
    log: Arc<Log>,
    clock: Arc<ManualClock>,
    engine: Engine,
}

fn stack_with(options: Options) -> Stack {
    let arena = |kind| Arc::new(Arena::new(kind, 64 * BYTES).expect("small"));
    let (device, host) = (arena(TierKind::Device), arena(TierKind::Host));
    let (store, log) = (Arc::new(Store::default()), Arc::new(Log::default()));
    let clock = Arc::new(ManualClock::default());
    let arena = |arena: &Arc<Arena>| AnyTier::Arena(Arena::clone(arena));
    let tiers = vec![arena(&device), arena(&host), AnyTier::Store(store.clone())];
    let options = Options { clock: clock.clone(), ..options };
    let engine = Engine::start(tiers, options, log.clone()).expect("threads");
    Stack { device, host, store, log, clock, engine }
}

fn stack() -> Stack {
    stack_with(Options { in_flight: 64, ..Options::default() })
}

impl Stack {
    fn submit(&self, job: unspool_transfer::Job) {
        assert_eq!(self.engine.submit(job), Submitted::ReportFollows);
    }

    fn one_report(&self) -> (Event, Option<String>) {
        self.log.wait_for(1).remove(0)
    }
}

#[test]
fn bytes_go_down_to_the_store_and_come_back_unchanged() {
    let stack = stack();
    fill(&stack.device, 1, BYTES);
    let down = job(1, BYTES, 0, 1);
    stack.submit(down.clone());
    stack.log.wait_for(1);
    stack.submit(unspool_transfer::Job { transfer: TransferId(2), ..job(1, BYTES, 1, 2) });
    stack.log.wait_for(2);
    stack.host.forget(CheckpointId(1)).unwrap();
    stack.submit(unspool_transfer::Job { transfer: TransferId(3), ..job(1, BYTES, 2, 1) });
    stack.log.wait_for(3);
    assert_eq!(stack.host.read(CheckpointId(1)).unwrap().bytes().unwrap(), &content(1, BYTES)[..]);
    assert!(stack.log.events().iter().all(|e| matches!(e, Event::TransferDone { .. })));
}

#[test]
fn a_flush_may_skip_a_tier() {
    let stack = stack();
    fill(&stack.device, 1, BYTES);
    stack.submit(job(1, BYTES, 0, 2));
    assert!(matches!(stack.one_report().0, Event::TransferDone { .. }));
    assert_eq!(stack.store.list().unwrap().len(), 1);
}

#[test]
fn an_empty_checkpoint_moves_like_any_other() {
    let stack = stack();
    fill(&stack.host, 1, 0);
    stack.submit(job(1, 0, 1, 2));
    stack.log.wait_for(1);
    stack.host.forget(CheckpointId(1)).unwrap();
    stack.submit(unspool_transfer::Job { transfer: TransferId(3), ..job(1, 0, 2, 1) });
    stack.log.wait_for(2);
    assert!(stack.log.events().iter().all(|e| matches!(e, Event::TransferDone { .. })));
    assert_eq!(stack.host.read(CheckpointId(1)).unwrap().len(), 0);
}

#[test]
fn one_store_can_be_moved_into_another() {
    let (near, far) = (Arc::new(Store::default()), Arc::new(Store::default()));
    let log = Arc::new(Log::default());
    let tiers = vec![AnyTier::Store(near.clone()), AnyTier::Store(far.clone())];
    let engine = Engine::start(tiers, Options::default(), log.clone()).unwrap();
    let moved = job(5, BYTES, 0, 1);
    let buffers = Pool::new(1 << 20);
    write_frame(&*near, CheckpointId(5), &moved.frame, &content(5, BYTES), None, &buffers).unwrap();
    assert_eq!(engine.submit(moved), Submitted::ReportFollows);
    assert!(matches!(log.wait_for(1)[0].0, Event::TransferDone { .. }));
    let mut out = vec![0; BYTES as usize];
    let frame = frame(5, BYTES);
    read_frame(&*far, CheckpointId(5), &frame, true, &mut out, &buffers).unwrap();
    assert_eq!(out, content(5, BYTES));
}

#[test]
fn a_failure_of_the_medium_is_reported_with_its_place_and_leaves_nothing() {
    let stack = stack();
    fill(&stack.host, 1, BYTES);
    stack.store.fail_next(Fault::Fail(Failure::NoSpace));
    stack.submit(job(1, BYTES, 1, 2));
    let (event, text) = stack.one_report();
    let failure = Failure::NoSpace;
    assert_eq!(event, Event::TransferFailed { transfer: TransferId(1001), failure });
    let text = text.unwrap();
    for part in ["flush of version 1", "9.77 KiB", "from host to disk", "put failed at fake"] {
        assert!(text.contains(part), "{part:?} is missing in {text:?}");
    }
    assert!(stack.store.list().unwrap().is_empty());
    assert!(stack.host.read(CheckpointId(1)).is_ok(), "the source is as it was");
}

#[test]
fn changed_bytes_are_found_in_payload_and_head() {
    for byte in [20, 4096 + 77] {
        let stack = stack();
        fill(&stack.host, 1, BYTES);
        stack.submit(job(1, BYTES, 1, 2));
        stack.log.wait_for(1);
        stack.host.forget(CheckpointId(1)).unwrap();
        stack.store.damage(CheckpointId(1), byte);
        stack.submit(unspool_transfer::Job { transfer: TransferId(3), ..job(1, BYTES, 2, 1) });
        let (event, _) = stack.log.wait_for(2).remove(1);
        let failure = Failure::Corrupt;
        assert_eq!(event, Event::TransferFailed { transfer: TransferId(3), failure });
        assert!(stack.host.read(CheckpointId(1)).is_err(), "the target holds nothing");
    }
}

#[test]
fn a_frame_that_is_not_the_expected_one_is_refused() {
    let stack = stack();
    for id in [1, 2] {
        fill(&stack.host, id, BYTES);
        stack.submit(job(id, BYTES, 1, 2));
    }
    stack.log.wait_for(2);
    stack.store.swap(CheckpointId(1), CheckpointId(2));
    stack.host.forget(CheckpointId(1)).unwrap();
    stack.submit(unspool_transfer::Job { transfer: TransferId(3), ..job(1, BYTES, 2, 1) });
    let (event, text) = stack.log.wait_for(3).remove(2);
    assert!(matches!(event, Event::TransferFailed { failure: Failure::Corrupt, .. }));
    assert!(text.unwrap().contains("describes another checkpoint"));
}

#[test]
fn the_same_head_with_an_older_payload_is_refused() {
    let (store, buffers) = (Store::default(), Pool::new(1 << 20));
    let (old, new) = (frame(1, BYTES), frame(1, BYTES));
    write_frame(&store, CheckpointId(1), &old, &content(1, BYTES), None, &buffers).unwrap();
    write_frame(&store, CheckpointId(2), &new, &content(2, BYTES), None, &buffers).unwrap();
    store.swap(CheckpointId(1), CheckpointId(2));
    let mut out = vec![0; BYTES as usize];
    for verify in [false, true] {
        let read = read_frame(&store, CheckpointId(1), &old, verify, &mut out, &buffers);
        assert_eq!(read.unwrap_err().kind(), Failure::Corrupt);
    }
}

#[test]
fn without_verify_the_payload_is_taken_as_it_is() {
    let (store, buffers) = (Store::default(), Pool::new(1 << 20));
    let frame = frame(1, BYTES);
    write_frame(&store, CheckpointId(1), &frame, &content(1, BYTES), None, &buffers).unwrap();
    store.damage(CheckpointId(1), 5000);
    let mut out = vec![0; BYTES as usize];
    assert!(read_frame(&store, CheckpointId(1), &frame, false, &mut out, &buffers).is_ok());
    assert!(read_frame(&store, CheckpointId(1), &frame, true, &mut out, &buffers).is_err());
}

#[test]
fn a_panic_of_a_worker_is_a_permanent_failure_and_the_worker_goes_on() {
    let stack = stack_with(Options { store_workers: 1, ..Options::default() });
    fill(&stack.host, 1, BYTES);
    fill(&stack.host, 2, BYTES);
    stack.store.fail_next(Fault::Panic);
    stack.submit(job(1, BYTES, 1, 2));
    stack.submit(job(2, BYTES, 1, 2));
    let reports = stack.log.wait_for(2);
    let failure = Failure::Permanent;
    assert_eq!(reports[0].0, Event::TransferFailed { transfer: TransferId(1001), failure });
    assert!(reports[0].1.as_ref().unwrap().contains("the store panics as planned"));
    assert!(matches!(reports[1].0, Event::TransferDone { .. }));
}

#[test]
fn jobs_of_a_lane_begin_in_order() {
    let stack = stack_with(Options { store_workers: 1, in_flight: 64, ..Options::default() });
    for id in 0..20 {
        fill(&stack.host, id, BYTES);
        stack.submit(job(id, BYTES, 1, 2));
    }
    stack.log.wait_for(20);
    assert_eq!(stack.store.puts(), (0..20).map(CheckpointId).collect::<Vec<_>>());
}

#[test]
fn a_prefetch_does_not_wait_for_flushes() {
    let stack = stack_with(Options { in_flight: 64, ..Options::default() });
    let other = job(9, BYTES, 1, 0);
    fill(&stack.host, 9, BYTES);
    stack.store.shut();
    for id in 0..4 {
        fill(&stack.host, id, BYTES);
        stack.submit(job(id, BYTES, 1, 2));
    }
    stack.store.wait_for_waiting(2);
    stack.submit(other);
    let transfer = TransferId(1009);
    assert_eq!(stack.one_report().0, Event::TransferDone { transfer, took: Nanos(0) });
    stack.store.open();
    stack.log.wait_for(5);
}

#[test]
fn a_job_that_has_not_begun_is_dropped_by_a_cancel() {
    let stack = stack_with(Options { store_workers: 1, ..Options::default() });
    stack.store.shut();
    for id in 1..=2 {
        fill(&stack.host, id, BYTES);
        stack.submit(job(id, BYTES, 1, 2));
    }
    stack.store.wait_for_waiting(1);
    assert_eq!(stack.engine.cancel(TransferId(1002)), Submitted::NeverRuns);
    assert_eq!(stack.engine.cancel(TransferId(1001)), Submitted::ReportFollows);
    assert_eq!(stack.engine.cancel(TransferId(77)), Submitted::ReportFollows);
    stack.store.open();
    stack.engine.shutdown(Shutdown::Drain, TIMEOUT).unwrap();
    assert_eq!(reports(&stack.log.events()).len(), 1);
    assert_eq!(stack.store.puts(), [CheckpointId(1)]);
}

#[test]
fn a_drain_does_everything_and_a_cancel_reports_everything() {
    for how in [Shutdown::Drain, Shutdown::Cancel] {
        let stack = stack_with(Options { store_workers: 1, in_flight: 64, ..Options::default() });
        stack.store.shut();
        for id in 0..10 {
            fill(&stack.host, id, BYTES);
            stack.submit(job(id, BYTES, 1, 2));
        }
        stack.store.wait_for_waiting(1);
        std::thread::scope(|scope| {
            let ended = scope.spawn(|| stack.engine.shutdown(how, TIMEOUT));
            if how == Shutdown::Cancel {
                stack.log.wait_for(9);
            }
            stack.store.open();
            ended.join().unwrap().unwrap();
        });
        let events = stack.log.events();
        let count = reports(&events);
        assert!(count.len() == 10 && count.values().all(|&n| n == 1), "{events:?}");
        let stored = if how == Shutdown::Drain { 10 } else { 1 };
        assert_eq!(stack.store.list().unwrap().len(), stored);
        assert_eq!(stack.engine.submit(job(11, BYTES, 1, 2)), Submitted::NeverRuns);
        assert_eq!(stack.engine.delete(CheckpointId(1), TierId(2)), Submitted::NeverRuns);
        stack.engine.shutdown(how, TIMEOUT).unwrap();
    }
}

#[test]
fn a_shutdown_that_takes_too_long_names_what_runs() {
    let stack = stack();
    stack.store.shut();
    fill(&stack.host, 4, BYTES);
    stack.submit(job(4, BYTES, 1, 2));
    stack.store.wait_for_waiting(1);
    let result = std::thread::scope(|scope| {
        let ended = scope.spawn(|| stack.engine.shutdown(Shutdown::Cancel, Duration::from_secs(3)));
        while !ended.is_finished() {
            stack.clock.advance(Duration::from_secs(1));
            std::thread::yield_now();
        }
        stack.store.open();
        ended.join().unwrap()
    });
    let error = result.unwrap_err().to_string();
    for part in ["The workers have not ended", "flush of version 4", "on host-disk for"] {
        assert!(error.contains(part), "{part:?} is missing in {error:?}");
    }
}

#[test]
fn a_deletion_is_reported_also_when_it_fails() {
    let stack = stack();
    fill(&stack.host, 1, BYTES);
    stack.submit(job(1, BYTES, 1, 2));
    stack.log.wait_for(1);
    for _ in 0..2 {
        assert_eq!(stack.engine.delete(CheckpointId(1), TierId(2)), Submitted::ReportFollows);
    }
    let reports = stack.log.wait_for(3);
    let deleted = Event::Deleted { checkpoint: CheckpointId(1), tier: TierId(2) };
    assert_eq!(reports[1], (deleted, None));
    assert_eq!(reports[2].0, deleted);
    assert!(reports[2].1.as_ref().unwrap().contains("no such frame"));
}

#[test]
fn the_alarm_goes_off_once_and_not_before_its_time() {
    let stack = stack();
    stack.engine.wake_at(Some(Nanos(5_000_000_000)));
    stack.clock.advance(Duration::from_secs(4));
    assert!(stack.log.events().is_empty());
    stack.engine.wake_at(Some(Nanos(6_000_000_000)));
    stack.clock.advance(Duration::from_secs(2));
    assert_eq!(stack.one_report().0, Event::Tick);
    stack.engine.wake_at(Some(Nanos(9_000_000_000)));
    stack.engine.wake_at(None);
    stack.clock.advance(Duration::from_secs(9));
    stack.engine.shutdown(Shutdown::Drain, TIMEOUT).unwrap();
    assert_eq!(stack.log.events(), [Event::Tick]);
}

#[test]
fn spans_distinguish_waiting_from_working() {
    let stack =
        stack_with(Options { store_workers: 1, trace: true, in_flight: 64, ..Options::default() });
    stack.store.shut();
    for id in 1..=2 {
        fill(&stack.host, id, BYTES);
        stack.submit(job(id, BYTES, 1, 2));
    }
    stack.store.wait_for_waiting(1);
    stack.clock.advance(Duration::from_secs(1));
    stack.store.open();
    stack.log.wait_for(2);
    let spans = stack.log.spans();
    assert_eq!((&*spans[0].lane, spans[0].label, spans[0].outcome), ("host-disk", "flush", "done"));
    assert_eq!((spans[0].version, spans[0].bytes), (Some(1), BYTES));
    assert_eq!(spans[0].tier, TierKind::Disk);
    assert_eq!((spans[0].queued, spans[0].start), (Nanos(0), Nanos(0)));
    assert_eq!(spans[0].end, Nanos(1_000_000_000));
    assert_eq!((spans[1].queued, spans[1].start), (Nanos(0), Nanos(1_000_000_000)));
    assert_eq!(stack.clock.now(), Nanos(1_000_000_000));
}

#[test]
fn without_trace_there_are_no_spans() {
    let stack = stack();
    fill(&stack.host, 1, BYTES);
    stack.submit(job(1, BYTES, 1, 2));
    stack.log.wait_for(1);
    assert!(stack.log.spans().is_empty());
}

#[test]
fn dropping_the_engine_does_not_wait_for_a_stuck_medium() {
    let stack = stack();
    stack.store.shut();
    fill(&stack.host, 1, BYTES);
    stack.submit(job(1, BYTES, 1, 2));
    stack.store.wait_for_waiting(1);
    drop(stack.engine);
    assert!(stack.log.events().is_empty(), "the job still runs");
    stack.store.open();
    assert!(matches!(stack.log.wait_for(1)[0].0, Event::TransferDone { .. }));
}

/// More than two of the pieces that a payload is read and checked in.
const LONG: u64 = (40 << 20) + 5;

#[test]
fn a_long_payload_is_checked_in_pieces_as_a_whole() {
    let (store, buffers, frame) = (Store::default(), Pool::new(64 << 20), frame(1, LONG));
    let wanted = content(1, LONG);
    write_frame(&store, CheckpointId(1), &frame, &wanted, None, &buffers).unwrap();
    let mut out = vec![0; LONG as usize];
    let mut read = || {
        let done = read_frame(&store, CheckpointId(1), &frame, true, &mut out, &buffers);
        done.map(|()| assert!(out == wanted)).map_err(|error| error.kind())
    };
    assert_eq!(read(), Ok(()));
    // Behind the head, in the second piece, and the last byte.
    for byte in [4096, 4096 + (20 << 20), 4096 + LONG as usize - 1] {
        store.damage(CheckpointId(1), byte);
        assert_eq!(read(), Err(Failure::Corrupt), "byte {byte}");
        store.damage(CheckpointId(1), byte);
    }
    store.fail_after(1, Fault::Fail(Failure::Io));
    assert_eq!(read(), Err(Failure::Io), "the second request fails");
    assert_eq!(read(), Ok(()));
}
