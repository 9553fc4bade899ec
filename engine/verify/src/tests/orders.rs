//! Orders in which no violation must be found.

use super::*;

/// The counters of a run without a violation.
fn sound(ops: &[Op]) -> crate::Counted {
    match check(ops) {
        Ok(checker) => checker.counted(),
        Err(violation) => panic!("{violation}"),
    }
}

#[test]
fn one_stream_is_in_order_with_itself() {
    let ops = [
        writes(USER, (0, 8), "save"),
        reads(USER, (0, 8), "restore"),
        writes(USER, (4, 12), "save"),
    ];
    assert_eq!(sound(&ops).bytes, 24);
}

#[test]
fn a_wait_orders_with_everything_before_the_recording() {
    let ops = [
        writes(USER, (0, 8), "save"),
        writes(USER, (8, 16), "save"),
        record(1, USER),
        wait(FLUSH, 1),
        reads(FLUSH, (0, 16), "flush"),
        record(2, FLUSH),
        wait(USER, 2),
        writes(USER, (0, 16), "save"),
    ];
    let counted = sound(&ops);
    assert_eq!((counted.ops, counted.records, counted.waits, counted.accesses), (8, 2, 2, 4));
}

#[test]
fn order_passes_through_a_third_stream() {
    let ops = [
        writes(USER, (0, 8), "save"),
        record(1, USER),
        wait(FLUSH, 1),
        record(2, FLUSH),
        wait(FETCH, 2),
        writes(FETCH, (0, 8), "prefetch"),
    ];
    assert_eq!(sound(&ops).accesses, 2);
}

#[test]
fn what_the_host_waited_for_is_before_all_that_it_enqueues_later() {
    let ops = [
        writes(FETCH, (0, 8), "prefetch"),
        record(1, FETCH),
        wait(HOST, 1),
        reads(USER, (0, 8), "restore"),
        reads(FLUSH, (0, 8), "flush"),
        reads(HOST, (0, 8), "look"),
    ];
    assert_eq!(sound(&ops).accesses, 4);
}

#[test]
fn what_the_host_did_is_before_all_that_it_enqueues_later() {
    let ops = [
        writes(USER, (100, 108), "before"),
        writes(HOST, (0, 8), "fill"),
        reads(USER, (0, 8), "copy in"),
        record(1, USER),
        wait(HOST, 1),
        writes(HOST, (0, 8), "fill again"),
        reads(FLUSH, (0, 8), "copy in"),
    ];
    assert_eq!(sound(&ops).accesses, 5);
}

#[test]
fn a_wait_for_all_orders_with_everything_before_it_and_nothing_after() {
    let ops = [
        writes(USER, (0, 8), "save"),
        writes(FLUSH, (8, 16), "flush"),
        Op::WaitAll,
        writes(FETCH, (0, 16), "prefetch"),
    ];
    assert_eq!(sound(&ops).waits, 1);
    assert!(check(&[ops[2], ops[0], ops[3]]).is_err());
    assert!(check(&[ops[0], ops[2], ops[0], ops[3]]).is_err());
}

#[test]
fn reads_need_no_order_among_each_other() {
    let ops = [reads(USER, (0, 8), "a"), reads(FLUSH, (0, 8), "b"), reads(HOST, (0, 8), "c")];
    assert_eq!(sound(&ops).accesses, 3);
}

#[test]
fn disjoint_bytes_and_other_memories_do_not_meet() {
    let ops = [
        writes(USER, (0, 8), "a"),
        writes(FLUSH, (8, 16), "b"),
        access(FETCH, Space::Device(1), (0, 16), true, "c"),
        access(FETCH, Space::Host, (0, 16), true, "d"),
        writes(FETCH, (4, 4), "nothing"),
    ];
    assert_eq!(sound(&ops).accesses, 4);
}

#[test]
fn a_recording_on_the_host_stands_for_what_the_host_knows() {
    let ops = [
        writes(HOST, (0, 8), "fill"),
        record(1, HOST),
        wait(USER, 1),
        writes(USER, (0, 8), "save"),
    ];
    assert_eq!(sound(&ops).records, 1);
}

#[test]
fn memory_outside_the_arenas_is_the_users() {
    let ops = [
        Op::Arena { space: DEVICE, first: 100, end: 200 },
        writes(USER, (0, 100), "restore"),
        writes(FLUSH, (0, 100), "restore"),
        access(FLUSH, Space::Host, (100, 200), true, "flush"),
        writes(USER, (100, 101), "save"),
    ];
    let counted = sound(&ops);
    assert_eq!((counted.accesses, counted.foreign), (1, 3));
}

#[test]
fn a_forgotten_event_may_have_been_waited_for_before() {
    let ops = [
        writes(USER, (0, 8), "save"),
        record(1, USER),
        wait(FLUSH, 1),
        Op::Forget { event: 1 },
        reads(FLUSH, (0, 8), "flush"),
        Op::Forget { event: 77 },
    ];
    assert_eq!(sound(&ops).ops, 6);
}
