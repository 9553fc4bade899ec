//! The text form: written and read without loss, and nothing else is read.

use std::borrow::Cow;
use std::prelude::v1::*;

use proptest::prelude::*;

use super::*;
use crate::{TextError, Trouble, check_text, parse_op, write_header, write_op};

fn text_of<What: AsRef<str>>(ops: &[Op<What>]) -> String {
    let mut text = String::new();
    write_header(&mut text).unwrap();
    ops.iter().for_each(|op| write_op(&mut text, op).unwrap());
    text
}

#[test]
fn every_kind_of_operation_has_its_line() {
    let ops = [
        Op::Arena { space: DEVICE, first: 0, end: 1 << 40 },
        writes(Agent::Stream(0x55d0), (16, 32), "save of a region"),
        access(HOST, Space::Host, (1, 2), false, ""),
        record(17, USER),
        wait(HOST, 17),
        Op::Forget { event: 17 },
        Op::WaitAll,
    ];
    let lines = "unspool-order 1\n\
        arena device:0 0x0..0x10000000000\n\
        write stream:0x55d0 device:0 0x10..0x20 save of a region\n\
        read host host 0x1..0x2 \n\
        record 17 stream:0x1\n\
        wait host 17\n\
        forget 17\n\
        wait-all\n";
    assert_eq!(text_of(&ops), lines);
    let verdict = check_text(lines).unwrap();
    assert_eq!((verdict.counted.ops, verdict.agents.len()), (7, 3));
}

#[test]
fn a_verdict_is_written_with_its_counters() {
    let ops = [writes(USER, (0, 8), "save"), record(1, USER), wait(HOST, 1)];
    let text = check_text(&text_of(&ops)).unwrap().to_string();
    assert!(text.starts_with("operations: 3, by the host and streams: 1\n"), "{text}");
    assert!(text.contains("recordings: 1, waits: 1") && text.contains("total: 8"), "{text}");
}

#[test]
fn a_violation_is_written_with_its_line() {
    let ops = [writes(USER, (0, 8), "save"), reads(FLUSH, (0, 8), "flush")];
    let text = text_of(&ops).replacen('\n', "\n# a remark\n\n", 1);
    let error = check_text(&text).unwrap_err();
    assert_eq!(error.line, 5);
    assert!(matches!(error.trouble, Trouble::Order(_)));
    assert!(error.to_string().starts_with("line 5: \"flush\" (operation 1, "), "{error}");
}

#[test]
fn more_bytes_than_can_be_counted_are_counted_as_very_many() {
    let whole = access(USER, Space::Host, (0, u64::MAX), false, "everything");
    let verdict = check_text(&text_of(&[whole, whole, whole])).unwrap();
    assert_eq!(verdict.counted.bytes, u64::MAX);
}

#[test]
fn a_text_of_another_form_is_refused() {
    for text in ["", "\n", "unspool-order 2\n", "unspool-trace 1\n", " unspool-order 1"] {
        let error = check_text(text).unwrap_err();
        assert_eq!(error.line, 1);
        assert!(error.to_string().contains("expected \"unspool-order 1\""), "{error}");
    }
}

#[test]
fn a_line_that_is_not_spelled_as_written_is_refused_with_what_was_expected() {
    let cases = [
        ("recrod 1 host", "record, wait, wait-all, forget"),
        ("record 01 host", "number of an event"),
        ("record +1 host", "number of an event"),
        ("record 18446744073709551616 host", "number of an event"),
        ("record 1", "host or stream"),
        ("record 1 stream:7", "host or stream"),
        ("record 1 stream:0xG", "host or stream"),
        ("record 1 stream:0xA", "host or stream"),
        ("record 1 host ", "end of the line"),
        ("wait host", "number of an event"),
        ("forget 1 2", "end of the line"),
        ("wait-all 1", "end of the line"),
        ("arena device:x 0x0..0x1", "host or device"),
        ("arena device:4294967296 0x0..0x1", "host or device"),
        ("arena host 0x0-0x1", "hexadecimal"),
        ("write host host 0x0..0x1", "what the access is for"),
        ("read host host 0x00..0x1 x", "hexadecimal"),
        ("read host host 0x0..0x10000000000000000 x", "hexadecimal"),
        ("read host host 0x0..0x1 bad \\t escape", "backslash"),
        ("read host host 0x0..0x1 bad end \\", "backslash"),
        ("read  host host 0x0..0x1 two spaces", "host or stream"),
    ];
    for (line, expected) in cases {
        let error = parse_op(line).expect_err(line).to_string();
        assert!(error.contains(expected), "{line:?}: {error}");
    }
}

