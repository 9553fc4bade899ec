//! What a crash of the machine leaves of a durable tier.
//!
//! A run is written down operation by operation. For every point in it the directory is built as a
//! crash at that point may leave it: names as of some moment since the last sync of the directory,
//! and of the bytes written since the last sync of their file any sectors, or none, or all. The
//! tier is then opened again and must list every frame that was acknowledged, bit for bit, and
//! nothing that is not a whole frame.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use unspool_core::CheckpointId;

use super::medium::{FileId, Op, TestMedium};
use super::{open_on, options};
use crate::disk::names::is_like_slot;
use crate::disk::{Disk, DiskIo, DiskMode, DiskOptions};
use crate::testing::{Random, Scratch, bytes};
use crate::tier::Tier;

/// A sector: what a medium writes as a whole.
const SECTOR: usize = 512;

/// The content of a frame of these tests: a seed and a length.
type Content = (u64, usize);

/// What the tier had promised after the first `ops` operations.
#[derive(Clone, Default, Debug)]
struct Promise {
    ops: usize,
    /// Frames that must be there.
    durable: BTreeMap<u64, Content>,
    /// Frames whose removal was made durable: they must not come back.
    gone: BTreeSet<u64>,
}

/// A run: its operations, what was promised when, and every content that an id ever had.
struct Run {
    ops: Vec<Op>,
    promises: Vec<Promise>,
    contents: BTreeMap<u64, BTreeSet<Content>>,
    /// Frames that were ever deleted: a crash may take them without a trace in the manifest.
    deleted: BTreeSet<u64>,
    options: Options,
}

/// The settings of a tier in a directory.
type Options = fn(&Path) -> DiskOptions;

/// Drives a tier and keeps the books.
struct Driver {
    scratch: Scratch,
    medium: Arc<TestMedium>,
    disk: Disk,
    put: BTreeMap<u64, Content>,
    run: Run,
}

impl Driver {
    fn new(options: Options) -> Driver {
        let scratch = Scratch::in_memory();
        let medium = Arc::new(TestMedium::default());
        let disk = open_on(options(&scratch.0), &medium);
        let (contents, deleted) = (BTreeMap::new(), BTreeSet::new());
        let run =
            Run { ops: Vec::new(), promises: vec![Promise::default()], contents, deleted, options };
        Driver { scratch, medium, disk, put: BTreeMap::new(), run }
    }

    fn put(&mut self, id: u64, content: Content) {
        let mut promise = self.run.promises.last().unwrap().clone();
        if promise.gone.remove(&id) {
            self.promise(promise);
        }
        self.run.contents.entry(id).or_default().insert(content);
        self.disk.put(CheckpointId(id), 0, &[&bytes(content.0, content.1)]).unwrap();
        self.put.insert(id, content);
    }

    fn delete(&mut self, id: u64) {
        // From here on nobody may rely on it.
        let mut promise = self.run.promises.last().unwrap().clone();
        promise.durable.remove(&id);
        self.promise(promise);
        self.put.remove(&id);
        self.run.deleted.insert(id);
        self.disk.delete(CheckpointId(id)).unwrap();
    }

    fn sync(&mut self) {
        self.disk.sync().unwrap();
        let gone = self.run.deleted.iter().filter(|id| !self.put.contains_key(id));
        let (durable, gone) = (self.put.clone(), gone.copied().collect());
        self.promise(Promise { ops: 0, durable, gone });
    }

    fn promise(&mut self, promise: Promise) {
        let ops = self.medium.ops().len();
        self.run.promises.push(Promise { ops, ..promise });
    }

    fn finish(mut self) -> Run {
        self.run.ops = self.medium.ops();
        drop(self.disk);
        drop(self.scratch);
        self.run
    }
}

/// Every frame in a file, through the page cache.
fn buffered(dir: &Path) -> DiskOptions {
    options(dir, DiskIo::Buffered, true)
}

/// Every frame in a file, past the page cache where that works.
fn auto(dir: &Path) -> DiskOptions {
    options(dir, DiskIo::Auto, true)
}

