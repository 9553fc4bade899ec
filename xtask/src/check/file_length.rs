//! Source files have at most 800 lines; a median between 100 and 300 is the aim, and reported.

use crate::check::SOURCE;
use crate::finding::Finding;
use crate::tree::Tree;

const CAP: usize = 800;

/// Files over the cap.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let sources = tree.files.iter().filter(|file| file.is(SOURCE));
    sources
        .map(|file| (file, file.text.lines().count()))
        .filter(|(_, lines)| *lines > CAP)
        .map(|(file, lines)| {
            Finding::new(
                &file.path,
                lines,
                format!("{lines} lines"),
                "a source file has at most 800, so that one person can hold it in mind",
                "Split it along its seams; tests over 200 lines go into a sibling file",
            )
        })
        .collect()
}

/// The median length of the source files, in lines, and how many there are.
pub fn median(tree: &Tree) -> (usize, usize) {
    let sources = tree.files.iter().filter(|file| file.is(SOURCE));
    let mut lengths: Vec<usize> =
        sources.map(|file| file.text.lines().count()).filter(|lines| *lines > 0).collect();
    lengths.sort_unstable();
    (lengths.get(lengths.len() / 2).copied().unwrap_or(0), lengths.len())
}

#[cfg(test)]
mod tests {
    use super::{check, median};
    use crate::tree::Tree;

    #[test]
    fn a_file_over_the_cap_is_found_and_one_at_the_cap_is_not() {
        let tree = Tree::of(&[("a.rs", &"x\n".repeat(801)), ("b.py", &"x\n".repeat(800))]);
        let found = check(&tree);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].path.as_str(), found[0].what.as_str()), ("a.rs", "801 lines"));
    }

    #[test]
    fn the_median_leaves_out_documents_and_empty_files() {
        let tree =
            Tree::of(&[("a.rs", "1\n"), ("b.rs", "1\n2\n3\n"), ("c.py", ""), ("d.md", "1\n")]);
        assert_eq!(median(&tree), (3, 2));
    }
}
