//! Names of folders and files, made from numbers and read back into them. What another name has is
//! somebody else's.

/// What the name of a rank's folder begins with.
pub(crate) const RANK: &str = "rank-";

/// The folder of one rank's part: `rank-0003-of-0016`.
pub(crate) fn rank_folder(rank: u32, size: u32) -> String {
    format!("{RANK}{rank:04}-of-{size:04}")
}

/// The rank and the number of ranks that a folder's name says.
pub(crate) fn parse_rank_folder(name: &str) -> Option<(u32, u32)> {
    let (rank, size) = name.strip_prefix(RANK)?.split_once("-of-")?;
    let (rank, size) = (rank.parse().ok()?, size.parse().ok()?);
    (rank < size && name == rank_folder(rank, size)).then_some((rank, size))
}

/// What the name of a folder begins with in which `unspool copy` has what is to replace a step.
pub(crate) const BESIDE: &str = ".unspool-copy-";

/// The file that says that a step's part is complete.
pub(crate) fn manifest(step: u64) -> String {
    format!("step-{step}.manifest")
}

/// The step of a manifest's name.
pub(crate) fn parse_manifest(name: &str) -> Option<u64> {
    let step = name.strip_prefix("step-")?.strip_suffix(".manifest")?.parse().ok()?;
    (name == manifest(step)).then_some(step)
}

/// The frame of a step, where it is an object of its own.
pub(crate) fn frame(step: u64) -> String {
    format!("step-{step}.frame")
}

/// The step of a frame's name.
pub(crate) fn parse_frame(name: &str) -> Option<u64> {
    let step = name.strip_prefix("step-")?.strip_suffix(".frame")?.parse().ok()?;
    (name == frame(step)).then_some(step)
}

/// A manifest while it is written.
pub(crate) fn unfinished(step: u64) -> String {
    format!("step-{step}.part")
}

/// The step of an unfinished manifest's name.
pub(crate) fn parse_unfinished(name: &str) -> Option<u64> {
    let step = name.strip_prefix("step-")?.strip_suffix(".part")?.parse().ok()?;
    (name == unfinished(step)).then_some(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_into_their_numbers() {
        assert_eq!(rank_folder(3, 16), "rank-0003-of-0016");
        assert_eq!(parse_rank_folder("rank-0003-of-0016"), Some((3, 16)));
        assert_eq!(parse_rank_folder(&rank_folder(12_345, 70_000)), Some((12_345, 70_000)));
        assert_eq!(parse_manifest("step-300.manifest"), Some(300));
        assert_eq!(parse_unfinished(&unfinished(7)), Some(7));
        assert_eq!(parse_frame(&frame(7)), Some(7));
        assert_eq!(parse_frame("step-07.frame"), None);
    }

    #[test]
    fn other_names_are_somebody_elses() {
        for name in ["rank-3-of-16", "rank-0016-of-0016", "rank-00003-of-0016", "rank-+003-of-0016"]
        {
            assert_eq!(parse_rank_folder(name), None, "{name}");
        }
        for name in ["step-0300.manifest", "step--1.manifest", "step-+3.manifest", "step-3", "x"] {
            assert_eq!(parse_manifest(name), None, "{name}");
        }
        assert_eq!(parse_unfinished("step-03.part"), None);
    }
}
