//! The committer on a medium that hangs or refuses.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use unspool::{DiskSettings, Dtype, ErrorKind, RegionSpec, Settings};
use unspool_testkit::Scratch;

use super::*;
use crate::manifest::tests::sample;
use crate::medium::{Files, Medium};

/// The file system; syncs of folders hang while it is closed, and removals fail when told to.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<Hangs>,
    changed: Condvar,
    keeps: AtomicBool,
}

#[derive(Debug, Default)]
struct Hangs {
    closed: bool,
    reached: bool,
}

impl Gate {
    fn set(&self, closed: bool) {
        *self.state.lock().unwrap() = Hangs { closed, reached: false };
        self.changed.notify_all();
    }

    /// Waits until somebody hangs here.
    fn wait_until_reached(&self) {
        let state = self.state.lock().unwrap();
        let limit = Duration::from_secs(20);
        let waited = self.changed.wait_timeout_while(state, limit, |state| !state.reached);
        assert!(!waited.unwrap().1.timed_out());
    }
}

impl Medium for Gate {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        Files.write(path, bytes)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Files.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        let refused = self.keeps.load(Ordering::Relaxed) && path.exists();
        if refused { Err(io::Error::from_raw_os_error(5)) } else { Files.remove(path) }
    }
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.reached = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| state.closed).unwrap());
        Files.sync_folder(path)
    }
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        Files.make_folder(path)
    }
}

struct Rig {
    committer: Committer,
    gate: Arc<Gate>,
    spool: Arc<Spool>,
    _scratch: Scratch,
}

fn rig() -> Rig {
    let (scratch, gate) = (Scratch::new(), Arc::<Gate>::default());
    let medium: Arc<dyn Medium> = Arc::<Gate>::clone(&gate);
    let folder = Folder::make_on(&scratch.path().join("run"), 3, 16, medium).unwrap();
    let disk = DiskSettings { durable: true, ..DiskSettings::new(folder.data()) };
    let settings = Settings { host: Some(1 << 20), disk: Some(disk), ..Settings::default() };
    let spool = Arc::new(Spool::open(settings).unwrap());
    let timeout = Duration::from_secs(20);
    let places = Places { data: Arc::clone(&spool), stage: None, folder, copier: None };
    let committer = Committer::start(places, Saves::default(), timeout).unwrap();
    Rig { committer, gate, spool, _scratch: scratch }
}

impl Rig {
    fn save(&self, step: u64) {
        let spec = RegionSpec { name: "u".into(), dtype: Dtype::UInt8, shape: vec![100] };
        self.spool.save(step as i64, vec![spec], &Wait::default()).unwrap().commit().unwrap();
        self.committer.add(Job {
            manifest: sample(step),
            begun: Instant::now(),
            blocked: 0.0,
            copy: false,
        });
    }

    fn settle(&self, millis: u64) -> Result<(), Error> {
        self.committer.settle(&Wait::at_most(Duration::from_millis(millis)))
    }

    fn steps(&self) -> Vec<u64> {
        self.committer.counted().iter().map(|part| part.step).collect()
    }
}

#[test]
fn a_medium_that_hangs_ends_no_wait_but_is_waited_for_again() {
    let rig = rig();
    rig.gate.set(true);
    rig.save(1);
    let told = rig.settle(60).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Timeout);
    assert!(told.message().contains("rank-0003-of-0016"), "{told}");
    assert_eq!(rig.steps(), [0; 0], "nothing counts before it is synced");
    let interrupted = Wait { interrupted: &|| true, ..Wait::default() };
    assert_eq!(rig.committer.settle(&interrupted).unwrap_err().kind(), ErrorKind::Interrupted);
    rig.gate.set(false);
    rig.settle(20_000).unwrap();
    assert_eq!(rig.steps(), [1]);
}

#[test]
fn a_queue_that_is_full_makes_saves_wait() {
    let rig = rig();
    rig.gate.set(true);
    rig.save(1);
    rig.gate.wait_until_reached();
    (2..=MOST_WAITING as u64 + 1).for_each(|step| rig.save(step));
    let wait = Wait::at_most(Duration::from_millis(60));
    assert_eq!(rig.committer.wait_for_room(&wait).unwrap_err().kind(), ErrorKind::Timeout);
    rig.gate.set(false);
    rig.committer.wait_for_room(&Wait::default()).unwrap();
    rig.settle(20_000).unwrap();
    assert_eq!(rig.steps().len(), MOST_WAITING + 1);
}

#[test]
fn what_cannot_be_deleted_is_told_and_goes_another_time() {
    let rig = rig();
    (1..=3).for_each(|step| rig.save(step));
    rig.settle(20_000).unwrap();
    rig.gate.keeps.store(true, Ordering::Relaxed);
    rig.committer.remove_below(3, Vec::new());
    rig.settle(20_000).unwrap();
    let told = rig.committer.take_failure().unwrap();
    assert!(told.message().contains("Checkpoints before step 3 are not deleted"), "{told}");
    assert_eq!(rig.steps(), [1, 2, 3]);
    rig.gate.keeps.store(false, Ordering::Relaxed);
    rig.committer.remove_below(3, Vec::new());
    rig.settle(20_000).unwrap();
    assert_eq!(rig.steps(), [3]);
    assert_eq!(rig.spool.versions().unwrap(), [3]);
}

#[test]
fn who_is_given_up_ends_when_the_medium_answers() {
    let rig = rig();
    rig.gate.set(true);
    rig.save(1);
    rig.save(2);
    rig.gate.wait_until_reached();
    rig.committer.give_up();
    assert!(rig.committer.end(&Wait::at_most(Duration::from_millis(60))).is_err());
    rig.gate.set(false);
    rig.committer.end(&Wait::default()).unwrap();
    assert_eq!(rig.steps(), [1], "step 2 was given up");
}
