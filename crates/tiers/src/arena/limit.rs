//! How much memory there is to promise. An arena costs nothing until it is written, so a machine
//! that cannot hold it would only show that by killing the process, hours later: it is refused at
//! the start instead.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use unspool_core::{Failure, TierKind};

use crate::error::TierError;
use crate::text::Bytes;

/// Bytes that arenas may still come to need: promised and not yet written. What was written
/// already shows in the system's own figures.
#[derive(Debug, Default)]
struct Ledger(AtomicU64);

/// All arenas of this process.
static PROCESS: Ledger = Ledger(AtomicU64::new(0));

impl Ledger {
    fn promise(&'static self, kind: TierKind, len: u64, free: &Free) -> Result<Promise, TierError> {
        // In one step, so that a request that is refused is never counted against another one.
        let with = |promised: u64| promised.checked_add(len).filter(|&all| all <= free.bytes);
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with) {
            Ok(_) => Ok(Promise { ledger: self, len, kept: AtomicU64::new(0) }),
            Err(promised) => Err(free.refusal(kind, len, promised)),
        }
    }
}

/// The memory that an arena may come to need. Dropping it takes the promise back.
#[derive(Debug)]
pub(super) struct Promise {
    ledger: &'static Ledger,
    len: u64,
    /// The end of the highest byte range that was lent. The core fills an arena from its start,
    /// so the bytes below count as written.
    kept: AtomicU64,
}

impl Promise {
    /// Promises `len` bytes.
    ///
    /// # Errors
    /// When the machine does not have them besides what is in use and promised.
    pub(super) fn make(kind: TierKind, len: u64) -> Result<Promise, TierError> {
        PROCESS.promise(kind, len, &Free::of_this_process())
    }

    /// The bytes below `end` are about to be written.
    pub(super) fn kept_up_to(&self, end: u64) {
        debug_assert!(end <= self.len);
        let before = self.kept.fetch_max(end, Ordering::Relaxed);
        self.ledger.0.fetch_sub(end.saturating_sub(before), Ordering::Relaxed);
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        let left = self.len - self.kept.load(Ordering::Relaxed);
        self.ledger.0.fetch_sub(left, Ordering::Relaxed);
    }
}

/// How much memory this process can still get, and who says so.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Free {
    bytes: u64,
    limit: String,
}

impl Free {
    /// The tightest of what the machine and the control groups leave; no limit where neither can
    /// be read.
    fn of_this_process() -> Free {
        if cfg!(miri) {
            return Free::unknown();
        }
        let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        machine(Path::new("/proc/meminfo"))
            .into_iter()
            .chain(groups(&membership, Path::new("/sys/fs/cgroup")))
            .min_by_key(|free| free.bytes)
            .unwrap_or_else(Free::unknown)
    }

    fn unknown() -> Free {
        Free { bytes: u64::MAX, limit: "what can be addressed".to_owned() }
    }

    fn refusal(&self, kind: TierKind, len: u64, promised: u64) -> TierError {
        let free = self.bytes.saturating_sub(promised);
        let reason = format!(
            "{} were asked for; {} are free by {}, {} of them promised to other arenas",
            Bytes(len),
            Bytes(self.bytes),
            self.limit,
            Bytes(promised.min(self.bytes))
        );
        TierError::new(Failure::NoSpace, "reserve", format!("{kind} memory"), reason)
            .with_progress(len, 0)
            .with_advice(format!(
                "Set the option `{kind}` to at most {free} bytes; slower tiers can hold the rest."
            ))
    }
}

/// What the kernel can give without swapping.
fn machine(meminfo: &Path) -> Option<Free> {
    let text = fs::read_to_string(meminfo).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Free { bytes: kib.saturating_mul(1024), limit: "the machine (MemAvailable)".to_owned() })
}

/// What every control group that this process is in leaves. `membership` is `/proc/self/cgroup`:
/// lines of `number:controllers:path`; version 2 has number 0 and no controllers.
fn groups(membership: &str, root: &Path) -> Vec<Free> {
    membership
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            match controllers {
                "" => Some((V2, root.to_owned(), path)),
                _ if controllers.split(',').any(|name| name == "memory") => {
                    Some((V1, root.join("memory"), path))
                }
                _ => None,
            }
        })
        .flat_map(|(names, root, path)| levels(&root, path).map(move |dir| names.free(&dir)))
        .flatten()
        .collect()
}

/// The directory of a group and those of its ancestors: each has a limit of its own. In a
/// container the path may name a directory that is not mounted; the root then stands for it.
fn levels(root: &Path, path: &str) -> impl Iterator<Item = PathBuf> + use<> {
    let own = root.join(path.trim_start_matches('/'));
    let root = root.to_owned();
    let ancestors: Vec<PathBuf> = own.ancestors().map(Path::to_owned).collect();
    ancestors.into_iter().take_while(move |dir| dir.starts_with(&root))
}

/// The names of the files of one version of control groups.
#[derive(Clone, Copy, Debug)]
struct Names {
    limit: &'static str,
    usage: &'static str,
}

const V2: Names = Names { limit: "memory.max", usage: "memory.current" };
const V1: Names = Names { limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes" };

impl Names {
    /// What one group leaves; `None` when it sets no limit. Cached file pages count as free: the
    /// kernel takes them back under pressure.
    fn free(self, dir: &Path) -> Option<Free> {
        let number = |name: &str| -> Option<u64> {
            fs::read_to_string(dir.join(name)).ok()?.trim().parse().ok()
        };
        let (limit, usage) = (number(self.limit)?, number(self.usage)?);
        let usage = usage.saturating_sub(cached(&dir.join("memory.stat")));
        let file = dir.join(self.limit).display().to_string();
        Some(Free { bytes: limit.saturating_sub(usage), limit: format!("the limit in {file}") })
    }
}

/// The bytes of file pages in a group's `memory.stat`.
fn cached(stat: &Path) -> u64 {
    let text = fs::read_to_string(stat).unwrap_or_default();
    let pages = |line: &str| -> Option<u64> {
        let (name, value) = line.split_once(' ')?;
        let file = matches!(name, "inactive_file" | "active_file");
        file.then(|| value.trim().parse().ok()).flatten()
    };
    text.lines().filter_map(pages).sum()
}

#[cfg(test)]
#[cfg(not(miri))]
#[path = "limit_tests.rs"]
mod tests;