/// Every frame of the run in one pack, but the one without bytes.
fn one_pack(dir: &Path) -> DiskOptions {
    DiskOptions { packed_up_to: 65_535, ..buffered(dir) }
}

/// Packs of up to 12,800 bytes.
fn small_packs(dir: &Path) -> DiskOptions {
    DiskOptions { packed_up_to: 200, ..buffered(dir) }
}

/// A run in which files are reused in every way: at once, after a rest, longer, shorter.
fn eventful_run(options: Options) -> Run {
    let mut driver = Driver::new(options);
    for id in 0..4 {
        driver.put(id, (id, 5000 + 100 * id as usize));
    }
    driver.sync();
    driver.put(4, (4, 9000));
    driver.delete(4);
    driver.put(5, (5, 8192));
    driver.delete(1);
    driver.put(6, (6, 5000));
    driver.delete(2);
    driver.put(1, (101, 5100));
    driver.sync();
    driver.delete(0);
    driver.sync();
    driver.put(7, (7, 3000));
    driver.put(8, (8, 0));
    driver.delete(5);
    driver.put(9, (9, 20_000));
    driver.sync();
    driver.delete(3);
    driver.put(10, (10, 5300));
    driver.finish()
}

/// A run in which packs are filled, left, compacted and removed.
fn packed_run() -> Run {
    let mut driver = Driver::new(small_packs);
    (0..60).for_each(|id| driver.put(id, (id, 150 + id as usize % 50)));
    driver.sync();
    (0..60).filter(|id| id % 3 > 0).for_each(|id| driver.delete(id));
    (60..70).for_each(|id| driver.put(id, (id, 190)));
    driver.put(1, (101, 160));
    // The first pack is compacted.
    driver.sync();
    (60..68).for_each(|id| driver.delete(id));
    driver.put(70, (70, 9000));
    (0..60).filter(|id| id % 6 == 0).for_each(|id| driver.delete(id));
    driver.sync();
    driver.put(71, (71, 100));
    driver.finish()
}

/// The state of the medium after some operations.
#[derive(Clone, Default)]
struct State {
    /// Names that survive every crash.
    names: BTreeMap<String, FileId>,
    /// Changes of names since the last sync of the directory.
    renames: Vec<Op>,
    files: BTreeMap<FileId, Bytes>,
}

/// A file: what survives every crash, and what was done since.
#[derive(Clone, Default)]
struct Bytes {
    synced: Vec<u8>,
    since: Vec<Op>,
}

impl State {
    fn apply(&mut self, op: &Op) {
        match op {
            Op::Create { file, .. } => {
                self.files.insert(*file, Bytes::default());
                self.renames.push(op.clone());
            }
            Op::Rename { .. } | Op::Remove { .. } => self.renames.push(op.clone()),
            Op::SyncDir => {
                let renames = std::mem::take(&mut self.renames);
                renames.iter().for_each(|op| change_names(&mut self.names, op));
            }
            Op::Write { file, .. } | Op::SetLen { file, .. } => {
                self.files.get_mut(file).unwrap().since.push(op.clone());
            }
            Op::SyncFile { file } => {
                let file = self.files.get_mut(file).unwrap();
                for op in std::mem::take(&mut file.since) {
                    change_bytes(&mut file.synced, &op, |_| true);
                }
            }
        }
    }

    /// Builds the directory as a crash may leave it.
    fn crash(&self, dir: &Path, kind: Kind, random: &mut Random) {
        let mut names = self.names.clone();
        let kept = kind.some(self.renames.len(), random);
        self.renames[..kept].iter().for_each(|op| change_names(&mut names, op));
        for (name, file) in &names {
            let mut content = self.files[file].synced.clone();
            for op in &self.files[file].since {
                change_bytes(&mut content, op, |_| kind.keeps(random));
            }
            fs::write(dir.join(name), content).unwrap();
        }
    }
}

