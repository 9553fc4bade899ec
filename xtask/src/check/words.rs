//! How long documents for maintainers are: a decision has at most 400 words, ARCHITECTURE 2,500.

use crate::finding::Finding;
use crate::tree::{File, Tree};

const DECISION: usize = 400;
const ARCHITECTURE: usize = 2500;

/// Documents with more words than that.
pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().filter_map(judge).collect()
}

fn judge(file: &File) -> Option<Finding> {
    let (most, why) = if is_decision(&file.path) {
        (DECISION, "a decision is one page: the question, the decision, why, and instead of what")
    } else if file.path.ends_with("ARCHITECTURE.md") {
        (ARCHITECTURE, "a newcomer reads it in ten minutes")
    } else {
        return None;
    };
    let words = file.text.split_whitespace().count();
    (words > most).then(|| {
        Finding::new(
            &file.path,
            1,
            format!("{words} words, at most {most}"),
            why,
            "Move measurements to docs/results, and what a file does to its head",
        )
    })
}

fn is_decision(path: &str) -> bool {
    path.contains("decisions/") && path.ends_with(".md")
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tree::Tree;

    fn found(path: &str, words: usize) -> usize {
        check(&Tree::of(&[(path, &"word ".repeat(words))])).len()
    }

    #[test]
    fn a_decision_of_more_than_a_page_is_found() {
        assert_eq!(found("engine/decisions/0003-checksum.md", 401), 1);
        assert_eq!(found("engine/decisions/0003-checksum.md", 400), 0);
        assert_eq!(found("docs/howto/gpu.md", 4000), 0);
    }

    #[test]
    fn each_architecture_has_its_limit() {
        assert_eq!(found("ARCHITECTURE.md", 2501), 1);
        assert_eq!(found("engine/ARCHITECTURE.md", 2501), 1);
        assert_eq!(found("engine/ARCHITECTURE.md", 2500), 0);
    }
}
