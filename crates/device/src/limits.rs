//! What the operating system allows: host memory, control groups, locked memory. Plain data for
//! reports and for the texts of errors.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use crate::error::Bytes;

/// Limits on host memory, in bytes. `None` is "no limit" or "cannot be read".
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostLimits {
    /// All memory of the machine.
    pub total: Option<u64>,
    /// What the machine can give without swapping (`MemAvailable`).
    pub available: Option<u64>,
    /// What the tightest control group of this process leaves.
    pub control_group: Option<u64>,
    /// The soft limit on locked memory (`RLIMIT_MEMLOCK`, `ulimit -l`).
    pub locked_soft: Option<u64>,
    /// The hard limit on locked memory.
    pub locked_hard: Option<u64>,
}

impl HostLimits {
    /// Reads them.
    #[must_use]
    pub fn read() -> HostLimits {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let locked = getrlimit(Resource::Memlock);
        HostLimits {
            total: field(&meminfo, "MemTotal:"),
            available: field(&meminfo, "MemAvailable:"),
            control_group: tightest(&groups, Path::new("/sys/fs/cgroup")),
            locked_soft: locked.current,
            locked_hard: locked.maximum,
        }
    }

    /// What this process can still get: the tightest of what the machine and its control groups
    /// leave.
    #[must_use]
    pub fn free(&self) -> Option<u64> {
        [self.available, self.control_group].into_iter().flatten().min()
    }
}

impl fmt::Display for HostLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: Option<u64>, none: &str| {
            bytes.map_or_else(|| none.to_owned(), |bytes| Bytes(bytes).to_string())
        };
        write!(
            f,
            "{} free, RLIMIT_MEMLOCK {}",
            text(self.free(), "an unknown amount"),
            text(self.locked_soft, "unlimited")
        )
    }
}

/// A line of `/proc/meminfo`, in bytes.
fn field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// What the tightest group of this process leaves. `membership` is `/proc/self/cgroup`: lines of
/// `number:controllers:path`; version 2 names no controllers.
fn tightest(membership: &str, root: &Path) -> Option<u64> {
    let left = membership.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        if controllers.is_empty() {
            return levels(root, path).filter_map(|dir| left(&dir, V2)).min();
        }
        let memory = controllers.split(',').any(|name| name == "memory");
        let root = root.join("memory");
        memory.then(|| levels(&root, path).filter_map(|dir| left(&dir, V1)).min())?
    });
    left.min()
}

/// The files of the limit and the usage.
const V2: (&str, &str) = ("memory.max", "memory.current");
const V1: (&str, &str) = ("memory.limit_in_bytes", "memory.usage_in_bytes");

/// The directory of a group and those of its ancestors: each has a limit of its own. In a
/// container the path may not be mounted; the root then stands for it.
fn levels(root: &Path, path: &str) -> impl Iterator<Item = PathBuf> + use<> {
    let own = root.join(path.trim_start_matches('/'));
    let levels: Vec<PathBuf> =
        own.ancestors().take_while(|dir| dir.starts_with(root)).map(Path::to_owned).collect();
    levels.into_iter()
}

/// What one group leaves; `None` when it has no limit. Cached file pages count as used here: the
/// figure is for reports, and errs on the safe side.
fn left(dir: &Path, (limit, usage): (&str, &str)) -> Option<u64> {
    /// What version 1 writes for "no limit".
    const UNLIMITED: u64 = 1 << 62;
    let number = |name: &str| fs::read_to_string(dir.join(name)).ok()?.trim().parse::<u64>().ok();
    let limit = number(limit).filter(|&limit| limit < UNLIMITED)?;
    Some(limit.saturating_sub(number(usage)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_in_bytes() {
        let text = "MemTotal:       100 kB\nMemAvailable:    7 kB\nHugepagesize:  2048 kB\n";
        assert_eq!(field(text, "MemTotal:"), Some(102_400));
        assert_eq!(field(text, "MemAvailable:"), Some(7_168));
        assert_eq!(field(text, "MemFree:"), None);
        assert_eq!(field("MemTotal: many kB\n", "MemTotal:"), None);
    }

    #[test]
    fn the_tightest_of_a_group_and_its_ancestors_counts() {
        let root = std::env::temp_dir().join(format!("unspool-groups-{}", std::process::id()));
        let inner = root.join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        fs::write(inner.join("memory.current"), "10\n").unwrap();
        fs::write(root.join("a/memory.max"), "100\n").unwrap();
        fs::write(root.join("a/memory.current"), "60\n").unwrap();
        let found = tightest("0::/a/b\n", &root);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, Some(40));
    }

    #[test]
    fn this_machine_says_what_it_has() {
        let limits = HostLimits::read();
        assert!(limits.total.is_some_and(|total| total > 0), "{limits:?}");
        assert!(limits.free() <= limits.total, "{limits:?}");
        assert!(limits.to_string().contains("RLIMIT_MEMLOCK"));
    }
}
