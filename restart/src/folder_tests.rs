//! Manifests on media that fail, and after a loss of power at any moment.

use std::collections::BTreeMap;
use std::sync::Mutex;

use unspool_testkit::Scratch;

use super::*;
use crate::manifest::tests::sample;

/// An operation on files that was carried out.
#[derive(Clone, Debug)]
enum Op {
    /// The file was synced with these bytes; its name was not.
    Write(String, Vec<u8>),
    Rename(String, String),
    Remove(String),
    Sync,
}

/// The file system, which writes down what happens to files, and fails once when it is told to.
#[derive(Debug, Default)]
struct Recorder {
    ops: Mutex<Vec<Op>>,
    /// The number of the operation that fails, and the error of the system.
    fails: Mutex<Option<(usize, i32)>>,
}

impl Recorder {
    fn note(&self, op: Op) -> io::Result<()> {
        let mut ops = self.ops.lock().unwrap();
        ops.push(op);
        match *self.fails.lock().unwrap() {
            Some((number, code)) if number == ops.len() => Err(io::Error::from_raw_os_error(code)),
            _ => Ok(()),
        }
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

impl Medium for Recorder {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.note(Op::Write(name(path), bytes.to_vec()))?;
        Files.write(path, bytes)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.note(Op::Rename(name(from), name(to)))?;
        Files.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        if path.exists() {
            self.note(Op::Remove(name(path)))?;
        }
        Files.remove(path)
    }
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.note(Op::Sync)?;
        Files.sync_folder(path)
    }
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        Files.make_folder(path)
    }
}

fn folder(scratch: &Scratch, medium: &Arc<Recorder>) -> Folder {
    let medium: Arc<dyn Medium> = Arc::<Recorder>::clone(medium);
    Folder::make_on(&scratch.path().join("run"), 3, 16, medium).unwrap()
}

fn steps(folder: &Folder) -> Vec<u64> {
    folder.manifests().unwrap().whole.iter().map(|manifest| manifest.step).collect()
}

#[test]
fn manifests_are_found_again_and_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let folder = folder(&scratch, &Arc::default());
    [7, 300, 20].into_iter().for_each(|step| folder.write(&sample(step)).unwrap());
    assert_eq!(steps(&folder), [7, 20, 300]);
    folder.remove(|step| step < 21).unwrap();
    assert_eq!(steps(&folder), [300]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.path.join("step-300.manifest")), 0o600);
    assert_eq!([mode(&folder.path), mode(&folder.data())], [0o700; 2]);
}

#[test]
fn newer_manifests_go_first() {
    let (scratch, medium) = (Scratch::new(), Arc::<Recorder>::default());
    let folder = folder(&scratch, &medium);
    [7, 300, 20, 9].into_iter().for_each(|step| folder.write(&sample(step)).unwrap());
    folder.remove(|step| step < 100).unwrap();
    let ops = medium.ops.lock().unwrap();
    let removed = ops.iter().filter_map(|op| match op {
        Op::Remove(name) => Some(name.as_str()),
        _ => None,
    });
    let removed: Vec<&str> = removed.collect();
    assert_eq!(removed, ["step-20.manifest", "step-9.manifest", "step-7.manifest"]);
}

#[test]
fn only_the_last_part_of_a_path_is_made() {
    let scratch = Scratch::new();
    let error = Folder::make(&scratch.path().join("a/b"), 0, 1).unwrap_err();
    assert!(error.message().contains("Only the last part of a path is made"), "{error}");
    assert!(scratch.names().is_empty());
}

#[test]
fn links_lead_nowhere() {
    let scratch = Scratch::new();
    let folder = folder(&scratch, &Arc::default());
    folder.write(&sample(5)).unwrap();
    let elsewhere = scratch.path().join("elsewhere");
    fs::rename(folder.path.join("step-5.manifest"), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, folder.path.join("step-5.manifest")).unwrap();
    let found = folder.manifests().unwrap();
    assert!(found.whole.is_empty());
    assert_eq!(found.damaged.len(), 1);
    let (root, target) = (scratch.path().join("run2"), scratch.path().join("target"));
    fs::create_dir_all(&target).unwrap();
    fs::create_dir_all(&root).unwrap();
    std::os::unix::fs::symlink(&target, root.join("rank-0000-of-0001")).unwrap();
    assert!(Folder::make(&root, 0, 1).is_err());
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
}

