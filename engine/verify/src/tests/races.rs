//! Races and mistakes that must be found.

use alloc::string::ToString;

use super::*;

/// The names and the shared bytes of a race.
fn names_and_bytes(race: &Race) -> (&str, &str, u64, u64) {
    (&race.earlier.what, &race.later.what, race.first, race.end)
}

#[test]
fn a_read_of_a_write_that_is_not_finished() {
    let found = race(&[writes(USER, (0, 100), "save"), reads(FLUSH, (40, 200), "flush")]);
    assert_eq!(names_and_bytes(&found), ("save", "flush", 40, 100));
    assert!(found.earlier.write && !found.later.write && !found.too_early);
}

#[test]
fn a_write_over_bytes_that_another_stream_still_reads() {
    let ops = [
        writes(USER, (0, 100), "save"),
        record(1, USER),
        wait(FLUSH, 1),
        reads(FLUSH, (0, 100), "flush"),
        writes(USER, (90, 110), "next save"),
    ];
    assert_eq!(names_and_bytes(&race(&ops)), ("flush", "next save", 90, 100));
}

#[test]
fn a_write_over_a_write_of_another_stream() {
    let found = race(&[writes(USER, (0, 8), "save"), writes(FETCH, (0, 8), "prefetch")]);
    assert!(found.earlier.write && found.later.write);
}

#[test]
fn a_reuse_of_evicted_bytes_before_the_restore_out_of_them_is_done() {
    let ops = [
        writes(FETCH, (0, 64), "prefetch of 1"),
        record(1, FETCH),
        wait(HOST, 1),
        reads(USER, (0, 64), "restore of 1"),
        record(2, USER),
        writes(FETCH, (32, 96), "prefetch of 2"),
    ];
    assert_eq!(names_and_bytes(&race(&ops)), ("restore of 1", "prefetch of 2", 32, 64));
}

#[test]
fn an_event_that_was_recorded_too_early() {
    let ops = [
        writes(USER, (0, 8), "save"),
        record(1, USER),
        writes(USER, (8, 16), "late part"),
        wait(FLUSH, 1),
        reads(FLUSH, (0, 16), "flush"),
    ];
    let found = race(&ops);
    assert_eq!(names_and_bytes(&found), ("late part", "flush", 8, 16));
    assert!(found.too_early);
    let text = check(&ops).unwrap_err().to_string();
    assert!(text.contains("but for an event of before that"), "{text}");
}

#[test]
fn a_wait_for_the_event_of_another_stream() {
    let ops = [
        writes(USER, (0, 8), "save"),
        record(1, USER),
        record(2, FETCH),
        wait(FLUSH, 2),
        reads(FLUSH, (0, 8), "flush"),
    ];
    let found = race(&ops);
    assert_eq!(names_and_bytes(&found), ("save", "flush", 0, 8));
    assert!(!found.too_early);
}

#[test]
fn a_wait_by_another_stream_than_the_one_that_reads() {
    let ops = [
        writes(USER, (0, 8), "save"),
        record(1, USER),
        wait(FETCH, 1),
        reads(FLUSH, (0, 8), "flush"),
    ];
    assert_eq!(race(&ops).later.by, FLUSH);
}

#[test]
fn a_wait_that_is_enqueued_after_the_read() {
    let ops = [writes(USER, (0, 8), "save"), record(1, USER), reads(FLUSH, (0, 8), "flush")];
    assert_eq!(race(&ops).earlier.op, 0);
}

#[test]
fn the_host_touching_a_pinned_buffer_whose_copy_is_not_finished() {
    let pinned = |by, write, what| access(by, Space::Host, (4096, 8192), write, what);
    let reading = [pinned(FLUSH, true, "flush"), record(1, FLUSH), pinned(HOST, false, "read")];
    assert_eq!(names_and_bytes(&race(&reading)), ("flush", "read", 4096, 8192));
    let filling = [pinned(FETCH, false, "prefetch"), pinned(HOST, true, "save from host")];
    assert_eq!(names_and_bytes(&race(&filling)), ("prefetch", "save from host", 4096, 8192));
}

