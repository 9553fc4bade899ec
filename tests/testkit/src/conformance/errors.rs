//! Impossible calls are refused for the right reason, and change nothing.

use std::error::Error;

use unspool_core::Failure;

use super::{Fixture, done, refused};
use crate::pattern::Pattern;

pub(super) fn reading_what_is_not_there_is_missing(fixture: &Fixture) {
    let error = refused(fixture.get(1, 0, 10));
    assert_eq!(error.kind(), Failure::Missing, "{error}");
    assert_eq!(refused(fixture.get(1, 0, 0)).kind(), Failure::Missing, "not even no bytes");
}

pub(super) fn deleting_what_is_not_there_is_missing(fixture: &Fixture) {
    done(fixture.put_pattern(1, 10));
    let error = refused(fixture.delete(2));
    assert_eq!(error.kind(), Failure::Missing, "{error}");
    fixture.assert_holds(1, 10);
}

pub(super) fn an_id_has_one_frame(fixture: &Fixture) {
    done(fixture.put_pattern(1, 5000));
    let error = refused(fixture.put(1, b"another"));
    assert_eq!(error.kind(), Failure::Permanent, "{error}");
    fixture.assert_holds(1, 5000);
    assert_eq!(fixture.list(), [(1, 5000)]);
}

pub(super) fn a_read_beyond_the_end_is_refused(fixture: &Fixture) {
    done(fixture.put_pattern(1, 5000));
    for (skip, len) in [(0, 5001), (5000, 1), (4999, 2), (6000, 1), (9000, 0), (u64::MAX, 1)] {
        let error = refused(fixture.get(1, skip, len));
        assert_eq!(error.kind(), Failure::Corrupt, "{len} bytes from {skip}: {error}");
    }
    fixture.assert_holds(1, 5000);
}

pub(super) fn a_deleted_frame_is_gone(fixture: &Fixture) {
    done(fixture.put_pattern(1, 5000));
    done(fixture.put_pattern(2, 5000));
    done(fixture.delete(1));
    assert_eq!(refused(fixture.get(1, 0, 10)).kind(), Failure::Missing);
    assert_eq!(refused(fixture.delete(1)).kind(), Failure::Missing);
    assert_eq!(fixture.list(), [(2, 5000)]);
    fixture.assert_holds(2, 5000);
}

pub(super) fn an_id_may_come_back_with_another_frame(fixture: &Fixture) {
    for (seed, len) in [(1, 9000), (2, 9000), (3, 100), (4, 0), (5, 20_000), (6, 4096)] {
        let bytes = Pattern(seed).bytes(0, len);
        done(fixture.put(7, &bytes));
        fixture.assert_bytes(7, 0, &bytes);
        assert!(fixture.get(7, 0, len + 1).is_err(), "nothing of an earlier frame is left");
        assert_eq!(fixture.list(), [(7, len as u64)]);
        done(fixture.delete(7));
    }
}

pub(super) fn errors_say_what_was_tried_where_and_why(fixture: &Fixture) {
    let error = refused(fixture.get(77, 0, 10));
    assert_eq!(error.operation(), "get");
    let text = error.to_string();
    for word in ["get failed at", "77", error.reason(), error.location()] {
        assert!(!word.is_empty() && text.contains(word), "{word:?} is not in {text:?}");
    }
    assert!(text.ends_with('.'), "{text:?} is not a sentence");
    assert!(error.source().is_none_or(|cause| text.contains(&cause.to_string())), "{text:?}");
}
