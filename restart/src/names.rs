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

/// The word with which the names of a step's files and objects begin.
pub(crate) fn step(step: u64) -> String {
    format!("step-{step}")
}

/// The step that a word is of.
pub(crate) fn parse_step(word: &str) -> Option<u64> {
    let number = word.strip_prefix("step-")?.parse().ok()?;
    (word == step(number)).then_some(number)
}

/// The end of the name of the file that says that a step's part is complete.
pub(crate) const MANIFEST: &str = ".manifest";

/// The same while it is written.
pub(crate) const UNFINISHED: &str = ".part";

/// The name of a step's file that ends so.
pub(crate) fn file(number: u64, end: &str) -> String {
    step(number) + end
}

/// The step of the name of a file that ends so.
pub(crate) fn step_of(name: &str, end: &str) -> Option<u64> {
    parse_step(name.strip_suffix(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_into_their_numbers() {
        assert_eq!(rank_folder(3, 16), "rank-0003-of-0016");
        assert_eq!(parse_rank_folder("rank-0003-of-0016"), Some((3, 16)));
        assert_eq!(parse_rank_folder(&rank_folder(12_345, 70_000)), Some((12_345, 70_000)));
        assert_eq!(step(300), "step-300");
        assert_eq!(parse_step(&step(300)), Some(300));
        assert_eq!(step_of("step-300.manifest", MANIFEST), Some(300));
        assert_eq!(step_of("step-7.part", UNFINISHED), Some(7));
    }

    #[test]
    fn other_names_are_somebody_elses() {
        for name in ["rank-3-of-16", "rank-0016-of-0016", "rank-00003-of-0016", "rank-+003-of-0016"]
        {
            assert_eq!(parse_rank_folder(name), None, "{name}");
        }
        for name in ["step-0300.manifest", "step--1.manifest", "step-+3.manifest", "step-3", "x"] {
            assert_eq!(step_of(name, MANIFEST), None, "{name}");
        }
        assert_eq!(step_of("step-03.part", UNFINISHED), None);
    }
}
