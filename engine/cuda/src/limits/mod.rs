//! The operating system's limits: host memory, control groups, locked memory. Plain data for
//! reports and error texts, read here for all arenas.

mod growth;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use crate::bytes::Bytes;

pub use growth::{Growth, MemoryLeft, Pages, check_size, memory_left};
pub(crate) use growth::{ask, free_now};

/// Limits on host memory in bytes; `None` means no limit, or one that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostLimits {
    /// All memory of the machine.
    pub total: Option<u64>,
    /// What the machine can give without swapping (`MemAvailable`).
    pub available: Option<u64>,
    /// What the tightest control group of this process leaves.
    pub control_group: Option<u64>,
    /// The file of that group's limit.
    pub control_group_file: Option<PathBuf>,
    /// The soft limit on locked memory (`RLIMIT_MEMLOCK`, `ulimit -l`).
    pub locked_soft: Option<u64>,
    /// The hard limit on locked memory.
    pub locked_hard: Option<u64>,
}

impl HostLimits {
    /// Reads the limits.
    #[must_use]
    pub fn read() -> HostLimits {
        if cfg!(miri) {
            return HostLimits::default();
        }
        let (machine, groups) = (machine(), groups());
        let group = groups.into_iter().min_by_key(|limit| limit.left);
        let (control_group, file) = group.map(|limit| (limit.left, limit.file)).unzip();
        let locked = getrlimit(Resource::Memlock);
        HostLimits {
            total: machine.as_ref().map(|limit| limit.size),
            available: machine.map(|limit| limit.left),
            control_group,
            control_group_file: file.flatten(),
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

    /// The soft limit on locked memory as text.
    pub(crate) fn locked(&self) -> String {
        text(self.locked_soft, "unlimited")
    }
}

impl fmt::Display for HostLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} free, RLIMIT_MEMLOCK {}",
            text(self.free(), "an unknown amount"),
            self.locked()
        )
    }
}

fn text(bytes: Option<u64>, none: &str) -> String {
    bytes.map_or_else(|| none.to_owned(), |bytes| Bytes(bytes).to_string())
}

/// A limit on host memory.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Limit {
    /// The most that there can be, in bytes.
    size: u64,
    /// Bytes that it leaves.
    left: u64,
    /// The file of a control group; `None` for the machine.
    file: Option<PathBuf>,
}

impl Limit {
    /// Bytes that arenas leave to everything else: other programs take memory without asking, and
    /// looks of many processes at the same moment take a huge page each when little is left.
    fn reserve(&self) -> u64 {
        (self.size / 16).min(1 << 30)
    }

    /// Bytes that arenas may take.
    fn spare(&self) -> u64 {
        self.left.saturating_sub(self.reserve())
    }

    fn name(&self) -> String {
        match &self.file {
            None => "the machine (MemAvailable)".to_owned(),
            Some(file) => format!("the limit in {}", file.display()),
        }
    }
}

/// All limits that can be read.
fn all() -> Vec<Limit> {
    if cfg!(miri) {
        return Vec::new();
    }
    groups().into_iter().chain(machine()).collect()
}

/// The memory of the machine.
fn machine() -> Option<Limit> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let left = field(&meminfo, "MemAvailable:")?;
    let size = field(&meminfo, "MemTotal:").unwrap_or(left);
    Some(Limit { size, left, file: None })
}

/// Those of the memory groups that this process is in.
fn groups() -> Vec<Limit> {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    groups_in(&membership, Path::new("/sys/fs/cgroup"))
}

/// A line of `/proc/meminfo`, in bytes.
fn field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// The limits of every memory group of a process. `membership` is its `/proc/self/cgroup`: lines of
/// `number:controllers:path`; version 2 names no controllers.
fn groups_in(membership: &str, root: &Path) -> Vec<Limit> {
    let of_line = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        if controllers.is_empty() {
            return Some((V2, levels(root, path)));
        }
        let memory = controllers.split(',').any(|name| name == "memory");
        memory.then(|| (V1, levels(&root.join("memory"), path)))
    };
    let lines = membership.lines().filter_map(of_line);
    lines.flat_map(|(names, dirs)| dirs.filter_map(move |dir| names.limit(&dir))).collect()
}

/// The directory of a group and those of its ancestors: each has its own limit. In a container the
/// path may not be mounted; the root then replaces it.
fn levels(root: &Path, path: &str) -> std::vec::IntoIter<PathBuf> {
    let own = root.join(path.trim_start_matches('/'));
    let levels: Vec<PathBuf> =
        own.ancestors().take_while(|dir| dir.starts_with(root)).map(Path::to_owned).collect();
    levels.into_iter()
}

/// The names of the files of one version of control groups, and of their counters.
#[derive(Clone, Copy, Debug)]
struct Names {
    /// Version 2 also slows a group down from a lower limit on.
    limits: &'static [&'static str],
    usage: &'static str,
    /// File pages of a group and of those below it.
    cached: [&'static str; 2],
}

