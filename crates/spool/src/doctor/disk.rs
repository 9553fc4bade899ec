//! A directory for the disk tier: where it lies, how bytes can reach it, and how fast.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use unspool_core::CheckpointId;
use unspool_tiers::{Disk as Tier, DiskIo, DiskOptions, Tier as _, TierError};

use super::Checkup;
use super::bounded::{self, Report};
use super::leftovers::{self, Leftover};
use super::mounts::{self, Mount};
use super::system::System;

/// The directory in which the probe works; it is the same for all, so that what a killed probe
/// leaves is cleared away by the next one. It is not one that the disk tier takes for its own.
const FOLDER: &str = "unspool-doctor";

/// What is written: as large as a usual checkpoint, and a bound on all of it.
const FRAME: usize = 32 << 20;
const MOST: u64 = 512 << 20;
/// The most that the probe takes of what is free.
const SHARE_OF_FREE: u64 = 8;
/// After this long in one direction no further frame is begun.
const ENOUGH: Duration = Duration::from_millis(600);

/// A directory for the disk tier.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Disk {
    /// The directory, absolute and without links where it exists.
    pub dir: PathBuf,
    /// Its file system.
    pub mount: Option<Mount>,
    /// Bytes that this user may still write.
    pub free: Option<u64>,
    /// Bytes of the whole file system.
    pub total: Option<u64>,
    /// Whether bytes can go past the page cache (`O_DIRECT`).
    pub direct: Option<bool>,
    /// Why they cannot.
    pub direct_problem: Option<String>,
    /// Whether io_uring works there.
    pub io_uring: Option<bool>,
    /// Why it does not.
    pub io_uring_problem: Option<String>,
    /// What the disk tier says about itself there.
    pub notes: Vec<String>,
    /// The rates of one thread, in bytes per second.
    pub rates: Option<Rates>,
    /// The directories of spools in it.
    pub spools: Vec<Leftover>,
    /// Why it cannot be used, or not be measured.
    pub problem: Option<String>,
}

/// What one thread writes and reads through the disk tier.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rates {
    /// Bytes per second written, without a sync.
    pub write: f64,
    /// Bytes per second read back.
    pub read: f64,
    /// Bytes that were written.
    pub bytes: u64,
    /// Bytes of one frame.
    pub frame: u64,
}

/// Looks at `dir`. It is not created; nothing stays in it.
pub(super) fn look(dir: &Path, checkup: &Checkup, system: &System) -> Disk {
    let empty = Disk { dir: dir.to_owned(), ..Disk::default() };
    let (dir, system, measure) = (dir.to_owned(), system.clone(), checkup.measure);
    let (mut found, problem) = bounded::within(checkup.limit, empty, move |report| {
        if let Err(cause) = examine(&dir, &system, measure, report) {
            report.note(|disk| disk.problem = Some(cause));
        }
    });
    found.problem = found.problem.or(problem);
    found
}

fn examine(
    dir: &Path,
    system: &System,
    measure: bool,
    report: &Report<Disk>,
) -> Result<(), String> {
    report.begins("looking at the directory");
    let dir = fs::canonicalize(dir).map_err(|cause| unreachable_directory(&cause))?;
    if !dir.is_dir() {
        return Err("it is no directory".to_owned());
    }
    let room = rustix::fs::statvfs(&dir).ok();
    report.note(|disk| {
        disk.mount = mounts::mount_of(system, &dir);
        disk.free = room.as_ref().map(|room| room.f_bavail.saturating_mul(room.f_frsize));
        disk.total = room.as_ref().map(|room| room.f_blocks.saturating_mul(room.f_frsize));
        disk.spools = leftovers::list(&dir);
        disk.dir.clone_from(&dir);
    });
    report.begins("opening a disk tier in it");
    let folder = dir.join(FOLDER);
    let tried = probe(&folder, measure, report).map_err(|error| error.to_string());
    // Another probe may still be in it.
    let _ = fs::remove_dir(&folder);
    tried
}

fn unreachable_directory(cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::NotFound => "there is no such directory (a spool would make it)".to_owned(),
        _ => format!("it cannot be reached: {cause}"),
    }
}

fn probe(folder: &Path, measure: bool, report: &Report<Disk>) -> Result<(), TierError> {
    let tier = match open(folder, DiskIo::Direct) {
        Ok(tier) => {
            report.note(|disk| disk.direct = Some(true));
            tier
        }
        Err(refused) => {
            // What nothing can be written to is told by this one.
            let tier = open(folder, DiskIo::Auto)?;
            report.note(|disk| {
                (disk.direct, disk.direct_problem) = (Some(false), Some(refused.to_string()));
            });
            tier
        }
    };
    report.note(|disk| disk.notes = tier.describe().notes);
    try_uring(folder, report);
    if measure {
        report.begins("writing and reading frames");
        let rates = rates(&tier, report.so_far().free)?;
        report.note(|disk| disk.rates = rates);
    }
    report.begins("removing what was written");
    tier.close()
}

