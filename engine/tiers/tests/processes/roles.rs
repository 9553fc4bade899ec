//! What a process does when it plays a role, and the frames that all of them use.

use std::fs;
use std::io::Write;
use std::path::Path;

use unspool_core::{CheckpointId, Failure};
use unspool_tiers::{Disk, DiskMode, DiskOptions, Process, Tier, TierError};

/// A name, and what a process of that name does in a directory.
type Role = (&'static str, fn(&Path));

pub(crate) const ROLES: &[Role] = &[
    ("hold", hold),
    ("work", work),
    ("expect-refusal", expect_refusal),
    ("read-archive", read_archive),
    ("fill-small-file-system", fill_small_file_system),
    ("write-beyond-limit", write_beyond_limit),
    ("fork", fork_and_drop),
    ("fork-twice", fork_twice),
    ("move", change_directory),
];

/// The exit code of a role that this machine does not let play.
pub(crate) const NOT_PERMITTED: i32 = 77;
const FRAME: usize = 100_000;

/// Keeps a tier open until a word asks it to end.
fn hold(dir: &Path) {
    let durable = std::env::var("UNSPOOL_TEST_MODE").as_deref() == Ok("durable");
    let disk = open(dir, durable);
    put(&disk, 1).unwrap();
    put(&disk, 2).unwrap();
    disk.sync().unwrap();
    put(&disk, 3).unwrap();
    say("ready");
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "check" => {
                (1..4).for_each(|id| assert_whole(&disk, id));
                say("whole");
            }
            _ => return,
        }
    }
}

fn work(dir: &Path) {
    for round in 0..20 {
        let disk = open(dir, false);
        put(&disk, round).unwrap();
        assert_whole(&disk, round);
        disk.close().unwrap();
    }
}

fn expect_refusal(dir: &Path) {
    for durable in [false, true] {
        let mut options = DiskOptions::new(dir);
        options.durable = durable;
        let error = Disk::open(options).unwrap_err();
        assert_eq!(error.kind(), Failure::Permanent, "{error}");
        assert!(error.to_string().contains("permission is denied"), "{error}");
        assert!(error.location().contains(dir.to_str().unwrap()), "{error}");
    }
}

/// Reads frames 1 and 2, which another process has written and which cannot be written here.
fn read_archive(dir: &Path) {
    let mut options = DiskOptions::new(dir);
    options.durable = true;
    let error = Disk::open(options.clone()).unwrap_err();
    assert!(error.to_string().contains("permission is denied"), "{error}");
    assert!(error.advice().contains("for reading"), "{error}");
    options.mode = DiskMode::ReadOnly;
    let disk = Disk::open(options).unwrap();
    (1..3).for_each(|id| assert_whole(&disk, id));
    assert!(disk.take_recovery().lost.is_empty());
    assert_eq!(put(&disk, 3).unwrap_err().kind(), Failure::Permanent);
    disk.close().unwrap();
}

/// Mounts a file system of 1 MiB where only this process sees it.
fn fill_small_file_system(dir: &Path) {
    if !mount_small(dir) {
        std::process::exit(NOT_PERMITTED);
    }
    fill(&open(dir, false));
    assert!(fs::read_dir(dir).unwrap().next().is_none());
    let durable = open(dir, true);
    fill(&durable);
    durable.close().unwrap();
}

/// Fills a tier that holds less than 1 MiB and makes room again.
pub(crate) fn fill(disk: &Disk) {
    let mut last = 0;
    let error = loop {
        last += 1;
        match put(disk, last) {
            Ok(()) => assert!(last < 11, "11 frames of 100 kB do not fit"),
            Err(error) => break error,
        }
    };
    assert!(last > 5, "only {last} frames fit");
    assert_eq!(error.kind(), Failure::NoSpace, "{error}");
    assert_eq!(error.progress().map(|progress| progress.asked), Some(FRAME as u64));
    let ids: Vec<u64> = disk.list().unwrap().iter().map(|stored| stored.id.0).collect();
    assert_eq!(ids, (1..last).collect::<Vec<_>>());
    assert_eq!(put(disk, last).unwrap_err().kind(), Failure::NoSpace, "nothing was left");
    (1..last).for_each(|id| assert_whole(disk, id));
    disk.delete(CheckpointId(1)).unwrap();
    disk.sync().unwrap();
    put(disk, last).unwrap();
    (2..=last).for_each(|id| assert_whole(disk, id));
}

