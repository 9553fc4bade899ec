//! Main memory, and the turns in which processes pin it.

use super::text::Bytes;
use super::{Finding, Level};
use crate::doctor::{Device, Diagnosis, HugePages, Turns};

/// Less than this is free: a host tier would be too small to be of use.
const LITTLE: u64 = 1 << 30;

pub(super) fn judge(diagnosis: &Diagnosis) -> Vec<Finding> {
    let with_device = diagnosis.cuda.driver.is_some();
    let turns = with_device.then(|| turns(&diagnosis.turns)).flatten();
    let all = [little(diagnosis), locked(diagnosis), small_pages(diagnosis), strict(diagnosis)];
    all.into_iter().flatten().chain(turns).collect()
}

fn finding(level: Level, what: String, meaning: &str, remedy: &str) -> Finding {
    Finding::new(level, "main memory", [what, meaning.to_owned(), remedy.to_owned()])
}

fn little(diagnosis: &Diagnosis) -> Option<Finding> {
    let host = &diagnosis.host;
    let free = host.free.filter(|&free| free < LITTLE)?;
    Some(finding(
        Level::Poor,
        format!("Only {} are free, by {}.", Bytes(free), host.limit),
        "There is no room for a host tier; checkpoints go to the disk at its rate.",
        "Close what uses memory, or raise the limit of the control group (docker: --memory, \
         Slurm: --mem). Where the machine is given more memory as it uses it, give `host=` a size \
         and set UNSPOOL_CHECK_FREE=0.",
    ))
}

/// Only where the driver's pinned memory counts against the limit.
fn locked(diagnosis: &Diagnosis) -> Option<Finding> {
    let limit = diagnosis.host.locked_soft?;
    let counts = |device: &Device| device.pins_are_locked == Some(true);
    diagnosis.cuda.devices.iter().any(counts).then(|| {
        finding(
            Level::Poor,
            format!("At most {} can be locked (RLIMIT_MEMLOCK), and pinning counts.", Bytes(limit)),
            "The host tier cannot be pinned beyond that; copies to the rest are several times \
             slower.",
            "Raise it: ulimit -l unlimited, docker run --ulimit memlock=-1, LimitMEMLOCK=infinity \
             in a systemd unit, or memlock in /etc/security/limits.conf.",
        )
    })
}

fn small_pages(diagnosis: &Diagnosis) -> Option<Finding> {
    (diagnosis.host.huge_pages == HugePages::Never).then(|| {
        finding(
            Level::Poor,
            "Transparent huge pages are switched off.".to_owned(),
            "Preparing the arenas takes two to three times as long: measured, 19 against 40 to 52 \
             GB/s to pin, and 11 against 36 GB/s to touch with 8 threads.",
            "As root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled. Only programs \
             that ask for them get them then, as Unspool does.",
        )
    })
}

fn strict(diagnosis: &Diagnosis) -> Option<Finding> {
    diagnosis.host.strict_overcommit.then(|| {
        finding(
            Level::Note,
            "The system promises no more memory than it has (vm.overcommit_memory is 2)."
                .to_owned(),
            "A large arena may be refused although its pages would still be free.",
            "Choose a smaller `host=`, or as root: sysctl vm.overcommit_memory=0.",
        )
    })
}

fn turns(turns: &Turns) -> Option<Finding> {
    let problem = turns.problem.as_ref()?;
    Some(Finding::new(
        Level::Poor,
        "turns",
        [
            format!("The lock {} cannot be used: {problem}.", turns.path.display()),
            "Processes of this node do not take turns to pin their memory, which slows all of \
             them down."
                .to_owned(),
            "Let every user read that file (chmod 644), or remove it: the next process makes it \
             again. In containers, share /dev/shm between them."
                .to_owned(),
        ],
    ))
}
