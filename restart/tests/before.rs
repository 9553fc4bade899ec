//! A folder and a remote place that an earlier version has written: they are read, and what comes
//! to them has names and contents of the same kind.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unspool::{DiskSettings, Dtype, Error, RegionSpec, Spool, Wait};
use unspool_restart::{
    Alone, Checkpointer, Every, Manifest, RemoteSettings, Rule, Settings, find, find_remote, list,
    list_remote, open_remote,
};
use unspool_testkit::Scratch;

/// A copy of what is kept.
fn copied(scratch: &Scratch) -> PathBuf {
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/before"), scratch.path());
    scratch.path().to_owned()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() { copy(&from, &to) } else { assert!(fs::copy(from, to).is_ok()) }
    }
}

fn names(folder: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

fn holds(spool: &Spool, step: u64) -> bool {
    let ticket = spool.restore(step as i64, &Wait::default()).unwrap();
    let mut bytes = [0; 100];
    ticket.read_into(0, &mut bytes).unwrap();
    ticket.finish().unwrap();
    bytes == [(step / 100) as u8; 100]
}

#[test]
fn what_was_written_before_is_listed_and_opened() {
    let scratch = Scratch::new();
    let at = copied(&scratch);
    let (run, wait) = (at.join("run"), Wait::default());
    let place = at.join("remote").to_string_lossy().into_owned();
    for (listed, notes) in [list(&run).unwrap(), list_remote(&place, &wait).unwrap()] {
        let steps: Vec<u64> = listed.iter().map(|one| one.part.step).collect();
        assert_eq!((steps, notes), (vec![300, 400], vec![]));
    }
    for step in [300, 400] {
        let part = &find(&run, Some(step)).unwrap()[0];
        assert_eq!(part.manifest.values, "{\"time\": 0.5}");
        assert!(holds(&part.open().unwrap(), step));
        let copy = &find_remote(&place, Some(step), &wait).unwrap()[0];
        assert!(holds(&open_remote(&place, copy, &wait).unwrap(), step));
    }
}

fn opened(at: &Path) -> Checkpointer {
    let remote = RemoteSettings::new(at.join("remote").to_str().unwrap());
    let rule = Rule::of(Every::Steps(100), 1);
    let settings = Settings { remote: Some(remote), ..Settings::new(at.join("run"), rule) };
    let opened = Checkpointer::open(settings, &Alone, &Wait::default(), |data| {
        let disk = data.map(|data| DiskSettings { durable: true, ..DiskSettings::new(data) });
        let settings = unspool::Settings { disk, ..unspool::Settings::default() };
        Ok::<_, Error>(Arc::new(Spool::open(settings)?))
    });
    opened.unwrap()
}

fn save(checkpoints: &Checkpointer, step: u64) {
    let wait = Wait::default();
    checkpoints.begin(step, "{\"time\": 0.5}".into(), &Alone, &wait).unwrap();
    let spec = RegionSpec { name: "u".into(), dtype: Dtype::UInt8, shape: vec![100] };
    let mut ticket = checkpoints.spool().save(step as i64, vec![spec], &wait).unwrap();
    ticket.fill(0, |bytes| bytes.fill((step / 100) as u8)).unwrap();
    ticket.commit().unwrap();
    checkpoints.commit().unwrap();
}

#[test]
fn a_run_goes_on_from_copies_of_before_and_adds_others_of_their_kind() {
    let (scratch, wait) = (Scratch::new(), Wait::default());
    let at = copied(&scratch);
    fs::remove_dir_all(at.join("run")).unwrap();
    let checkpoints = opened(&at);
    assert_eq!(checkpoints.candidate(&[], &Alone, &wait).unwrap(), Some(400));
    checkpoints.ready(400, &wait).unwrap();
    assert!(holds(&checkpoints.reading(400, &wait).unwrap(), 400));
    let restored = unspool_restart::Outcome::Restored;
    assert_eq!(checkpoints.restored(400, &restored, &Alone).unwrap(), [""; 0]);
    save(&checkpoints, 500);
    checkpoints.close(Some(&Alone), &wait).unwrap();
    let (here, there) = (at.join("run/rank-0000-of-0001"), at.join("remote/rank-0000-of-0001"));
    let of = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<BTreeSet<_>>();
    let manifests = ["step-400.manifest", "step-500.manifest"];
    assert_eq!(names(&here), of(&[&manifests[..], &["data", "remote"]].concat()));
    let objects = names(&there);
    assert!(objects.is_superset(&of(&["step-500.frame", "step-500.manifest"])), "{objects:?}");
    let text = |step: u64| {
        let mut bytes = fs::read(there.join(format!("step-{step}.manifest"))).unwrap();
        // An object ends with a foot.
        bytes.truncate(bytes.len() - 48);
        let manifest = Manifest::parse(&bytes).unwrap();
        assert_eq!(manifest.render(), bytes);
        String::from_utf8(bytes).unwrap()
    };
    let words = |text: String| {
        let word = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
        text.lines().map(word).collect::<Vec<String>>()
    };
    assert_eq!(words(text(500)), words(text(400)));
}