#[test]
fn one_of_several_reads_that_was_not_waited_for() {
    let ops = [
        reads(USER, (0, 8), "restore"),
        reads(FLUSH, (0, 8), "flush"),
        record(1, USER),
        record(2, FLUSH),
        wait(FETCH, 1),
        writes(FETCH, (0, 8), "prefetch"),
    ];
    assert_eq!(names_and_bytes(&race(&ops)), ("flush", "prefetch", 0, 8));
}

#[test]
fn a_write_in_the_middle_of_a_range_that_is_otherwise_in_order() {
    let ops = [
        writes(USER, (0, 100), "save"),
        writes(FLUSH, (200, 300), "elsewhere"),
        writes(FETCH, (100, 103), "prefetch"),
        reads(USER, (10, 150), "restore"),
    ];
    assert_eq!(names_and_bytes(&race(&ops)), ("prefetch", "restore", 100, 103));
}

#[test]
fn shared_bytes_are_reported_across_ranges_that_reads_have_split() {
    let ops = [
        writes(USER, (0, 100), "save"),
        reads(USER, (20, 40), "restore of a part"),
        writes(FETCH, (0, 200), "prefetch"),
    ];
    assert_eq!(names_and_bytes(&race(&ops)), ("save", "prefetch", 0, 100));
}

#[test]
fn a_wait_for_an_event_that_was_never_recorded() {
    let violation = check(&[wait(FLUSH, 9)]).unwrap_err();
    assert_eq!(violation.fault, Fault::UnknownEvent { by: FLUSH, event: 9 });
    assert!(violation.to_string().contains("event 9, which was never recorded"));
    let forgotten = [record(9, USER), Op::Forget { event: 9 }, wait(FLUSH, 9)];
    assert_eq!(check(&forgotten).unwrap_err().op, 2);
}

#[test]
fn a_number_that_is_used_for_two_recordings() {
    let violation = check(&[record(9, USER), record(9, FLUSH)]).unwrap_err();
    assert_eq!(violation.fault, Fault::RecordedTwice { on: FLUSH, event: 9 });
    assert!(violation.to_string().contains("number every recording anew"));
}

#[test]
fn a_range_that_ends_before_it_begins() {
    let violation = check(&[writes(USER, (8, 7), "save")]).unwrap_err();
    assert_eq!(violation.fault, Fault::Backwards { first: 8, end: 7 });
    assert!(violation.to_string().contains("0x8..0x7"));
    assert!(check(&[Op::Arena { space: DEVICE, first: 8, end: 7 }]).is_err());
}

#[test]
fn a_race_inside_one_of_several_arenas() {
    let ops = [
        Op::Arena { space: Space::Host, first: 0, end: 10 },
        Op::Arena { space: DEVICE, first: 100, end: 200 },
        Op::Arena { space: DEVICE, first: 1000, end: 1100 },
        writes(USER, (150, 160), "save"),
        reads(FLUSH, (90, 151), "flush"),
    ];
    assert_eq!(names_and_bytes(&race(&ops)), ("save", "flush", 150, 151));
}

#[test]
fn the_check_goes_on_after_a_violation() {
    let mut checker = Checker::new();
    assert!(checker.see(&writes(USER, (0, 8), "one")).is_ok());
    assert!(checker.see(&writes(FLUSH, (0, 8), "two")).is_err());
    assert!(checker.see(&reads(FLUSH, (0, 8), "in order")).is_ok());
    assert!(checker.see(&reads(FETCH, (0, 8), "three")).is_err());
}

#[test]
fn a_violation_says_who_what_where_and_what_to_do() {
    let ops = [writes(USER, (4096, 8192), "save of 3"), reads(FLUSH, (0, 5000), "flush of 3")];
    assert_eq!(
        check(&ops).unwrap_err().to_string(),
        "\"flush of 3\" (operation 1, stream 0x2 reads) is not ordered after \"save of 3\" \
         (operation 0, stream 0x1 writes): both touch 904 bytes of device 0, 0x1000..0x1388; \
         record an event on stream 0x1 after operation 0 and let stream 0x2 wait for it before \
         operation 1"
    );
}
