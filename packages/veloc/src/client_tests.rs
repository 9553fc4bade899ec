//! What a client does that a program does not see.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Instant;

use unspool_restart::Run;

use crate::client::Client;
use crate::names::Content;
use crate::open;
use crate::parts::Job;
use crate::regions::{Protected, Selection};

const BYTES: usize = 100_000;

struct Bench {
    folder: tempfile::TempDir,
    values: Vec<u8>,
}

impl Bench {
    fn new() -> Bench {
        Bench { folder: tempfile::tempdir().unwrap(), values: vec![0; BYTES] }
    }

    fn client(&mut self, more: &str) -> Client {
        let (folder, config) = (self.folder.path(), self.folder.path().join("veloc.cfg"));
        let text = format!(
            "scratch = {0}/scratch\npersistent = {0}/persistent\nmode = async\n{more}\n",
            folder.display()
        );
        fs::write(&config, text).unwrap();
        let mut client = open::single(3, config.to_str().unwrap()).unwrap();
        let address = self.values.as_mut_ptr() as usize;
        let region = Protected { address, bytes: self.values.len() as u64, item: 8 };
        client.regions.protect(1, region, None);
        client
    }

    fn save(&mut self, client: &mut Client, version: i32) {
        self.values.fill(version as u8);
        // SAFETY: the region is there, and nobody else uses it.
        unsafe { client.checkpoint("h", version) }.unwrap();
    }

    fn load(&mut self, client: &mut Client, version: i32) -> bool {
        self.values.fill(0xee);
        // SAFETY: as above.
        unsafe { client.restart("h", version) }.unwrap();
        self.values.iter().all(|byte| *byte == version as u8)
    }
}

/// Ten versions fit into main memory, and forty are on the disk.
const FORTY: &str = "host_memory = 1MiB\npersistent_interval = -1";

#[test]
fn what_was_announced_is_brought_back_once_that_is_started() {
    let mut bench = Bench::new();
    let mut client = bench.client(FORTY);
    (0..40).rev().for_each(|version| client.prefetch_enqueue("h", version).unwrap());
    (0..40).for_each(|version| bench.save(&mut client, version));
    client.checkpoint_wait().unwrap();
    let brought = |client: &Client| client.stats().links[0].prefetch.transfers;
    assert_eq!(brought(&client), 0);
    client.prefetch_start().unwrap();
    assert!((0..40).rev().all(|version| bench.load(&mut client, version)));
    let stats = client.stats();
    assert_eq!((stats.application.hinted_restores, stats.application.hints), (40, 0));
    assert!(brought(&client) > 0, "{stats:?}");
    client.finalize().unwrap();
}

#[test]
fn copies_to_persistent_take_no_announcement_away() {
    let mut bench = Bench::new();
    let mut client = bench.client("host_memory = 1MiB");
    (0..20).rev().for_each(|version| client.prefetch_enqueue("h", version).unwrap());
    (0..20).for_each(|version| bench.save(&mut client, version));
    client.checkpoint_wait().unwrap();
    let stats = client.stats();
    assert_eq!((stats.application.restores, stats.application.hints), (0, 20));
    // The first restart starts what was held.
    assert!(bench.load(&mut client, 19));
    assert_eq!(client.stats().application.hints, 19);
    client.finalize().unwrap();
}

#[test]
fn a_restart_that_is_looked_at_twice_is_one_restore() {
    let mut bench = Bench::new();
    let mut client = bench.client("host_memory = 1MiB");
    bench.save(&mut client, 5);
    client.prefetch_enqueue("h", 5).unwrap();
    client.prefetch_enqueue("h", 5).unwrap();
    client.restart_begin("h", 5).unwrap();
    assert_eq!(client.recover_size(1), Ok(Some(BYTES as u64)));
    for selection in [Selection::Some(vec![1]), Selection::All] {
        // SAFETY: the region is there, and nobody else uses it.
        unsafe { client.recover(&selection) }.unwrap();
    }
    client.restart_end().unwrap();
    let stats = client.stats();
    assert_eq!((stats.application.restores, stats.application.hints), (1, 1));
    client.finalize().unwrap();
}

