//! A directory for the disk tier: where it lies, how bytes can reach it, and how fast.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use unspool_core::CheckpointId;
use unspool_tiers::{Disk as Tier, DiskIo, DiskOptions, Tier as _, TierError};

use super::Checkup;
use super::bounded::{self, Report};

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

/// The file systems that are known, by the number that statfs(2) gives, and where their bytes
/// are. FUSE is whatever its program does, which most often asks another machine.
const FILE_SYSTEMS: [(u64, &str, &str); 19] = [
    (0xef53, "ext4", "local"),
    (0x5846_5342, "xfs", "local"),
    (0x9123_683e, "btrfs", "local"),
    (0xf2f5_2010, "f2fs", "local"),
    (0x2fc1_2fc1, "zfs", "local"),
    (0x794c_7630, "overlay", "local"),
    (0x0102_1994, "tmpfs", "memory"),
    (0x8584_58f6, "ramfs", "memory"),
    (0x9584_58f6, "hugetlbfs", "memory"),
    (0x6969, "nfs", "remote"),
    (0xff53_4d42, "cifs", "remote"),
    (0xfe53_4d42, "smb", "remote"),
    (0x0bd0_0bd0, "lustre", "remote"),
    (0x00c3_6400, "ceph", "remote"),
    (0x4750_4653, "gpfs", "remote"),
    (0x1983_0326, "beegfs", "remote"),
    (0x5346_414f, "afs", "remote"),
    (0x0102_1997, "9p", "remote"),
    (0x6573_5546, "fuse", "remote"),
];

/// A directory for the disk tier. Sizes are in bytes, rates in bytes per second.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Disk {
    /// The directory, absolute and without links where it exists.
    pub directory: PathBuf,
    /// Its file system, or the number of one that has no name here.
    pub file_system: Option<String>,
    /// Where its bytes are: `local`, `memory` or `remote`; local where that is not known.
    pub medium: Option<&'static str>,
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
    /// What one thread writes through the disk tier, without a sync.
    pub write: Option<f64>,
    /// What one thread reads back.
    pub read: Option<f64>,
    /// Why it cannot be used, or not be measured.
    pub problem: Option<String>,
}

/// Looks at `dir`. It is not created; nothing stays in it.
pub(super) fn look(dir: &Path, checkup: &Checkup) -> Disk {
    let empty = Disk { directory: dir.to_owned(), ..Disk::default() };
    let (dir, measure) = (dir.to_owned(), checkup.measure);
    let (mut found, problem) = bounded::within(checkup.limit, empty, move |report| {
        if let Err(cause) = examine(&dir, measure, report) {
            report.note(|disk| disk.problem = Some(cause));
        }
    });
    found.problem = found.problem.or(problem);
    found
}

fn examine(dir: &Path, measure: bool, report: &Report<Disk>) -> Result<(), String> {
    report.begins("looking at the directory");
    let dir = fs::canonicalize(dir).map_err(|cause| unreachable_directory(&cause))?;
    if !dir.is_dir() {
        return Err("it is not a directory".to_owned());
    }
    let (room, kind) = (rustix::fs::statvfs(&dir).ok(), file_system(&dir));
    report.note(|disk| {
        (disk.file_system, disk.medium) = kind.unzip();
        disk.free = room.as_ref().map(|room| room.f_bavail.saturating_mul(room.f_frsize));
        disk.total = room.as_ref().map(|room| room.f_blocks.saturating_mul(room.f_frsize));
        disk.directory.clone_from(&dir);
    });
    report.begins("opening a disk tier in it");
    let folder = dir.join(FOLDER);
    let tried = probe(&folder, measure, report).map_err(|error| error.to_string());
    // Another probe may still be in it.
    let _ = fs::remove_dir(&folder);
    tried
}

fn file_system(dir: &Path) -> Option<(String, &'static str)> {
    let number = u64::try_from(rustix::fs::statfs(dir).ok()?.f_type).ok()?;
    let known = FILE_SYSTEMS.iter().find(|known| known.0 == number);
    Some(known.map_or_else(
        || (format!("a file system of type {number:#x}"), "local"),
        |&(_, name, medium)| (name.to_owned(), medium),
    ))
}