fn agent() -> impl Strategy<Value = Agent> {
    prop_oneof![Just(HOST), any::<u64>().prop_map(Agent::Stream)]
}

fn space() -> impl Strategy<Value = Space> {
    prop_oneof![Just(Space::Host), any::<u32>().prop_map(Space::Device)]
}

fn any_op() -> impl Strategy<Value = Op<String>> {
    let what = prop_oneof![".*", Just("two\nlines\r\\ and \\n".to_owned())];
    prop_oneof![
        (any::<u64>(), agent()).prop_map(|(event, on)| Op::Record { event, on }),
        (any::<u64>(), agent()).prop_map(|(event, by)| Op::Wait { by, event }),
        any::<u64>().prop_map(|event| Op::Forget { event }),
        Just(Op::WaitAll),
        (space(), any::<u64>(), any::<u64>()).prop_map(|(space, first, end)| Op::Arena {
            space,
            first,
            end
        }),
        (agent(), space(), any::<u64>(), any::<u64>(), any::<bool>(), what).prop_map(
            |(by, space, first, end, write, what)| Op::Access {
                by,
                space,
                first,
                end,
                write,
                what
            }
        ),
    ]
}

/// Lines that are nearly those of an operation.
fn garbage() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("record"),
        Just("wait"),
        Just("forget"),
        Just("wait-all"),
        Just("arena"),
        Just("read"),
        Just("write"),
        Just("host"),
        Just("device:0"),
        Just("stream:0x1"),
        Just("0x1..0x9"),
        Just("0x9..0x1"),
        Just("7"),
        Just(""),
        Just("-1"),
        Just("0x"),
        Just("\\"),
        Just("é"),
    ];
    prop_oneof![proptest::collection::vec(word, 0..7).prop_map(|words| words.join(" ")), ".*"]
}

proptest! {
    #[test]
    fn an_operation_is_read_as_it_was_written(op in any_op()) {
        let mut line = String::new();
        write_op(&mut line, &op).unwrap();
        let body = line.strip_suffix('\n').unwrap();
        prop_assert!(!body.contains(['\n', '\r']));
        prop_assert_eq!(text_of(&[parse_op(body).unwrap()]), text_of(&[op]));
    }

    #[test]
    fn what_is_read_is_written_in_the_same_way(line in garbage()) {
        if let Ok(op) = parse_op(&line) {
            let mut again = String::new();
            write_op(&mut again, &op).unwrap();
            prop_assert_eq!(again, line + "\n");
        }
    }

    #[test]
    fn a_text_of_any_lines_gives_a_verdict_or_an_error_with_its_line(
        lines in proptest::collection::vec(garbage(), 0..30)
    ) {
        let text = [&["unspool-order 1".to_owned()], lines.as_slice()].concat().join("\n");
        match check_text(&text) {
            Ok(verdict) => prop_assert!(verdict.counted.ops <= lines.len() as u64),
            Err(TextError { line, .. }) => {
                prop_assert!(line >= 2 && line <= text.lines().count() as u64);
            }
        }
    }

    #[test]
    fn a_text_cut_or_changed_anywhere_never_panics(
        ops in proptest::collection::vec(any_op(), 0..8),
        at in any::<prop::sample::Index>(),
        byte: u8
    ) {
        let mut bytes = text_of(&ops).into_bytes();
        let at = at.index(bytes.len());
        let cut = String::from_utf8_lossy(&bytes[..at]).into_owned();
        bytes[at] = byte;
        for text in [Cow::from(cut), String::from_utf8_lossy(&bytes)] {
            if let Err(error) = check_text(&text) {
                prop_assert!(error.line >= 1 && !error.to_string().is_empty());
            }
        }
    }
}