fn write_beyond_limit(dir: &Path) {
    let disk = open(dir, false);
    put(&disk, 1).unwrap();
    limit_file_size(1 << 20);
    let error = disk.put(CheckpointId(2), 0, &[&vec![1; 4 << 20]]).unwrap_err();
    assert_eq!(error.kind(), Failure::Permanent, "{error}");
    assert!(error.advice().contains("ulimit -f"), "{error}");
    let own = fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::read_dir(own).unwrap().count(), 2, "a lock and frame 1");
    put(&disk, 2).unwrap();
    assert_whole(&disk, 1);
    assert_whole(&disk, 2);
}

fn change_directory(dir: &Path) {
    std::env::set_current_dir(dir).unwrap();
    let tiers = [open(Path::new("."), false), open(Path::new("durable"), true)];
    std::env::set_current_dir("/").unwrap();
    for tier in tiers {
        put(&tier, 1).unwrap();
        assert_whole(&tier, 1);
        tier.close().unwrap();
    }
}

fn fork_and_drop(dir: &Path) {
    let disk = open(dir, false);
    put(&disk, 1).unwrap();
    // SAFETY: this process has one thread, so the child is a full copy of it.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = put(&disk, 2).is_err() && disk.close().is_err() && disk.list().is_err();
        drop(disk);
        // SAFETY: ends the child without what its parent registered for the end.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: `status` lives through the call.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0), "the child could use the tier of its parent");
    // The lock is still held: another opener leaves the directory alone.
    drop(open(dir, false));
    assert_whole(&disk, 1);
    put(&disk, 2).unwrap();
}

/// Every generation knows its own process from those before it.
fn fork_twice(_: &Path) {
    let mut known = vec![Process::of(std::process::id())];
    for _ in 0..2 {
        // SAFETY: this process has one thread, so the child is a full copy of it.
        let child = unsafe { libc::fork() };
        if child != 0 {
            let mut status = 0;
            // SAFETY: `status` lives through the call.
            let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
            let alone = known.iter().rev().skip(1).all(|process| !process.is_current());
            let right = (ended, status) == (child, 0) && known[known.len() - 1].is_current();
            end(right && alone, known.len() > 1);
            return;
        }
        if known.iter().any(|process| process.is_current()) {
            end(false, true);
        }
        known.push(Process::of(std::process::id()));
    }
    let (own, before) = (known[2].is_current(), known[0].is_current() || known[1].is_current());
    end(own && !before, true);
}

/// Ends a child, or checks what a child would have said.
fn end(right: bool, child: bool) {
    assert!(right || child, "a process is not what it should be");
    if child {
        // SAFETY: ends the child without what its parent registered for the end.
        unsafe { libc::_exit(i32::from(!right)) };
    }
}

pub(crate) fn open(dir: &Path, durable: bool) -> Disk {
    let mut options = DiskOptions::new(dir);
    options.durable = durable;
    Disk::open(options).unwrap_or_else(|error| panic!("{error}"))
}

fn bytes(id: u64) -> Vec<u8> {
    (0..FRAME as u64).map(|i| (i * i + id * 7) as u8).collect()
}

pub(crate) fn put(disk: &Disk, id: u64) -> Result<(), TierError> {
    disk.put(CheckpointId(id), 0, &[&bytes(id)])
}

#[track_caller]
pub(crate) fn assert_whole(disk: &Disk, id: u64) {
    let mut out = vec![0; FRAME];
    disk.get(CheckpointId(id), 0, &mut [&mut out]).unwrap();
    assert!(out == bytes(id), "frame {id} is not what was put");
}

fn say(word: &str) {
    println!("{word}");
    std::io::stdout().flush().unwrap();
}

fn limit_file_size(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: `limit` lives through the call. Without the signal a write beyond the limit is an
    // error, as in Python and in most other hosts.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Mounts a file system of 1 MiB in memory in a mount namespace of its own; false when that is not
/// permitted.
fn mount_small(dir: &Path) -> bool {
    let dir = std::ffi::CString::new(dir.to_str().unwrap()).unwrap();
    let none = std::ptr::null();
    // SAFETY: every string is terminated and lives through the calls.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast())
                == 0
            && libc::mount(
                c"tmpfs".as_ptr(),
                dir.as_ptr(),
                c"tmpfs".as_ptr(),
                0,
                c"size=1m".as_ptr().cast(),
            ) == 0
    }
}
