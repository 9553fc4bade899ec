//! The file system of a directory.

use std::path::{Path, PathBuf};

use super::system::System;

/// A mounted file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Where it is mounted.
    pub point: PathBuf,
    /// Its type, such as `ext4`.
    pub kind: String,
    /// What is mounted: a device, or a server and its path.
    pub source: String,
}

impl Mount {
    /// Whether its bytes are main memory.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        matches!(self.kind.as_str(), "tmpfs" | "ramfs" | "hugetlbfs")
    }

    /// Whether its bytes are on another machine.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        const REMOTE: [&str; 11] = [
            "nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "gpfs", "beegfs", "9p", "virtiofs",
            "afs",
        ];
        REMOTE.contains(&self.kind.as_str()) || self.kind.starts_with("fuse.")
    }
}

/// The file system that `path`, which is absolute and without links, lies on.
pub(super) fn mount_of(system: &System, path: &Path) -> Option<Mount> {
    let table = system.text("proc/self/mountinfo")?;
    let mounts = table.lines().filter_map(parse).filter(|mount| path.starts_with(&mount.point));
    // Of two at one place the later one covers the earlier.
    mounts.max_by_key(|mount| mount.point.components().count())
}

/// A line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)): any number of optional fields stands
/// before a dash.
fn parse(line: &str) -> Option<Mount> {
    let (place, what) = line.split_once(" - ")?;
    let mut what = what.split(' ');
    Some(Mount {
        point: PathBuf::from(unescaped(place.split(' ').nth(4)?)),
        kind: what.next()?.to_owned(),
        source: unescaped(what.next()?),
    })
}

/// Blanks and backslashes are written as a backslash and three octal digits.
fn unescaped(text: &str) -> String {
    const ESCAPES: [(&str, &str); 4] =
        [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    ESCAPES.iter().fold(text.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::Fake;

    const TABLE: &str = "\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw
30 21 0:26 / /dev/shm rw - tmpfs shm rw,size=1g
31 21 0:40 / /data\\040set rw shared:2 master:3 - nfs4 server:/export/a\\040b rw
32 31 0:41 / /data\\040set/fast rw - xfs /dev/nvme0n1 rw
33 31 0:42 / /data\\040set/fast rw - lustre 10.0.0.1@tcp:/l rw
";

    #[test]
    fn the_innermost_and_last_mount_counts() {
        let fake = Fake::new();
        fake.write("proc/self/mountinfo", TABLE);
        let kind = |path: &str| mount_of(&fake.system(), Path::new(path)).unwrap().kind;
        assert_eq!(kind("/srv/me"), "ext4");
        assert_eq!(kind("/dev/shm/x"), "tmpfs");
        assert_eq!(kind("/dev/shmx"), "ext4");
        assert_eq!(kind("/data set/slow"), "nfs4");
        assert_eq!(kind("/data set/fast/x"), "lustre");
    }

    #[test]
    fn memory_and_other_machines_are_told_apart() {
        let fake = Fake::new();
        fake.write("proc/self/mountinfo", TABLE);
        let mount = |path: &str| mount_of(&fake.system(), Path::new(path)).unwrap();
        assert!(mount("/dev/shm").is_memory() && !mount("/dev/shm").is_remote());
        assert!(mount("/data set").is_remote());
        assert_eq!(mount("/data set").source, "server:/export/a b");
        assert!(!mount("/").is_memory() && !mount("/").is_remote());
    }
}