fn change_names(names: &mut BTreeMap<String, FileId>, op: &Op) {
    match op {
        Op::Create { name, file } => drop(names.insert(name.clone(), *file)),
        Op::Remove { name } => drop(names.remove(name)),
        Op::Rename { from, to } => {
            let file = names.remove(from).unwrap();
            names.insert(to.clone(), file);
        }
        other => panic!("{other:?} changes no name"),
    }
}

/// Applies a change to those sectors that `keeps` keeps.
fn change_bytes(content: &mut Vec<u8>, op: &Op, mut keeps: impl FnMut(usize) -> bool) {
    match op {
        Op::SetLen { len, .. } => {
            if keeps(0) {
                content.resize(*len as usize, 0);
            }
        }
        Op::Write { at, bytes, .. } => {
            for (i, sector) in bytes.chunks(SECTOR).enumerate() {
                let from = *at as usize + i * SECTOR;
                if keeps(from) {
                    let end = from + sector.len();
                    content.resize(content.len().max(end), 0);
                    content[from..end].copy_from_slice(sector);
                }
            }
        }
        other => panic!("{other:?} changes no bytes"),
    }
}

/// How much of what was not synced a crash leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Nothing,
    Everything,
    /// The names as they were last, and no bytes.
    NamesOnly,
    /// All bytes, and the names as they were synced.
    BytesOnly,
    Random,
}

const KINDS: [Kind; 7] = [
    Kind::Nothing,
    Kind::Everything,
    Kind::NamesOnly,
    Kind::BytesOnly,
    Kind::Random,
    Kind::Random,
    Kind::Random,
];

impl Kind {
    /// How many of `all` changes of names are kept: names change in order.
    fn some(self, all: usize, random: &mut Random) -> usize {
        match self {
            Kind::Nothing | Kind::BytesOnly => 0,
            Kind::Everything | Kind::NamesOnly => all,
            Kind::Random => random.below(all as u64 + 1) as usize,
        }
    }

    fn keeps(self, random: &mut Random) -> bool {
        match self {
            Kind::Nothing | Kind::NamesOnly => false,
            Kind::Everything | Kind::BytesOnly => true,
            Kind::Random => random.below(2) == 0,
        }
    }
}

/// Crashes at every point of the run in every way; says what was wrong first.
fn crash_everywhere(run: &Run) -> Result<usize, String> {
    let mut state = State::default();
    let mut random = Random(7);
    let mut images = 0;
    for done in 0..=run.ops.len() {
        let promise = run.promises.iter().rfind(|promise| promise.ops <= done).unwrap();
        for kind in KINDS {
            let scratch = Scratch::in_memory();
            state.crash(&scratch.0, kind, &mut random);
            let check = check_image(&scratch, promise, run);
            let scratch = Scratch::in_memory();
            state.crash(&scratch.0, kind, &mut random);
            let check = check.and_then(|()| check_missing(&scratch, promise, run));
            check.map_err(|why| format!("crash after {done} operations, {kind:?}: {why}"))?;
            images += 1;
        }
        if let Some(op) = run.ops.get(done) {
            state.apply(op);
        }
    }
    Ok(images)
}

fn check_image(scratch: &Scratch, promise: &Promise, run: &Run) -> Result<(), String> {
    let disk = Disk::open((run.options)(&scratch.0)).unwrap();
    let listed = disk.list().unwrap();
    for stored in &listed {
        let mut bytes_read = vec![0; stored.bytes as usize];
        disk.get(stored.id, 0, &mut [&mut bytes_read]).map_err(|error| error.to_string())?;
        let whole = |&(seed, len): &Content| bytes_read == bytes(seed, len);
        let allowed = run.contents.get(&stored.id.0);
        let content = allowed.and_then(|allowed| allowed.iter().find(|content| whole(content)));
        let Some(content) = content else {
            return Err(format!("frame {} is listed and not whole", stored.id.0));
        };
        if promise.durable.get(&stored.id.0).is_some_and(|promised| promised != content) {
            return Err(format!("frame {} is an older one", stored.id.0));
        }
    }
    for id in promise.durable.keys() {
        if !listed.iter().any(|stored| stored.id.0 == *id) {
            return Err(format!("frame {id} was durable and is gone"));
        }
    }
    if let Some(back) = listed.iter().find(|stored| promise.gone.contains(&stored.id.0)) {
        return Err(format!("frame {} was removed for good and is back", back.id.0));
    }
    for lost in disk.take_recovery().lost {
        if promise.gone.contains(&lost.id.0) {
            return Err(format!("frame {} was removed for good and is missed", lost.id.0));
        }
        if !run.deleted.contains(&lost.id.0) {
            return Err(format!("frame {} is called lost and never was there", lost.id.0));
        }
    }
    check_use(&disk, scratch)
}