/// The versions in persistent, and in scratch.
fn versions(bench: &Bench) -> (Vec<String>, Vec<u64>) {
    let folder = bench.folder.path().join("persistent/veloc-h/single-3");
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    let names = names.filter_map(|name| Some(name.strip_suffix(".manifest")?.to_owned()));
    let mut persistent: Vec<String> =
        names.map(|name| name.split('-').next().unwrap().to_owned()).collect();
    persistent.sort();
    (persistent, versions_in_scratch(bench))
}

fn versions_in_scratch(bench: &Bench) -> Vec<u64> {
    let scratch = bench.folder.path().join("scratch/unspool-single-3");
    let listed = unspool_restart::list(&scratch).unwrap().0;
    listed.iter().map(|one| one.part.step).collect()
}

#[test]
fn what_was_saved_last_stays_also_when_its_version_is_lower() {
    let mut bench = Bench::new();
    let config = "max_versions = 2\nscratch_versions = 2\nhost_memory = 1MiB";
    let mut client = bench.client(config);
    for version in [7, 8, 9, 1, 2] {
        bench.save(&mut client, version);
    }
    client.checkpoint_wait().unwrap();
    assert_eq!(versions(&bench), (vec!["1".into(), "2".into()], vec![1, 2]));
    // Once more, in this run and in the next one.
    bench.save(&mut client, 1);
    client.finalize().unwrap();
    drop(client);
    assert_eq!(versions(&bench), (vec!["1".into(), "2".into()], vec![1, 2]));
    let mut client = bench.client(config);
    bench.save(&mut client, 0);
    client.checkpoint_wait().unwrap();
    assert_eq!(versions(&bench).1, [0, 1], "1 was saved after 2");
    assert!(bench.load(&mut client, 0) && bench.load(&mut client, 1));
    client.finalize().unwrap();
}

#[test]
fn a_version_that_is_saved_once_more_replaces_the_first_one_when_all_have_it() {
    let mut bench = Bench::new();
    let mut client = bench.client("host_memory = 1MiB");
    for byte in [1, 2, 3] {
        bench.values.fill(byte);
        // SAFETY: the region is there, and nobody else uses it.
        unsafe { client.checkpoint("h", 4) }.unwrap();
    }
    client.checkpoint_wait().unwrap();
    assert_eq!(versions(&bench), (vec!["4".into()], vec![4]));
    client.finalize().unwrap();
    drop(client);
    fs::remove_dir_all(bench.folder.path().join("scratch")).unwrap();
    let mut client = bench.client("host_memory = 1MiB");
    assert_eq!(client.restart_test("h", 0), Ok(Some(4)));
    bench.load(&mut client, 4);
    assert!(bench.values.iter().all(|byte| *byte == 3));
    client.finalize().unwrap();
}

#[test]
fn what_a_restart_reads_is_not_removed_meanwhile() {
    let mut bench = Bench::new();
    let mut client =
        bench.client("scratch_versions = 1\npersistent_interval = -1\nhost_memory = 1MiB");
    bench.save(&mut client, 1);
    client.checkpoint_wait().unwrap();
    client.restart_begin("h", 1).unwrap();
    client.background().add(Job {
        step: 2,
        content: Content { name: "h".into(), memory: false, file: None },
        run: Run(0),
        routed: false,
        persist: false,
        begun: Instant::now(),
    });
    client.checkpoint_wait().unwrap();
    // SAFETY: the region is there, and nobody else uses it.
    unsafe { client.recover(&Selection::All) }.unwrap();
    client.restart_end().unwrap();
    assert_eq!(versions_in_scratch(&bench), [1, 2]);
    bench.save(&mut client, 3);
    client.finalize().unwrap();
    assert_eq!(versions_in_scratch(&bench), [3]);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() { copy(&from, &to) } else { assert!(fs::copy(from, to).is_ok()) }
    }
}