#[test]
fn a_manifest_under_another_name_does_not_count() {
    let scratch = Scratch::new();
    let folder = folder(&scratch, &Arc::default());
    folder.write(&sample(5)).unwrap();
    fs::rename(folder.path.join("step-5.manifest"), folder.path.join("step-6.manifest")).unwrap();
    fs::write(folder.path.join("step-7.manifest"), "unspool").unwrap();
    let found = folder.manifests().unwrap();
    assert!(found.whole.is_empty());
    let why: Vec<&str> = found.damaged.iter().map(|damaged| damaged.why.as_str()).collect();
    assert_eq!(why, ["it is that of another step or rank", "it does not begin as a manifest does"]);
}

#[test]
fn a_medium_that_fails_at_any_operation_leaves_the_last_step_and_takes_the_next_try() {
    for number in 1.. {
        for (code, kind) in [(28, ErrorKind::Full), (122, ErrorKind::Full), (5, ErrorKind::Io)] {
            let (scratch, medium) = (Scratch::new(), Arc::<Recorder>::default());
            let folder = folder(&scratch, &medium);
            folder.write(&sample(1)).unwrap();
            let before = medium.ops.lock().unwrap().len();
            *medium.fails.lock().unwrap() = Some((before + number, code));
            let Err(error) = folder.write(&sample(2)) else {
                assert_eq!(number, 4, "written, renamed, synced");
                return;
            };
            assert_eq!((error.kind(), error.os_error()), (kind, Some(code)));
            assert_eq!(steps(&folder)[0], 1);
            folder.write(&sample(2)).unwrap();
            assert_eq!(steps(&folder), [1, 2]);
        }
    }
}

/// The folders that a loss of power after these operations may leave: the names as of the last sync
/// or any moment after it. What has a name has its bytes, as each file is synced before.
fn images(ops: &[Op]) -> Vec<BTreeMap<String, Vec<u8>>> {
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut possible = vec![files.clone()];
    for op in ops {
        match op {
            Op::Write(name, bytes) => {
                // Before the sync of the file any part of it may be there.
                files.insert(name.clone(), bytes[..bytes.len() / 2].to_vec());
                possible.push(files.clone());
                files.insert(name.clone(), bytes.clone());
            }
            Op::Rename(from, to) => {
                let bytes = files.remove(from).unwrap();
                files.insert(to.clone(), bytes);
            }
            Op::Remove(name) => drop(files.remove(name)),
            Op::Sync => possible.clear(),
        }
        possible.push(files.clone());
    }
    possible
}

#[test]
fn a_loss_of_power_keeps_what_was_acknowledged_and_brings_back_nothing_that_was_removed() {
    let (scratch, medium) = (Scratch::new(), Arc::<Recorder>::default());
    let live = folder(&scratch, &medium);
    let count = || medium.ops.lock().unwrap().len();
    // What was promised after so many operations: steps that count, and those that are gone.
    let mut promises: Vec<(usize, Vec<u64>, Vec<u64>)> = Vec::new();
    for step in [10, 20, 30] {
        live.write(&sample(step)).unwrap();
        promises.push((count(), steps(&live), vec![]));
    }
    let begun = count();
    live.remove(|step| step < 30).unwrap();
    promises.push((count(), vec![30], vec![10, 20]));
    let ops = medium.ops.lock().unwrap().clone();
    let mut looked_at = 0;
    for end in 0..=ops.len() {
        let Some((_, kept, gone)) = promises.iter().rev().find(|(at, ..)| *at <= end) else {
            continue;
        };
        for image in images(&ops[..end]) {
            let crashed = Scratch::new();
            let folder = folder(&crashed, &Arc::default());
            for (name, bytes) in &image {
                fs::write(folder.path.join(name), bytes).unwrap();
            }
            let folder = Folder::make(&crashed.path().join("run"), 3, 16).unwrap();
            folder.remove_unfinished().unwrap();
            let (found, damaged) = (steps(&folder), folder.manifests().unwrap().damaged);
            assert_eq!(damaged, [], "a manifest is whole or not there");
            if end <= begun {
                assert!(kept.iter().all(|step| found.contains(step)), "{end}: {found:?} {image:?}");
            }
            assert!(found.contains(&30) || end < begun);
            assert!(gone.iter().all(|step| !found.contains(step)), "{end}: {found:?}");
            assert!(!folder.path.join("step-30.part").exists());
            looked_at += 1;
        }
    }
    assert!(looked_at > 20, "{looked_at}");
}
