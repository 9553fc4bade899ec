//! Main memory: how much there is, and what limits it.

use unspool_cuda::{HostLimits, memory_left};

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
    /// What this process could get if nothing else took memory.
    pub most: Option<u64>,
    /// The soft limit on locked memory (`RLIMIT_MEMLOCK`, `ulimit -l`); `None` is without a limit.
    pub locked_soft: Option<u64>,
    /// The hard limit on locked memory.
    pub locked_hard: Option<u64>,
    /// The locks by which processes of this node take turns to pin memory for a GPU, as a pattern
    /// of the shell; the first process makes them.
    pub turns: String,
}

impl Host {
    pub(super) fn look() -> Host {
        let (limits, left) = (HostLimits::read(), memory_left());
        Host {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            total: limits.total,
            free: Some(left.bytes).filter(|&bytes| bytes < u64::MAX),
            limit: left.limit,
            most: Some(left.most).filter(|&bytes| bytes < u64::MAX),
            locked_soft: limits.locked_soft,
            locked_hard: limits.locked_hard,
            turns: unspool_cuda::turn_locks().display().to_string(),
        }
    }
}
