//! No source line is wider than 100 columns, because two files side by side must fit a screen.
//! (rustfmt and ruff leave long comments and strings alone.)

use crate::check::SOURCE;
use crate::finding::Finding;
use crate::tree::{File, Tree};

const LIMIT: usize = 100;

/// Lines that are too wide; one that is wide because of a web address may be.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let sources = tree.files.iter().filter(|file| file.is(SOURCE) || file.is(&["sh"]));
    sources.flat_map(wide).collect()
}

fn wide(file: &File) -> Vec<Finding> {
    file.lines()
        .map(|(line, text)| (line, text, text.chars().count()))
        .filter(|(_, text, columns)| *columns > LIMIT && !text.contains("://"))
        .map(|(line, _, columns)| {
            Finding::new(
                &file.path,
                line,
                format!("{columns} columns"),
                "source lines have at most 100",
                "Break the line",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tree::Tree;

    #[test]
    fn a_wide_line_is_found_and_counted_in_characters() {
        let wide = "é".repeat(101);
        let fits = "é".repeat(100);
        let tree = Tree::of(&[("a.rs", &format!("{fits}\n{wide}\n"))]);
        let found = check(&tree);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].line, found[0].what.as_str()), (2, "101 columns"));
    }

    #[test]
    fn addresses_and_documents_may_be_wide() {
        let address = format!("// https://x.example/{}", "a".repeat(100));
        let prose = "word ".repeat(40);
        assert_eq!(check(&Tree::of(&[("a.rs", &address), ("b.md", &prose)])), []);
    }
}
