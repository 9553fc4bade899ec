//! The names of the files of a disk tier.
//!
//! - `slot-N`: room for a frame: being written, stored, or left over for the next one. Which of
//!   these it is stands in the tier's table alone, so nothing is renamed when a frame comes or
//!   goes, and a slot that is found at the start belongs to nobody.
//! - `frame-ID-BYTES` (both hexadecimal): a frame that is durable. Written by a durable tier only.
//! - `unspool-PID-RANDOM`: the directory of an ephemeral tier, with its `lock`.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use unspool_core::CheckpointId;

/// The lock file in the directory of an ephemeral tier.
pub(super) const LOCK: &str = "lock";
/// The lock file of a durable tier, in a directory that it may share with other files.
pub(super) const DURABLE_LOCK: &str = "unspool.lock";
/// The file with which the medium is probed.
pub(super) const PROBE: &str = "slot-probe";

/// A file that has room for a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Slot(pub(super) u64);

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot-{}", self.0)
    }
}

/// Whether a file is a slot (or the probe's file), of this process or of a dead one.
pub(super) fn is_slot(name: &str) -> bool {
    let number = name.strip_prefix("slot-");
    name == PROBE || number.is_some_and(|number| number.parse::<u64>().is_ok())
}

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
        let id = CheckpointId(u64::from_str_radix(id, 16).ok()?);
        let parsed = FrameName { id, bytes: u64::from_str_radix(bytes, 16).ok()? };
        (parsed.to_string() == name).then_some(parsed)
    }
}

/// A new name for the directory of an ephemeral tier.
pub(super) fn new_directory() -> String {
    let random = RandomState::new().hash_one(std::time::SystemTime::now());
    format!("unspool-{}-{random:016x}", std::process::id())
}

/// Whether a directory may be that of an ephemeral tier. Its lock says whether it is.
pub(super) fn is_directory(name: &str) -> bool {
    let parts = name.strip_prefix("unspool-").and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(pid, random)| {
        pid.parse::<u32>().is_ok()
            && random.len() == 16
            && random.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
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
        for name in ["frame-ff-1001", "frame-00000000000000FF-1", "frame-00000000000000ff", "x"] {
            assert_eq!(FrameName::parse(name), None, "{name}");
        }
        for name in ["slot-", "slot-a", "slots-1", "unspool.lock"] {
            assert!(!is_slot(name), "{name}");
        }
        for name in ["unspool-results", "unspool-1-abc", "unspool-x-0123456789abcdef"] {
            assert!(!is_directory(name), "{name}");
        }
    }

    #[test]
    fn our_own_names_are_recognised_and_differ() {
        assert!(is_slot(&Slot(12).to_string()));
        let (one, two) = (new_directory(), new_directory());
        assert!(is_directory(&one) && is_directory(&two));
        assert_ne!(one, two);
    }
}
