//! Every source file opens with what it is for and its invariants.

use crate::check::SOURCE;
use crate::finding::Finding;
use crate::tree::{File, Tree};

/// Source files that do not open with a doc comment; empty ones (package markers) may.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let sources = tree.files.iter().filter(|file| file.is(SOURCE));
    sources
        .filter(|file| !file.text.trim().is_empty() && !opens_with_words(file))
        .map(|file| {
            Finding::new(
                &file.path,
                1,
                "no opening doc comment",
                "a reader wants to know what the file is for before its first definition",
                "Open it with `//!` (Rust), a docstring (Python) or a comment (C, CUDA)",
            )
        })
        .collect()
}

fn opens_with_words(file: &File) -> bool {
    let mut lines = file.lines().map(|(_, line)| line.trim()).filter(|line| !line.is_empty());
    if file.is(&["rs"]) {
        return lines.next().is_some_and(|line| line.starts_with("//!"));
    }
    if file.is(&["py", "pyi"]) {
        let first = lines.find(|line| !line.starts_with('#')).unwrap_or_default();
        return ["\"\"\"", "r\"\"\""].iter().any(|quotes| first.starts_with(quotes));
    }
    lines.next().is_some_and(|line| line.starts_with("//") || line.starts_with("/*"))
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tree::Tree;

    #[test]
    fn a_file_without_an_opening_is_found_in_every_language() {
        let bare = [("a.rs", "use x;"), ("b.py", "import x"), ("c.h", "#pragma once")];
        assert_eq!(check(&Tree::of(&bare)).len(), 3);
        let plain = Tree::of(&[("a.rs", "// A plain comment is not a doc comment.\n")]);
        assert_eq!(check(&plain).len(), 1);
    }

    #[test]
    fn docs_after_a_script_line_and_empty_markers_are_fine() {
        let good = [
            ("a.rs", "//! What it is.\n"),
            ("b.py", "#!/usr/bin/env python3\n\n\"\"\"What it is.\"\"\"\n"),
            ("c.cu", "// What it is.\n"),
            ("tests/__init__.py", ""),
        ];
        assert_eq!(check(&Tree::of(&good)), []);
    }
}
