//! A recorded run replays; a changed one is reported at its first difference.

mod support;

use support::config;
use unspool_core::trace::{self, ReplayError};
use unspool_core::{Command, Core, Event, Nanos, RequestId, Size, TransferId, Version};

const REQUEST: RequestId = RequestId(1);

/// The events of a small run: two saves, of which one waits for room, and a restore.
fn events() -> Vec<Event> {
    let save = |request, version| Event::Save {
        request,
        version: Version(version),
        bytes: 8,
        size: Size::Exact,
    };
    vec![
        save(REQUEST, 0),
        Event::Saved { request: REQUEST, kept: None },
        save(RequestId(2), 1),
        Event::TransferDone { transfer: TransferId(0), took: Nanos(10) },
        Event::Saved { request: RequestId(2), kept: None },
        Event::Restore { request: RequestId(3), version: Version(0) },
        Event::Restored { request: RequestId(3) },
    ]
}

/// The trace of that run; the writer ends it or dies.
fn record(ended: bool) -> String {
    let settings = config(8, 1, 4, 8);
    let mut text = String::new();
    trace::write_header(&mut text, &settings).expect("a string takes everything");
    let mut core = Core::new(settings).expect("a valid configuration");
    for (at, event) in events().into_iter().enumerate() {
        let (now, mut commands): (_, Vec<Command>) = (Nanos(at as u64 * 100), Vec::new());
        core.step(event, now, &mut commands);
        trace::write_step(&mut text, now, &event, &commands).expect("a string takes everything");
    }
    if ended {
        trace::write_end(&mut text).expect("a string takes everything");
    }
    text
}

fn difference(text: &str) -> trace::Difference {
    match trace::replay(text) {
        Err(ReplayError::Differs(difference)) => *difference,
        other => panic!("no difference: {other:?}"),
    }
}

#[test]
fn a_recorded_run_replays() {
    let report = trace::replay(&record(true)).expect("it replays");
    assert_eq!((report.events, report.last, report.complete), (7, Nanos(600), true));
    assert!(report.commands >= 6, "{report:?}");
}

#[test]
fn a_run_whose_writer_died_replays_as_far_as_it_goes() {
    let text = record(false);
    let cut = text.rfind('>').expect("there are commands");
    let report = trace::replay(&text[..cut + 3]).expect("it replays");
    assert!(!report.complete);
}

#[test]
fn another_command_is_named_with_its_line() {
    let text = record(true).replacen("> grant request=2", "> grant request=9", 1);
    let line = 1 + text.lines().position(|l| l.contains("request=9")).expect("it was changed");
    let event = 1 + text.lines().position(|l| l.starts_with("@300 ")).expect("its event");
    let difference = difference(&text);
    assert_eq!(difference.agreed, line - event - 1, "the copy in its place was evicted first");
    assert_eq!(difference.line, line);
    assert_eq!(difference.now, Nanos(300));
    let message = ReplayError::Differs(Box::new(difference)).to_string();
    assert!(
        message.contains("grant request=9") && message.contains("grant request=2"),
        "{message}"
    );
}

#[test]
fn a_command_that_was_not_recorded_and_one_too_many_are_differences() {
    let text = record(true);
    let missing = difference(&text.replacen("> grant", "# grant", 1));
    assert_eq!((missing.recorded, missing.agreed), (None, 0));
    assert!(matches!(missing.replayed, Some(Command::Grant { request: REQUEST, .. })));
    let extra = difference(&text.replacen("end\n", "> flush-done request=3\nend\n", 1));
    assert_eq!(extra.recorded, Some(Command::FlushDone { request: RequestId(3) }));
}

#[test]
fn settings_that_no_core_can_have_are_refused() {
    let text = record(true).replacen("alignment=1", "alignment=3", 1);
    let error = trace::replay(&text).expect_err("the alignment is not a power of two");
    assert!(matches!(error, ReplayError::Config(_)), "{error}");
    assert!(error.to_string().starts_with("the settings in the trace"), "{error}");
}
