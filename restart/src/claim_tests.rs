//! Places that belong to runs that are alive, that have crashed, and that are elsewhere.

use unspool_remote::{Options, Parts};
use unspool_testkit::Scratch;

use super::*;

fn place(scratch: &Scratch, name: &str) -> Remote {
    let path = scratch.path().join(name);
    Remote::open(&path.to_string_lossy(), &Options::default()).unwrap()
}

/// What a process has written that began to run when the machine did, with this number.
fn written(remote: &Remote, machine: &str, process: &str) {
    let (place, run) = (remote.identity().unwrap(), Run(7));
    let (machine, process) = (machine.to_owned(), process.to_owned());
    let writer = Writer { place, run, machine, process, folder: "/its/run".into() };
    remote.put(NAME, &Parts::of(&[writer.render().as_bytes()]), None).unwrap();
}

#[test]
fn a_place_belongs_to_one_run_at_a_time() {
    let scratch = Scratch::new();
    let remote = place(&scratch, "place");
    let first = Claim::take(&remote, Run(1), "/first").unwrap();
    let told = Claim::take(&remote, Run(2), "/second").unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Invalid);
    assert!(told.message().contains("/first (process "), "{told}");
    first.check(&remote).unwrap();
    Claim::of(Run(1)).check(&remote).unwrap();
    first.release(&remote);
    assert!(remote.list("").unwrap().is_empty());
    Claim::take(&remote, Run(2), "/second").unwrap();
}

#[test]
fn who_has_crashed_or_is_elsewhere_blocks_nobody_and_writes_nothing_more() {
    let scratch = Scratch::new();
    let remote = place(&scratch, "place");
    let own = process(std::process::id()).unwrap();
    // Another process has its number now; no process has; it is one of another machine; of this
    // process, which has dropped it.
    let numbers = [(machine(), "1 123456789"), (machine(), "4194305 5"), ("there".into(), "1 5")];
    for (machine, process) in numbers.iter().map(|(m, p)| (m, *p)).chain([(&machine(), &*own)]) {
        written(&remote, machine, process);
        let claim = Claim::take(&remote, Run(2), "/next").unwrap();
        let told = Claim::of(Run(7)).check(&remote).unwrap_err();
        assert!(told.message().contains("belongs to another run now"), "{told}");
        Claim::of(Run(7)).release(&remote);
        claim.check(&remote).unwrap();
    }
}

#[test]
fn a_copy_of_a_place_belongs_to_nobody() {
    let scratch = Scratch::new();
    let remote = place(&scratch, "place");
    let _held = Claim::take(&remote, Run(1), "/first").unwrap();
    let copy = place(&scratch, "copy");
    std::fs::copy(scratch.path().join("place/writer"), scratch.path().join("copy/writer")).unwrap();
    Claim::take(&copy, Run(2), "/second").unwrap();
}

#[test]
fn what_is_not_whole_is_nobodys() {
    let scratch = Scratch::new();
    let remote = place(&scratch, "place");
    for text in ["", "unspool-writer 1\n", "unspool-writer 2\nplace x\n"] {
        remote.put(NAME, &Parts::of(&[text.as_bytes()]), None).unwrap();
        drop(Claim::take(&remote, Run(1), "/first").unwrap());
    }
    std::fs::write(scratch.path().join("place/writer"), "damaged").unwrap();
    Claim::take(&remote, Run(1), "/first").unwrap().check(&remote).unwrap();
}
