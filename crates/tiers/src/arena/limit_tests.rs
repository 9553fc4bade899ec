//! What is refused, and what its text says.

use super::*;

#[test]
fn more_than_there_is_is_refused_with_the_numbers_and_the_option() {
    let error = ArenaPromise::make(TierKind::Host, 1 << 60).unwrap_err();
    assert_eq!(error.kind(), Failure::NoSpace);
    let text = error.to_string();
    assert!(text.contains("host memory"), "{text}");
    assert!(text.contains("were asked for"), "{text}");
    assert!(text.contains("option `host` to at most"), "{text}");
}

#[test]
fn what_is_written_is_no_longer_promised() {
    let promise = ArenaPromise::make(TierKind::Device, 1 << 20).unwrap();
    promise.kept_up_to(1 << 20);
    assert!(format!("{promise:?}").contains("1048576"), "{promise:?}");
}