/// What an earlier version has written: checkpoint 4 of two names, with a region and a file.
#[test]
fn checkpoints_of_before_are_read_from_scratch_and_from_persistent() {
    for has_scratch in [true, false] {
        let mut bench = Bench { values: vec![0; 100], ..Bench::new() };
        let before = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/before");
        copy(&before.join("persistent"), &bench.folder.path().join("persistent"));
        if has_scratch {
            copy(&before.join("scratch"), &bench.folder.path().join("scratch"));
        }
        let mut client = bench.client("max_versions = 1");
        for name in ["h", "other"] {
            assert_eq!(client.restart_test(name, 0), Ok(Some(4)));
            bench.values.fill(0);
            client.restart_begin(name, 4).unwrap();
            // SAFETY: the region is there, and nobody else uses it.
            unsafe { client.recover(&Selection::All) }.unwrap();
            assert_eq!(fs::read(client.route().unwrap()).unwrap(), b"of the program");
            client.restart_end().unwrap();
            assert!(bench.values.iter().all(|byte| *byte == 7), "{name}");
        }
        // What is saved now has names of the same kind, and what it replaces goes.
        let folder = bench.folder.path().join("persistent/veloc-h/single-3");
        let objects = || {
            let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
            let names = names.map(|name| name.into_string().unwrap());
            let parts = names.map(|name| {
                let (version, rest) = name.split_once('-').unwrap();
                let (run, object) = rest.split_once('.').unwrap();
                assert!(run.len() == 32 && run.bytes().all(|digit| digit.is_ascii_hexdigit()));
                (version.to_owned(), object.to_owned())
            });
            parts.collect::<BTreeSet<_>>()
        };
        let of = |version: &str, objects: &[&str]| {
            objects.iter().map(|object| (version.to_owned(), (*object).to_owned())).collect()
        };
        assert_eq!(objects(), of("4", &["file", "frame", "manifest"]));
        bench.save(&mut client, 5);
        client.checkpoint_wait().unwrap();
        assert_eq!(objects(), of("5", &["frame", "manifest"]));
        client.finalize().unwrap();
    }
}

#[test]
fn what_a_client_with_a_longer_number_has_is_not_taken_for_ones_own() {
    let mut bench = Bench::new();
    let mut client = bench.client("host_memory = 1MiB");
    bench.save(&mut client, 4);
    client.finalize().unwrap();
    let names = bench.folder.path().join("persistent/veloc-h");
    fs::rename(names.join("single-3"), names.join("single-33")).unwrap();
    fs::remove_dir_all(bench.folder.path().join("scratch")).unwrap();
    let mut client = bench.client("host_memory = 1MiB");
    assert_eq!(client.restart_test("h", 0), Ok(None));
    client.finalize().unwrap();
}

/// What a program that reads its history back once sets.
const HISTORY: &str = "host_memory = 1MiB\ndurable = false\ndiscard = true\ncodec = lossless";

#[test]
fn a_history_that_goes_as_it_is_read_leaves_nothing_and_touches_no_durable_checkpoint() {
    let mut bench = Bench::new();
    let mut client = bench.client("persistent_interval = -1");
    bench.save(&mut client, 7);
    client.finalize().unwrap();
    let mut client = bench.client(HISTORY);
    (0..40).rev().for_each(|version| client.prefetch_enqueue("h", version).unwrap());
    (0..40).for_each(|version| bench.save(&mut client, version));
    client.checkpoint_wait().unwrap();
    assert_eq!(client.restart_test("h", 0).unwrap(), Some(39));
    // A restart that has failed has read nothing: the next one finds it.
    let whole = client.regions.of("h")[&1];
    client.regions.protect(1, Protected { bytes: 8, ..whole }, None);
    // SAFETY: the region is there, and nobody else uses it.
    assert!(unsafe { client.restart("h", 39) }.unwrap_err().contains("has 100000 bytes"));
    client.regions.protect(1, whole, None);
    assert!((0..40).rev().all(|version| bench.load(&mut client, version)));
    assert_eq!(client.restart_test("h", 0).unwrap(), None, "each of them was read");
    let stats = client.stats();
    assert!(stats.application.saved_bytes < 40 * BYTES as u64 / 2, "{stats:?}");
    client.finalize().unwrap();
    let persistent = fs::read_dir(bench.folder.path().join("persistent"));
    assert_eq!(persistent.map_or(0, Iterator::count), 0);
    let mut client = bench.client("");
    assert_eq!(client.restart_test("h", 0).unwrap(), Some(7));
    assert!(bench.load(&mut client, 7));
    client.finalize().unwrap();
}
