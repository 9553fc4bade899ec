//! The memory of a long check: it grows with the unfinished work, not with the length of the run.

use super::*;

const ROOMS: u64 = 64;
const BYTES: u64 = 1 << 20;

/// One checkpoint of a run: saved on the user's stream into a room of the device arena, flushed by
/// a worker that waits for its fence, and the room reused.
fn checkpoint(number: u64, stream: Agent) -> [Op; 10] {
    let first = number % ROOMS * BYTES + number % 7;
    let room = (first, first + BYTES - 7);
    let pinned = |by, write, what| access(by, Space::Host, room, write, what);
    let (fence, done) = (2 * number, 2 * number + 1);
    [
        writes(stream, room, "save"),
        record(fence, stream),
        wait(FLUSH, fence),
        reads(FLUSH, room, "flush from the device"),
        pinned(FLUSH, true, "flush to the host"),
        record(done, FLUSH),
        wait(HOST, done),
        pinned(HOST, false, "write to the disk"),
        reads(stream, room, "restore"),
        writes(stream, (first, first + 10), "save of a small one"),
    ]
}

fn run(checker: &mut Checker, numbers: core::ops::Range<u64>, streams: u64) {
    for number in numbers {
        for op in checkpoint(number, Agent::Stream(10 + number % streams)) {
            checker.see(&op).unwrap();
        }
    }
}

#[test]
fn a_run_of_a_million_operations_keeps_no_more_than_a_short_one() {
    let mut checker = Checker::new();
    run(&mut checker, 0..2_000, 1);
    let short = checker.kept();
    run(&mut checker, 2_000..100_000, 1);
    assert!(checker.kept() <= short + 8_000, "{} after {short}", checker.kept());
    assert_eq!(checker.counted().ops, 1_000_000);
}

#[test]
fn forgotten_events_and_names_are_kept_no_longer() {
    let mut checker = Checker::compacting(16);
    for event in 0..10_000 {
        checker.see(&record(event, Agent::Stream(event % 3))).unwrap();
        checker.see(&Op::Forget { event }).unwrap();
    }
    assert!(checker.kept() < 100, "{}", checker.kept());
}

#[test]
fn streams_that_come_and_go_are_kept_no_longer_than_the_host_knows_all_of_them() {
    let mut checker = Checker::compacting(16);
    for number in 0..10_000 {
        let stream = Agent::Stream(number);
        checker.see(&writes(stream, (0, 8), "save")).unwrap();
        checker.see(&record(number, stream)).unwrap();
        checker.see(&wait(HOST, number)).unwrap();
    }
    assert!(checker.kept() < 200, "{}", checker.kept());
    let late = checker.see(&writes(Agent::Stream(5), (0, 8), "save"));
    assert_eq!(late, Ok(()));
    assert!(checker.see(&reads(Agent::Stream(6), (0, 8), "flush")).is_err());
}

#[test]
fn an_event_of_which_the_host_knows_everything_may_be_waited_for_after_compactions() {
    let mut checker = Checker::compacting(1);
    for op in [writes(USER, (0, 8), "save"), record(1, USER), wait(HOST, 1), wait(HOST, 1)] {
        checker.see(&op).unwrap();
    }
    assert_eq!(checker.see(&wait(FLUSH, 1)), Ok(()));
    let again = checker.see(&record(1, USER)).map_err(|violation| violation.fault);
    assert_eq!(again, Err(Fault::RecordedTwice { on: USER, event: 1 }));
}