/// What this user may still write to a directory on a disk of this machine; `None` where it is
/// elsewhere or cannot be written.
pub(crate) fn free_on_a_disk(dir: &Path) -> Option<u64> {
    let (_, medium) = file_system(dir)?;
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).ok()?;
    let found = rustix::fs::statvfs(dir).ok()?;
    (medium == "local").then(|| found.f_bavail.saturating_mul(found.f_frsize))
}

fn unreachable_directory(cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::NotFound => {
            "there is no such directory (a spool makes the last part of a path)".to_owned()
        }
        _ => format!("it cannot be reached: {cause}"),
    }
}

fn probe(folder: &Path, measure: bool, report: &Report<Disk>) -> Result<(), TierError> {
    let direct = open(folder, DiskIo::Direct);
    report.note(|disk| {
        disk.direct = Some(direct.is_ok());
        disk.direct_problem = direct.as_ref().err().map(ToString::to_string);
    });
    // What nothing can be written to is reported by the second one.
    let tier = direct.or_else(|_| open(folder, DiskIo::Auto))?;
    try_uring(folder, report);
    if measure {
        report.begins("writing and reading frames");
        let rates = rates(&tier, report.so_far().free)?;
        report.note(|disk| (disk.write, disk.read) = rates.unzip());
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
    let early = (0..3).find_map(|_| Tier::open(options.clone()).ok());
    early.map_or_else(|| Tier::open(options), Ok)
}

/// Bytes per second written and read; `None` where there is no room for a single frame.
fn rates(tier: &Tier, free: Option<u64>) -> Result<Option<(f64, f64)>, TierError> {
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
    Ok(Some((rate(written, writing), rate(read, reading))))
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
        let disk = look(scratch.path(), &Checkup::default());
        assert_eq!(disk.problem, None, "{disk:?}");
        assert!(disk.file_system.is_some() && disk.medium.is_some(), "{disk:?}");
        assert!(disk.free <= disk.total, "{disk:?}");
        assert_eq!(disk.direct == Some(true), disk.direct_problem.is_none());
        assert_eq!(disk.io_uring == Some(true), disk.io_uring_problem.is_none());
        assert!(disk.write > Some(0.0) && disk.read > Some(0.0), "{disk:?}");
        assert_eq!(scratch.names(), ["mine"]);
    }

    #[test]
    fn nothing_is_written_without_measuring() {
        let scratch = Scratch::new();
        let checkup = Checkup { measure: false, ..Checkup::default() };
        let disk = look(scratch.path(), &checkup);
        assert_eq!((disk.write, disk.read, disk.problem), (None, None, None));
        assert!(disk.direct.is_some());
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_answer_and_is_not_made() {
        let scratch = Scratch::new();
        let missing = scratch.path().join("missing");
        let disk = look(&missing, &Checkup::default());
        assert!(disk.problem.is_some_and(|text| text.contains("no such directory")));
        fs::write(&missing, "a file").unwrap();
        let disk = look(&missing, &Checkup::default());
        assert!(disk.problem.is_some_and(|text| text.contains("not a directory")));
        assert_eq!(scratch.names(), ["missing"]);
    }

    #[test]
    fn memory_is_told_apart_from_disks_by_the_number_of_its_file_system() {
        let shared = Path::new("/dev/shm");
        let known = rustix::fs::statfs(shared).is_ok_and(|found| found.f_type == 0x0102_1994);
        assert!(!known || file_system(shared) == Some(("tmpfs".to_owned(), "memory")));
        assert_eq!(file_system(Path::new("/proc")).map(|(_, medium)| medium), Some("local"));
        assert_eq!(file_system(Path::new("/there/is/nothing")), None);
    }

    #[test]
    fn noise_has_no_pattern_that_repeats_within_a_block() {
        let bytes = noise(8192);
        assert_eq!(bytes.len(), 8192);
        assert_ne!(bytes[..4096], bytes[4096..]);
    }
}
