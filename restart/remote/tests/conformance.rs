//! The conformance suite for a tier in a remote place: here a directory.

mod tier;

use tier::opened;
use unspool_remote::Options;
use unspool_testkit::conformance::Fixture;
use unspool_testkit::{Scratch, conformance};

fn in_directory(capacity: u64) -> Fixture {
    let scratch = Scratch::new();
    let path = scratch.path().join("remote");
    let path = path.to_string_lossy();
    Fixture::with(opened(&path, &Options::default(), capacity), scratch)
}

conformance!(directory, in_directory);
