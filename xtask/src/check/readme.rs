//! The README is short enough to be read.

use crate::finding::Finding;
use crate::tree::Tree;

const LIMIT: usize = 95;

/// A README that is missing or too long.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let lines = tree.file("README.md").map_or(0, |file| file.text.lines().count());
    if (1..=LIMIT).contains(&lines) {
        return Vec::new();
    }
    vec![Finding::new(
        "README.md",
        lines.max(1),
        format!("{lines} lines"),
        "a README has 1 to 95, with an example on the first screen",
        "Move what is too much into docs",
    )]
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tree::Tree;

    #[test]
    fn a_long_and_a_missing_readme_are_found() {
        assert_eq!(check(&Tree::of(&[("README.md", &"x\n".repeat(96))])).len(), 1);
        assert_eq!(check(&Tree::of(&[])).len(), 1);
        assert_eq!(check(&Tree::of(&[("README.md", &"x\n".repeat(95))])), []);
    }
}
