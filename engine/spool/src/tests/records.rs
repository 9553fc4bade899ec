//! What a run leaves for people and programs: the timeline and the record of decisions.

use serde_json::Value;
use unspool_core::trace::replay;

use super::Plan;
use super::common::wait;
use crate::ErrorKind;

const LEN: usize = 4096;
const PAGES: u64 = 4096;

#[test]
fn the_timeline_has_the_calls_and_every_movement() {
    let rig = Plan::arenas(Some(2 * PAGES), None).with(|s| s.trace = true).build();
    (0..8).for_each(|version| rig.save(version, LEN).unwrap());
    rig.spool.flush(&wait()).unwrap();
    (0..8).rev().for_each(|version| rig.restore(version, LEN).unwrap());
    rig.spool.close().unwrap();
    let path = rig.dir.path().join("trace.json");
    rig.spool.write_trace(&path).unwrap();
    let json: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let named = |name: &str| events.iter().filter(|e| e["name"] == name && e["ph"] == "X").count();
    assert_eq!((named("save"), named("restore"), named("flush")), (8, 8, 8));
    let rows: Vec<&str> = events
        .iter()
        .filter(|event| event["name"] == "thread_name")
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    assert!(rows[0].starts_with("application"), "{rows:?}");
    // Which of the lane's workers took the jobs is chance.
    assert!(rows.iter().any(|row| row.starts_with("device-disk ")), "{rows:?}");
    let flush = events.iter().find(|event| event["name"] == "flush").unwrap();
    assert_eq!((&flush["args"]["bytes"], &flush["args"]["tier"]), (&LEN.into(), &"disk".into()));
}

#[test]
fn a_trace_that_was_not_asked_for_or_has_no_place_is_an_error() {
    let rig = Plan::arenas(Some(PAGES), None).build();
    let path = rig.dir.path().join("trace.json");
    assert_eq!(rig.spool.write_trace(&path).unwrap_err().kind(), ErrorKind::Invalid);
    let rig = Plan::arenas(Some(PAGES), None).with(|s| s.trace = true).build();
    let error = rig.spool.write_trace(&path.join("missing").join("x")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("missing"), "{error}");
}

#[test]
fn the_record_of_a_run_can_be_replayed_decision_by_decision() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("record");
    let mut plan = Plan::arenas(Some(2 * PAGES), Some(4 * PAGES));
    plan.settings.record = Some(path.clone());
    let rig = plan.build();
    (0..20).for_each(|version| rig.save(version, LEN).unwrap());
    rig.spool.expect((0..20).rev()).unwrap();
    (0..20).rev().for_each(|version| rig.restore(version, LEN).unwrap());
    rig.spool.discard(3).unwrap();
    rig.spool.close().unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.ends_with("end\n"));
    let report = replay(&text).unwrap();
    assert!(report.complete && report.commands > 60, "{report:?}");
    assert!(text.lines().filter(|line| line.contains(" save ")).count() == 20, "{text}");
}

#[test]
fn a_record_that_cannot_go_on_is_noted_and_stops_nothing() {
    let mut plan = Plan::arenas(Some(64 * PAGES), None);
    plan.settings.record = Some("/dev/full".into());
    let rig = plan.build();
    (0..200).for_each(|version| rig.save(version, 64).unwrap());
    (0..200).for_each(|version| rig.restore(version, 64).unwrap());
    let notes = rig.spool.stats().unwrap().application.notes;
    assert!(notes.iter().any(|note| note.contains("/dev/full ends early")), "{notes:?}");
}