fn try_uring(folder: &Path, report: &Report<Disk>) {
    let opened = open(folder, DiskIo::Uring).and_then(|tier| tier.close());
    report.note(|disk| {
        disk.io_uring = Some(opened.is_ok());
        disk.io_uring_problem = opened.err().map(|refused| refused.to_string());
    });
}

fn open(folder: &Path, io: DiskIo) -> Result<Tier, TierError> {
    let mut options = DiskOptions::new(folder);
    options.io = io;
    // Another probe may remove the folder between its making and its use.
    let mut opened = Tier::open(options.clone());
    for _ in 0..3 {
        if opened.is_ok() {
            break;
        }
        opened = Tier::open(options.clone());
    }
    opened
}

/// `None` where there is no room for a single frame.
fn rates(tier: &Tier, free: Option<u64>) -> Result<Option<Rates>, TierError> {
    let frame = FRAME as u64;
    let most = free.map_or(MOST, |free| MOST.min(free / SHARE_OF_FREE)) / frame;
    let buffer = noise(FRAME + 4095);
    let start = buffer.as_ptr().align_offset(4096).min(4095);
    let bytes = &buffer[start..start + FRAME];
    let (written, writing) = timed(most, |id| tier.put(id, 0, &[bytes]))?;
    if written == 0 {
        return Ok(None);
    }
    let mut buffer = buffer;
    let back = &mut buffer[start..start + FRAME];
    let (read, reading) = timed(written, |id| tier.get(id, 0, &mut [back]))?;
    let rate = |count: u64, time: Duration| (count * frame) as f64 / time.as_secs_f64().max(1e-9);
    Ok(Some(Rates {
        write: rate(written, writing),
        read: rate(read, reading),
        bytes: written * frame,
        frame,
    }))
}

/// Does `work` for one frame after the other until it was enough, at most `most` times; says how
/// often and how long.
fn timed(
    most: u64,
    mut work: impl FnMut(CheckpointId) -> Result<(), TierError>,
) -> Result<(u64, Duration), TierError> {
    let begin = Instant::now();
    let mut count = 0;
    while count < most && begin.elapsed() < ENOUGH {
        work(CheckpointId(count))?;
        count += 1;
    }
    Ok((count, begin.elapsed()))
}

/// Bytes that no file system can compress or merge (xorshift64*, Vigna 2016).
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut words = Vec::with_capacity(len / 8 + 1);
    words.resize_with(len / 8 + 1, || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    });
    words.iter().flat_map(|word| word.to_le_bytes()).take(len).collect()
}

#[cfg(test)]
mod tests {
    use unspool_testkit::Scratch;

    use super::*;

    #[test]
    fn a_directory_is_described_measured_and_left_as_it_was() {
        let scratch = Scratch::new();
        fs::write(scratch.path().join("mine"), "x").unwrap();
        let disk = look(scratch.path(), &Checkup::default(), &System::here());
        assert_eq!(disk.problem, None, "{disk:?}");
        assert!(disk.mount.is_some() && disk.free <= disk.total, "{disk:?}");
        assert_eq!(disk.direct == Some(true), disk.direct_problem.is_none());
        assert_eq!(disk.io_uring == Some(true), disk.io_uring_problem.is_none());
        assert!(!disk.notes.is_empty());
        let rates = disk.rates.unwrap();
        assert!(rates.write > 0.0 && rates.read > 0.0 && rates.bytes >= rates.frame, "{rates:?}");
        assert_eq!(scratch.names(), ["mine"]);
    }

    #[test]
    fn nothing_is_written_without_measuring() {
        let scratch = Scratch::new();
        let checkup = Checkup { measure: false, ..Checkup::default() };
        let disk = look(scratch.path(), &checkup, &System::here());
        assert_eq!((disk.rates, disk.problem), (None, None));
        assert!(disk.direct.is_some());
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_answer_and_is_not_made() {
        let scratch = Scratch::new();
        let missing = scratch.path().join("missing");
        let disk = look(&missing, &Checkup::default(), &System::here());
        assert!(disk.problem.is_some_and(|text| text.contains("no such directory")));
        fs::write(&missing, "a file").unwrap();
        let disk = look(&missing, &Checkup::default(), &System::here());
        assert!(disk.problem.is_some_and(|text| text.contains("no directory")));
        assert_eq!(scratch.names(), ["missing"]);
    }

    #[test]
    fn spools_of_others_are_listed_and_not_touched() {
        let scratch = Scratch::new();
        let dead = scratch.path().join("unspool-4000000-0123456789abcdef");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join("lock"), "").unwrap();
        let checkup = Checkup { measure: false, ..Checkup::default() };
        let disk = look(scratch.path(), &checkup, &System::here());
        assert_eq!(disk.spools.len(), 1);
        assert!(dead.is_dir());
    }

    #[test]
    fn noise_has_no_pattern_that_repeats_within_a_block() {
        let bytes = noise(8192);
        assert_eq!(bytes.len(), 8192);
        assert_ne!(bytes[..4096], bytes[4096..]);
    }
}
