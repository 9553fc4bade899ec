//! Main memory: how much there is, and what limits it.

use unspool_cuda::{HostLimits, memory_left};

use super::system::System;

/// Main memory and its limits. Sizes are in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// The version of the kernel.
    pub kernel: Option<String>,
    /// Cores that this process may use.
    pub cores: usize,
    /// All memory of the machine.
    pub total: Option<u64>,
    /// What the machine can give without swapping (`MemAvailable`).
    pub available: Option<u64>,
    /// What the tightest of these and of this process's control groups leaves.
    pub free: Option<u64>,
    /// Who sets that limit, in words.
    pub limit: String,
    /// What arenas of this process were promised and have not used yet.
    pub promised: u64,
    /// The soft limit on locked memory (`RLIMIT_MEMLOCK`, `ulimit -l`); `None` is no limit.
    pub locked_soft: Option<u64>,
    /// The hard limit on locked memory.
    pub locked_hard: Option<u64>,
    /// Whether the system backs memory with huge pages.
    pub huge_pages: HugePages,
    /// Whether the system refuses memory that it could not provide to everybody at once
    /// (`vm.overcommit_memory` is 2).
    pub strict_overcommit: bool,
}

/// The setting of transparent huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HugePages {
    /// For all memory.
    Always,
    /// For memory that asks for them, as Unspool's arenas do.
    Madvise,
    /// For none.
    Never,
    /// The system does not say.
    Unknown,
}

impl HugePages {
    /// As the system writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            HugePages::Always => "always",
            HugePages::Madvise => "madvise",
            HugePages::Never => "never",
            HugePages::Unknown => "unknown",
        }
    }

    /// The choice in brackets of a text such as `always [madvise] never`.
    fn chosen(text: &str) -> HugePages {
        let choice = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        match choice.map(|(choice, _)| choice) {
            Some("always") => HugePages::Always,
            Some("madvise") => HugePages::Madvise,
            Some("never") => HugePages::Never,
            _ => HugePages::Unknown,
        }
    }
}

impl Host {
    /// What `system` says.
    pub(super) fn look(system: &System) -> Host {
        let (limits, left) = (HostLimits::read(), memory_left());
        let huge = system.text("sys/kernel/mm/transparent_hugepage/enabled");
        Host {
            kernel: system.text("proc/sys/kernel/osrelease"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            total: limits.total,
            available: limits.available,
            free: Some(left.bytes).filter(|&bytes| bytes < u64::MAX),
            limit: left.limit,
            promised: left.promised,
            locked_soft: limits.locked_soft,
            locked_hard: limits.locked_hard,
            huge_pages: huge.map_or(HugePages::Unknown, |text| HugePages::chosen(&text)),
            strict_overcommit: system.number::<u8>("proc/sys/vm/overcommit_memory") == Some(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::Fake;

    #[test]
    fn the_setting_of_huge_pages_is_the_word_in_brackets() {
        assert_eq!(HugePages::chosen("always [madvise] never"), HugePages::Madvise);
        assert_eq!(HugePages::chosen("[always] madvise never"), HugePages::Always);
        assert_eq!(HugePages::chosen("always madvise [never]"), HugePages::Never);
        assert_eq!(HugePages::chosen("[inherit]"), HugePages::Unknown);
        assert_eq!(HugePages::chosen(""), HugePages::Unknown);
    }

    #[test]
    fn settings_are_read_from_the_files_of_the_system() {
        let fake = Fake::new();
        fake.write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
        fake.write("proc/sys/kernel/osrelease", "6.1.0-test\n");
        fake.write("proc/sys/vm/overcommit_memory", "2\n");
        let host = Host::look(&fake.system());
        assert_eq!(host.huge_pages, HugePages::Never);
        assert_eq!(host.kernel.as_deref(), Some("6.1.0-test"));
        assert!(host.strict_overcommit && host.cores >= 1);
    }

    #[test]
    fn a_system_without_these_files_is_described_all_the_same() {
        let host = Host::look(&Fake::new().system());
        assert_eq!((host.huge_pages, host.kernel), (HugePages::Unknown, None));
        assert!(!host.strict_overcommit);
    }
}
