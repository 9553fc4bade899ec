//! The operating system's limits: host memory, control groups, locked memory. Plain data for
//! reports and error texts, read here for all arenas.

mod ledger;
mod node;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use crate::bytes::Bytes;

use node::Others;

pub(crate) use ledger::free_now;
pub use ledger::{MemoryLeft, MemoryPromise, memory_left};

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
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let groups = groups(&membership, Path::new("/sys/fs/cgroup"));
        let (control_group, control_group_file) = groups.into_iter().min().unzip();
        let locked = getrlimit(Resource::Memlock);
        HostLimits {
            total: field(&meminfo, "MemTotal:"),
            available: field(&meminfo, "MemAvailable:"),
            control_group,
            control_group_file,
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

    /// The limit that leaves least beside what `others` were promised; `None` if none can be read.
    fn tightest(&self, others: &Others) -> Option<Tightest> {
        let machine = self.available.map(|bytes| {
            let name = "the machine (MemAvailable)".to_owned();
            Tightest { bytes, name, promised_elsewhere: others.promised }
        });
        let file = self.control_group_file.as_ref();
        let file = file.map_or_else(|| "a control group".into(), |file| file.to_string_lossy());
        let group = self.control_group.map(|bytes| {
            let name = format!("the limit in {file}");
            Tightest { bytes, name, promised_elsewhere: others.promised_in_group }
        });
        machine.into_iter().chain(group).min_by_key(Tightest::most)
    }
}

/// A limit on host memory.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Tightest {
    /// Bytes that it leaves.
    bytes: u64,
    name: String,
    /// Those of the bytes that other processes have promised and not written.
    promised_elsewhere: u64,
}

impl Tightest {
    /// What this process may promise in all.
    fn most(&self) -> u64 {
        self.bytes.saturating_sub(self.promised_elsewhere)
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

/// A line of `/proc/meminfo`, in bytes.
fn field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// What every memory group that this process is in leaves, and the file of its limit. `membership`
/// is `/proc/self/cgroup`: lines of `number:controllers:path`; version 2 names no controllers.
fn groups(membership: &str, root: &Path) -> Vec<(u64, PathBuf)> {
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
    lines.flat_map(|(names, dirs)| dirs.filter_map(move |dir| names.left(&dir))).collect()
}

/// The directory of a group and those of its ancestors: each has its own limit. In a container the
/// path may not be mounted; the root then replaces it.
fn levels(root: &Path, path: &str) -> std::vec::IntoIter<PathBuf> {
    let own = root.join(path.trim_start_matches('/'));
    let levels: Vec<PathBuf> =
        own.ancestors().take_while(|dir| dir.starts_with(root)).map(Path::to_owned).collect();
    levels.into_iter()
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
    /// What one group leaves, and the file of its limit; `None` when it has none. Cached file pages
    /// count as free: the kernel reclaims them under pressure.
    fn left(self, dir: &Path) -> Option<(u64, PathBuf)> {
        /// Version 1 writes a value near the largest number for "no limit".
        const UNLIMITED: u64 = 1 << 62;
        let number =
            |name: &str| fs::read_to_string(dir.join(name)).ok()?.trim().parse::<u64>().ok();
        let limit = number(self.limit).filter(|&limit| limit < UNLIMITED)?;
        let usage = number(self.usage)?.saturating_sub(cached(&dir.join("memory.stat")));
        Some((limit.saturating_sub(usage), dir.join(self.limit)))
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
            groups(membership, &self.0).into_iter().map(|(bytes, _)| bytes).collect()
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
        let found = groups("0::/job/step\n", &folder.0);
        assert_eq!(found, [(675, folder.0.join("job/memory.max"))]);
    }

    #[test]
    fn a_version_1_memory_group_is_read_and_others_are_not() {
        let files = [
            ("memory/a/memory.limit_in_bytes", "5000\n"),
            ("memory/a/memory.usage_in_bytes", "2000\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/memory.usage_in_bytes", "2000\n"),
            ("cpu/a/memory.limit_in_bytes", "1\n"),
        ];
        let folder = Groups::new("v1", &files);
        assert_eq!(folder.left("4:cpu:/a\n3:hugetlb,memory:/a\n"), [3000]);
    }

    #[test]
    fn a_group_that_is_not_mounted_is_found_at_the_root() {
        let files = [("memory.max", "300\n"), ("memory.current", "100\n")];
        let folder = Groups::new("root", &files);
        assert_eq!(folder.left("0::/host/path/of/container\n"), [200]);
    }

    #[test]
    fn the_tightest_limit_counts_and_says_who_it_is() {
        let limits = |available, control_group| HostLimits {
            available,
            control_group,
            control_group_file: Some("/x/memory.max".into()),
            ..HostLimits::default()
        };
        let others = Others { promised: 3, promised_in_group: 0, written: 100 };
        let text = |limits: HostLimits| limits.tightest(&others).map(|it| (it.most(), it.name));
        assert_eq!(text(limits(Some(5), Some(9))), Some((2, "the machine (MemAvailable)".into())));
        assert_eq!(text(limits(Some(9), Some(5))), Some((5, "the limit in /x/memory.max".into())));
        assert_eq!(text(limits(Some(9), Some(7))), Some((6, "the machine (MemAvailable)".into())));
        assert_eq!(text(limits(None, None)), None);
    }

    #[test]
    fn this_machine_says_what_it_has() {
        let limits = HostLimits::read();
        assert!(limits.total.is_some_and(|total| total > 0), "{limits:?}");
        assert!(limits.free() <= limits.total, "{limits:?}");
        assert!(limits.to_string().contains("RLIMIT_MEMLOCK"));
    }
}
