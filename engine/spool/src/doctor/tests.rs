//! The whole checkup on the machine of the test.

use unspool_testkit::Scratch;

use super::*;

#[test]
fn this_machine_is_examined_without_a_failure() {
    let scratch = Scratch::new();
    let checkup =
        Checkup { disk: Some(scratch.path().to_owned()), measure: false, ..Checkup::default() };
    let diagnosis = checkup.run();
    assert!(diagnosis.host.total.is_some_and(|total| total > 0));
    assert!(diagnosis.disk.is_some_and(|disk| disk.problem.is_none()));
    assert!(
        diagnosis.automatic.host.starts_with("host_memory=\"auto\""),
        "{:?}",
        diagnosis.automatic
    );
    assert_eq!(diagnosis.cuda.problem.is_some(), diagnosis.cuda.devices.is_empty());
}

#[test]
fn a_limit_of_no_time_is_an_answer_and_not_a_wait() {
    let scratch = Scratch::new();
    let checkup = Checkup {
        disk: Some(scratch.path().to_owned()),
        limit: Duration::ZERO,
        ..Checkup::default()
    };
    let disk = checkup.run().disk;
    assert!(disk.is_some_and(|disk| disk.write.is_none()));
}
