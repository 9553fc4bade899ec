//! Main memory: how much there is, what limits it, and the lock by which processes of this node
//! take turns to pin it.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use unspool_cuda::{HostLimits, memory_left};

use super::system::System;

/// Main memory and its limits. Sizes are in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// Cores that this process may use.
    pub cores: usize,
    /// All memory of the machine.
    pub total: Option<u64>,
    /// What the tightest of the machine and of this process's control groups leaves.
    pub free: Option<u64>,
    /// Who sets that limit, in words.
    pub limit: String,
    /// What arenas of this process were promised and have not used yet.
    pub promised: u64,
    /// The soft limit on locked memory (`RLIMIT_MEMLOCK`, `ulimit -l`); `None` is no limit.
    pub locked_soft: Option<u64>,
    /// The hard limit on locked memory.
    pub locked_hard: Option<u64>,
    /// The setting of transparent huge pages: `always`, `madvise`, `never`.
    pub huge_pages: Option<String>,
    /// Whether the system refuses memory that it could not provide to everybody at once
    /// (`vm.overcommit_memory` is 2).
    pub strict_overcommit: bool,
    /// The lock of the turns; the first process that pins memory makes it.
    pub turns: String,
    /// Why this process cannot use that lock.
    pub turns_problem: Option<String>,
}

impl Host {
    /// What `system` says.
    pub(super) fn look(system: &System) -> Host {
        let (limits, left, lock) = (HostLimits::read(), memory_left(), unspool_cuda::turn_lock());
        let huge = system.text("sys/kernel/mm/transparent_hugepage/enabled");
        Host {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            total: limits.total,
            free: Some(left.bytes).filter(|&bytes| bytes < u64::MAX),
            limit: left.limit,
            promised: left.promised,
            locked_soft: limits.locked_soft,
            locked_hard: limits.locked_hard,
            huge_pages: huge.as_deref().and_then(chosen).map(str::to_owned),
            strict_overcommit: system.text("proc/sys/vm/overcommit_memory").as_deref() == Some("2"),
            turns: lock.display().to_string(),
            turns_problem: problem_of_lock(&lock),
        }
    }
}

/// The choice in brackets of a text such as `always [madvise] never`.
fn chosen(text: &str) -> Option<&str> {
    Some(text.split_once('[')?.1.split_once(']')?.0)
}

fn problem_of_lock(path: &Path) -> Option<String> {
    match fs::symlink_metadata(path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => None,
        Err(cause) => Some(cause.to_string()),
        // Opening it is refused then: links in shared directories may be traps.
        Ok(found) if found.is_symlink() => Some("it is a symbolic link".to_owned()),
        Ok(_) => File::open(path).err().map(|cause| cause.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::Fake;

    #[test]
    fn the_setting_of_huge_pages_is_the_word_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), Some("madvise"));
        assert_eq!(chosen("always madvise [never]"), Some("never"));
        assert_eq!((chosen(""), chosen("always")), (None, None));
    }

    #[test]
    fn settings_are_read_from_the_files_of_the_system() {
        let fake = Fake::new();
        let host = Host::look(&fake.system());
        assert!(host.huge_pages.is_none() && !host.strict_overcommit && host.cores >= 1);
        fake.write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
        fake.write("proc/sys/vm/overcommit_memory", "2\n");
        let host = Host::look(&fake.system());
        assert_eq!(host.huge_pages.as_deref(), Some("never"));
        assert!(host.strict_overcommit);
    }

    #[test]
    fn a_lock_that_nobody_has_made_yet_is_not_a_problem_and_a_link_in_its_place_is() {
        let fake = Fake::new();
        let path = fake.path("some.lock");
        assert_eq!(problem_of_lock(&path), None);
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(problem_of_lock(&path).is_some_and(|text| text.contains("symbolic link")));
    }
}
