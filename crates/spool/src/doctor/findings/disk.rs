//! The directory for a disk tier.

use super::text::{Bytes, Rate};
use super::{Finding, Level};
use crate::doctor::{Disk, Leftover, Mount, Owner};

/// Less than this is free.
const LITTLE: u64 = 1 << 30;
/// Slower than a disk with moving parts.
const SLOW: f64 = 2e8;

pub(super) fn judge(disk: &Disk) -> Vec<Finding> {
    if let Some(unusable) = unusable(disk) {
        return vec![unusable];
    }
    let medium = [in_memory(disk), remote(disk), cached(disk), slow(disk), full(disk)];
    let rest = [no_ring(disk), dead(disk), unknown(disk)];
    medium.into_iter().chain(rest).flatten().collect()
}

fn finding(level: Level, what: String, meaning: &str, remedy: &str) -> Finding {
    Finding::new(level, "disk", [what, meaning.to_owned(), remedy.to_owned()])
}

fn unusable(disk: &Disk) -> Option<Finding> {
    let (problem, dir) = (disk.problem.as_ref()?, disk.dir.display());
    Some(finding(
        Level::Missing,
        format!("{dir} cannot be used as it is: {problem}."),
        "A spool with this disk tier may not open, or may fail later.",
        "Choose a directory on a local disk that exists, that you may write to and that has room.",
    ))
}

/// The type of the file system, and whether it is of the kind asked for.
fn kind(disk: &Disk, is: fn(&Mount) -> bool) -> Option<&str> {
    disk.mount.as_ref().filter(|mount| is(mount)).map(|mount| mount.kind.as_str())
}

fn in_memory(disk: &Disk) -> Option<Finding> {
    let kind = kind(disk, Mount::is_memory)?;
    Some(finding(
        Level::Poor,
        format!("{} lies in main memory ({kind}).", disk.dir.display()),
        "The disk tier would take memory from the host tier and from the program.",
        "Choose a directory on a local disk. For more room in memory raise `host=` instead.",
    ))
}

fn remote(disk: &Disk) -> Option<Finding> {
    let kind = kind(disk, Mount::is_remote)?;
    Some(finding(
        Level::Note,
        format!("{} lies on another machine ({kind}).", disk.dir.display()),
        "Its rate changes with what others do, and what a killed process leaves may stay.",
        "For histories that need not outlive the run, choose a local disk of the node.",
    ))
}

fn cached(disk: &Disk) -> Option<Finding> {
    let in_memory = kind(disk, Mount::is_memory).is_some();
    let reason = disk.direct_problem.as_ref().filter(|_| !in_memory)?;
    Some(finding(
        Level::Poor,
        format!("Direct input and output do not work: {reason}"),
        "Every byte is copied once more, through the page cache, and pushes other files out of it.",
        "Choose a directory on ext4, xfs or a local NVMe disk; overlay file systems of containers \
         often lack it, and a mounted volume has it.",
    ))
}

fn slow(disk: &Disk) -> Option<Finding> {
    let rates = disk.rates.as_ref().filter(|rates| rates.write.min(rates.read) < SLOW)?;
    let (write, read) = (Rate(rates.write), Rate(rates.read));
    Some(finding(
        Level::Poor,
        format!("One thread writes {write} and reads {read}."),
        "A history that does not fit into memory moves at this rate, and the program waits for it.",
        "Choose a faster disk, a larger `host=`, or save fewer steps. Disks of cloud machines are \
         often held to a rate that can be raised.",
    ))
}

fn full(disk: &Disk) -> Option<Finding> {
    let free = disk.free.filter(|&free| free < LITTLE)?;
    Some(finding(
        Level::Poor,
        format!("Only {} are free there.", Bytes(free)),
        "Saves fail once the disk and the memory tiers are full.",
        "Make room, or choose another directory.",
    ))
}

fn no_ring(disk: &Disk) -> Option<Finding> {
    let reason = disk.io_uring_problem.as_ref().filter(|_| disk.direct == Some(true))?;
    Some(finding(
        Level::Note,
        format!("io_uring does not work: {reason}"),
        "Nothing is lost: the disk tier uses plain direct calls unless it is told otherwise.",
        "Containers often forbid it; allow the system calls of io_uring if you want to compare.",
    ))
}

fn total<'a>(spools: impl Iterator<Item = &'a Leftover>) -> Option<(usize, Bytes)> {
    let (count, bytes) =
        spools.fold((0, 0), |(count, bytes), spool| (count + 1, bytes + spool.bytes));
    (count > 0).then_some((count, Bytes(bytes)))
}

fn dead(disk: &Disk) -> Option<Finding> {
    let is_dead = |spool: &&Leftover| matches!(spool.owner, Owner::Dead { .. });
    let (count, bytes) = total(disk.spools.iter().filter(is_dead))?;
    Some(finding(
        Level::Note,
        format!("Processes that died left {count} directories of spools there: {bytes}."),
        "They take room and nobody needs them.",
        "The next spool that is opened with this `disk=` removes them; nothing is to be done.",
    ))
}

fn unknown(disk: &Disk) -> Option<Finding> {
    let is_unknown = |spool: &&Leftover| matches!(spool.owner, Owner::Unknown { .. });
    let (count, bytes) = total(disk.spools.iter().filter(is_unknown))?;
    Some(finding(
        Level::Note,
        format!(
            "For {count} directories of spools there it cannot be told whether they are in use."
        ),
        "They belong to another user, or the file system has no locks; no spool of yours removes \
         them.",
        &format!("Ask their owner. As far as can be seen they take {bytes}."),
    ))
}
