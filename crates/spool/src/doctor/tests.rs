//! Made-up systems, and the whole checkup on the machine of the test.

use std::fs;
use std::path::PathBuf;

use unspool_testkit::Scratch;

use super::system::System;
use super::*;

/// A system whose files a test writes.
pub(super) struct Fake(Scratch);

impl Fake {
    pub(super) fn new() -> Fake {
        Fake(Scratch::new())
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        let written = fs::create_dir_all(path.parent().unwrap_or(&path))
            .and_then(|()| fs::write(&path, text));
        assert!(written.is_ok(), "{}: {written:?}", path.display());
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    pub(super) fn system(&self) -> System {
        System::at(self.0.path())
    }
}

#[test]
fn this_machine_is_examined_without_a_failure() {
    let scratch = Scratch::new();
    let checkup =
        Checkup { disk: Some(scratch.path().to_owned()), measure: false, ..Checkup::default() };
    let diagnosis = checkup.run();
    assert!(diagnosis.host.total.is_some_and(|total| total > 0));
    assert!(diagnosis.disk.is_some_and(|disk| disk.problem.is_none()));
    assert!(diagnosis.automatic.host.starts_with("host=\"auto\""), "{:?}", diagnosis.automatic);
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