const V2: Names = Names {
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    cached: ["inactive_file", "active_file"],
};
const V1: Names = Names {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    cached: ["total_inactive_file", "total_active_file"],
};

impl Names {
    /// The limit of one group; `None` when it has none. Cached file pages count as free: the kernel
    /// reclaims them under pressure.
    fn limit(self, dir: &Path) -> Option<Limit> {
        /// Version 1 writes a value near the largest number for "no limit".
        const UNLIMITED: u64 = 1 << 62;
        let number =
            |name: &str| fs::read_to_string(dir.join(name)).ok()?.trim().parse::<u64>().ok();
        let limits = self.limits.iter().filter_map(|name| {
            Some((number(name).filter(|&limit| limit < UNLIMITED)?, dir.join(name)))
        });
        let (size, file) = limits.min()?;
        let usage = number(self.usage)?.saturating_sub(self.cached_in(&dir.join("memory.stat")));
        Some(Limit { size, left: size.saturating_sub(usage), file: Some(file) })
    }

    /// The bytes of file pages in a group's `memory.stat`.
    fn cached_in(self, stat: &Path) -> u64 {
        let text = fs::read_to_string(stat).unwrap_or_default();
        let pages = |line: &str| -> Option<u64> {
            let (name, value) = line.split_once(' ')?;
            let file = self.cached.contains(&name);
            file.then(|| value.trim().parse().ok()).flatten()
        };
        text.lines().filter_map(pages).sum()
    }
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

    /// Files of control groups in a folder of their own.
    struct Groups(PathBuf);

    impl Groups {
        fn new(name: &str, files: &[(&str, &str)]) -> Groups {
            let root = tempfile::Builder::new().prefix(name).tempdir().unwrap().keep();
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Groups(root)
        }

        fn left(&self, membership: &str) -> Vec<u64> {
            groups_in(membership, &self.0).into_iter().map(|limit| limit.left).collect()
        }
    }

    impl Drop for Groups {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_version_2_group_and_its_ancestors_are_read() {
        let stat = "anon 100\ninactive_file 50\nactive_file 25\nfile 999\n";
        let files = [
            ("job/memory.max", "1000\n"),
            ("job/memory.current", "400\n"),
            ("job/memory.stat", stat),
            ("job/step/memory.max", "max\n"),
            ("job/step/memory.current", "10\n"),
        ];
        let folder = Groups::new("v2", &files);
        let found = groups_in("0::/job/step\n", &folder.0);
        let file = Some(folder.0.join("job/memory.max"));
        assert_eq!(found, [Limit { size: 1000, left: 675, file }]);
    }

    #[test]
    fn a_version_2_group_that_is_slowed_down_before_its_limit_ends_there() {
        let files = [
            ("memory.max", "1000\n"),
            ("memory.high", "800\n"),
            ("memory.current", "700\n"),
            ("step/memory.max", "max\n"),
            ("step/memory.high", "900\n"),
            ("step/memory.current", "10\n"),
        ];
        let folder = Groups::new("high", &files);
        assert_eq!(folder.left("0::/step\n"), [890, 100]);
    }

    #[test]
    fn a_version_1_memory_group_is_read_and_others_are_not() {
        let files = [
            ("memory/a/memory.limit_in_bytes", "5000\n"),
            ("memory/a/memory.usage_in_bytes", "2000\n"),
            ("memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 70\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/memory.usage_in_bytes", "2000\n"),
            ("cpu/a/memory.limit_in_bytes", "1\n"),
        ];
        let folder = Groups::new("v1", &files);
        assert_eq!(folder.left("4:cpu:/a\n3:hugetlb,memory:/a\n"), [3070]);
    }

    #[test]
    fn a_group_that_is_not_mounted_is_found_at_the_root() {
        let files = [("memory.max", "300\n"), ("memory.current", "100\n")];
        let folder = Groups::new("root", &files);
        assert_eq!(folder.left("0::/host/path/of/container\n"), [200]);
    }

    #[test]
    fn arenas_leave_a_part_of_each_limit_to_other_programs() {
        let spare = |size: u64, left| Limit { size, left, file: None }.spare();
        assert_eq!(spare(1 << 30, 1 << 29), (1 << 29) - (1 << 26));
        assert_eq!(spare(1 << 40, 1 << 39), (1 << 39) - (1 << 30), "a GiB at most");
        assert_eq!(spare(1 << 30, 1 << 20), 0);
    }

    #[test]
    fn this_machine_says_what_it_has() {
        let limits = HostLimits::read();
        assert!(limits.total.is_some_and(|total| total > 0), "{limits:?}");
        assert!(limits.free() <= limits.total, "{limits:?}");
        assert!(limits.to_string().contains("RLIMIT_MEMLOCK"));
    }
}