/// A durable frame that goes missing after the crash is noticed.
fn check_missing(scratch: &Scratch, promise: &Promise, run: &Run) -> Result<(), String> {
    let Some(&id) = promise.durable.keys().next() else { return Ok(()) };
    let reading = DiskOptions { mode: DiskMode::ReadOnly, ..(run.options)(&scratch.0) };
    let file = Disk::open(reading).unwrap().file(CheckpointId(id)).unwrap();
    fs::remove_file(file).unwrap();
    let disk = Disk::open((run.options)(&scratch.0)).unwrap();
    let lost = disk.take_recovery().lost;
    let noticed = lost.iter().any(|lost| lost.id.0 == id);
    if noticed { Ok(()) } else { Err(format!("nobody noticed that frame {id} is missing")) }
}

/// The tier that was opened after the crash works, and what was left unfinished is gone.
fn check_use(disk: &Disk, scratch: &Scratch) -> Result<(), String> {
    if let Some(left) = scratch.names().iter().find(|name| is_like_slot(name)) {
        return Err(format!("{left} is left over"));
    }
    let listed = disk.list().unwrap();
    let files: BTreeSet<_> = listed.iter().filter_map(|stored| disk.file(stored.id)).collect();
    let unused =
        |name: &&String| name.starts_with("pack-") && !files.contains(&scratch.0.join(name));
    if let Some(left) = scratch.names().iter().find(unused) {
        return Err(format!("{left} has nothing in it"));
    }
    let id = CheckpointId(1000);
    disk.put(id, 0, &[b"after the crash"]).map_err(|error| error.to_string())?;
    disk.sync().map_err(|error| error.to_string())
}

#[test]
fn every_crash_leaves_what_was_acknowledged_and_nothing_torn() {
    for options in [buffered as Options, auto, one_pack] {
        let run = eventful_run(options);
        let images = crash_everywhere(&run).unwrap();
        assert!(images > 7 * 25, "only {images} images");
    }
}

#[test]
fn every_crash_leaves_what_was_acknowledged_in_packs_that_are_compacted_and_removed() {
    let run = packed_run();
    let removed = |op: &&Op| matches!(op, Op::Remove { name } if name.starts_with("pack-"));
    assert!(run.ops.iter().filter(removed).count() >= 2, "packs were compacted");
    crash_everywhere(&run).unwrap();
}

#[test]
fn the_run_reuses_files() {
    let run = eventful_run(buffered);
    let created = run.ops.iter().filter(|op| matches!(op, Op::Create { .. })).count();
    assert!(created < 1 + 11, "{created} files for 11 frames");
    assert!(run.ops.iter().any(|op| matches!(op, Op::SetLen { .. })));
}

/// The checker itself is checked: a tier that leaves a sync out must be found out.
#[test]
fn a_missing_sync_is_found() {
    let files = |op: &Op| matches!(op, Op::SyncFile { .. });
    let directory = |op: &Op| matches!(op, Op::SyncDir);
    for (left_out, run) in [
        (files as fn(&Op) -> bool, eventful_run(buffered)),
        (directory, eventful_run(buffered)),
        (files, packed_run()),
        (directory, packed_run()),
    ] {
        let mut run = run;
        run.ops.iter_mut().filter(|op| left_out(op)).for_each(|op| {
            // A harmless operation in its place keeps the positions of the promises.
            *op = Op::Create { name: "unrelated".to_owned(), file: 0 };
        });
        assert!(crash_everywhere(&run).is_err());
    }
}
