//! The names of the files of a disk tier, and what proves that a file of such a name is ours.
//!
//! - `slot-TAG-N`: room for a frame: being written, stored, or left over for the next one. Which of
//!   these it is stands in the tier's table alone, so nothing is renamed when a frame comes or
//!   goes, and a slot that is found at the start belongs to nobody. The tag is a random number of
//!   the directory: a file that somebody else has named so has another one, or none.
//! - `frame-ID-BYTES` (both hexadecimal): a frame that is durable. Written by a durable tier only.
//!   It is ours when the manifest lists it, or when its content begins as a frame does.
//! - `pack-TAG-N`: a file with many small frames. Where there is no manifest that says the tag, the
//!   records in it prove it.
//! - `unspool.lock`, `unspool.manifest`: of a durable tier; their first bytes say whose they are.
//! - `unspool-PID-TAG`: the directory of an ephemeral tier, with its `lock`.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use unspool_core::CheckpointId;

/// The lock file in the directory of an ephemeral tier.
pub(super) const LOCK: &str = "lock";
/// The lock file of a durable tier, in a directory that it may share with other files.
pub(super) const DURABLE_LOCK: &str = "unspool.lock";
/// The manifest of a durable tier.
pub(super) const MANIFEST: &str = "unspool.manifest";
/// What stands in place of the number in the name of the file with which the medium is probed.
const PROBE: &str = "probe";
/// The same for a manifest that is written anew.
const NEW_MANIFEST: &str = "manifest";
/// Larger ids are never given.
const LARGEST_ID: u64 = i64::MAX as u64;

/// The random number in the names of the slots of one directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Tag(pub(super) u64);

impl Tag {
    /// A tag that no other directory has.
    pub(super) fn new() -> Tag {
        Tag(RandomState::new().hash_one(std::time::SystemTime::now()))
    }

    /// The file of a slot.
    pub(super) fn slot(self, slot: SlotFile) -> String {
        self.file(&slot.0.to_string())
    }

    /// The file with which the medium is probed.
    pub(super) fn probe(self) -> String {
        self.file(PROBE)
    }

    /// A manifest that is being written anew.
    pub(super) fn new_manifest(self) -> String {
        self.file(NEW_MANIFEST)
    }

    /// The file of a pack.
    pub(super) fn pack(self, pack: PackFile) -> String {
        format!("pack-{:016x}-{}", self.0, pack.0)
    }

    fn file(self, what: &str) -> String {
        format!("slot-{:016x}-{what}", self.0)
    }

    /// Whether a file is a slot, or another unfinished file, of the directory with this tag.
    pub(super) fn is_slot(self, name: &str) -> bool {
        let what = name.strip_prefix(&self.file(""));
        what.is_some_and(|what| [PROBE, NEW_MANIFEST].contains(&what) || is_number(what))
    }
}

/// The tag and the number of a file that is named like a pack.
pub(super) fn pack(name: &str) -> Option<(Tag, PackFile)> {
    let (tag, number) = name.strip_prefix("pack-")?.split_once('-')?;
    let tag = Tag(u64::from_str_radix(tag, 16).ok()?);
    let pack = PackFile(number.parse().ok()?);
    (tag.pack(pack) == name).then_some((tag, pack))
}

/// Whether `text` is a number as we write it.
fn is_number(text: &str) -> bool {
    text.parse::<u64>().is_ok_and(|number| number.to_string() == text)
}

/// Whether a file is named like a slot, ours or not.
pub(super) fn is_like_slot(name: &str) -> bool {
    name.starts_with("slot-")
}

/// A file with many frames. A later one has a higher number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct PackFile(pub(super) u32);

/// A file that has room for a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct SlotFile(pub(super) u64);

/// The file of a durable frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameName {
    pub(super) id: CheckpointId,
    pub(super) bytes: u64,
}

impl fmt::Display for FrameName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame-{:016x}-{:x}", self.id.0, self.bytes)
    }
}

impl FrameName {
    /// The frame that a file is named for, when the name is exactly one that we write.
    pub(super) fn parse(name: &str) -> Option<FrameName> {
        let (id, bytes) = name.strip_prefix("frame-")?.split_once('-')?;
        let id = u64::from_str_radix(id, 16).ok().filter(|&id| id <= LARGEST_ID)?;
        let bytes = u64::from_str_radix(bytes, 16).ok()?;
        let parsed = FrameName { id: CheckpointId(id), bytes };
        (parsed.to_string() == name).then_some(parsed)
    }
}

/// The name of the directory of an ephemeral tier of this process.
pub(super) fn directory(tag: Tag) -> String {
    format!("unspool-{}-{:016x}", std::process::id(), tag.0)
}

/// The tag of a directory that may be that of an ephemeral tier. Its lock says whether it is.
pub(super) fn directory_tag(name: &str) -> Option<Tag> {
    let (pid, tag) = name.strip_prefix("unspool-")?.split_once('-')?;
    pid.parse::<u32>().ok()?;
    let parsed = Tag(u64::from_str_radix(tag, 16).ok()?);
    (format!("{:016x}", parsed.0) == tag).then_some(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_frame_says_its_id_and_length() {
        let name = FrameName { id: CheckpointId(255), bytes: 4097 };
        assert_eq!(name.to_string(), "frame-00000000000000ff-1001");
        assert_eq!(FrameName::parse("frame-00000000000000ff-1001"), Some(name));
    }

    #[test]
    fn names_that_we_do_not_write_are_not_ours() {
        for name in [
            "frame-ff-1001",
            "frame-00000000000000FF-1",
            "frame-00000000000000ff",
            "frame-ffffffffffffffff-0",
            "frame-8000000000000000-1001",
            "x",
        ] {
            assert_eq!(FrameName::parse(name), None, "{name}");
        }
        let tag = Tag(0xabc);
        for name in [
            "slot-1",
            "slot-0000000000000abc-",
            "slot-0000000000000abc-a",
            "slot-0000000000000abc-01",
            "slot-0000000000000abd-1",
            "unspool.lock",
        ] {
            assert!(!tag.is_slot(name), "{name}");
        }
        for name in ["pack-1", "pack-0000000000000abc-01", "pack-0000000000000ABC-1"] {
            assert_eq!(pack(name), None, "{name}");
        }
        for name in ["unspool-results", "unspool-1-abc", "unspool-x-0123456789abcdef"] {
            assert_eq!(directory_tag(name), None, "{name}");
        }
    }

    #[test]
    fn our_own_names_are_recognised_and_differ() {
        let (one, two) = (Tag::new(), Tag::new());
        assert_ne!(one, two);
        assert_eq!(directory_tag(&directory(one)), Some(one));
        assert_eq!(pack(&one.pack(PackFile(7))), Some((one, PackFile(7))));
        for name in [one.slot(SlotFile(12)), one.probe(), one.new_manifest()] {
            assert!(one.is_slot(&name) && !two.is_slot(&name), "{name}");
        }
    }
}
