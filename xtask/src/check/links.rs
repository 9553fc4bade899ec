//! Links between the documents lead somewhere: to a file, and to a heading in it.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::tree::{File, Tree};

/// Relative links in Markdown files whose target is not there.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let documents = tree.files.iter().filter(|file| file.is(&["md"]));
    documents.flat_map(|file| broken(file, tree)).collect()
}

fn broken(file: &File, tree: &Tree) -> Vec<Finding> {
    let links = prose(file)
        .into_iter()
        .flat_map(|(line, text)| targets(text).into_iter().map(move |target| (line, target)));
    links
        .filter(|(_, target)| !target.contains("://") && !target.starts_with("mailto:"))
        .filter(|(_, target)| !leads_somewhere(file, target, tree))
        .map(|(line, target)| {
            Finding::new(
                &file.path,
                line,
                format!("the link to {target}"),
                "there is no such file or heading",
                "Correct the link, relative to this file",
            )
        })
        .collect()
}

/// The lines outside of code blocks.
fn prose(file: &File) -> Vec<(usize, &str)> {
    let mut in_code = false;
    file.lines()
        .filter(|(_, text)| {
            let fence = text.trim_start().starts_with("```");
            in_code ^= fence;
            !in_code && !fence
        })
        .collect()
}

/// What the links of one line point to: `[text](target)` and `[label]: target`.
fn targets(text: &str) -> Vec<&str> {
    let inline = text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let reference = text.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    inline.chain(reference.map(|(_, target)| target.trim())).collect()
}

fn leads_somewhere(from: &File, target: &str, tree: &Tree) -> bool {
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { from.path.clone() } else { resolve(&from.path, path) };
    if !path.is_empty() && !tree.paths.contains(&path) {
        return false;
    }
    heading.is_empty() || tree.file(&path).is_some_and(|file| anchors(file).contains(heading))
}

/// The path that `target` means in a file at `from`.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part != ".." {
            parts.push(part);
        } else if parts.pop().is_none() {
            parts.push(".."); // above the root: nothing is there
        }
    }
    parts.join("/")
}

/// The anchors that GitHub gives to the headings of a document.
fn anchors(file: &File) -> BTreeSet<String> {
    let headings = prose(file).into_iter().filter(|(_, text)| text.starts_with('#'));
    headings.map(|(_, text)| anchor(text.trim_start_matches('#').trim())).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::{anchor, check};
    use crate::tree::Tree;

    #[test]
    fn a_link_to_a_missing_file_or_heading_is_found() {
        let text = "# A\n[x](b.md) and [y](../c.md)\n[z](#nowhere)\n[d]: missing.md\n";
        let tree = Tree::of(&[("docs/a.md", text), ("docs/b.md", "# B")]);
        let found: Vec<(usize, String)> =
            check(&tree).into_iter().map(|found| (found.line, found.what)).collect();
        let expected = [(2, "the link to ../c.md"), (3, "the link to #nowhere")];
        let expected = expected.into_iter().chain([(4, "the link to missing.md")]);
        assert_eq!(found, expected.map(|(l, w)| (l, w.to_owned())).collect::<Vec<_>>());
    }

    #[test]
    fn files_folders_headings_and_addresses_are_fine() {
        let text = "## A `b` (c)\n[x](../README.md#one-two) [f](howto/) [a](#a-b-c)\n\
                    [w](https://x.example) ![p](p.svg \"title\")\n";
        let readme = "# One two";
        let tree = Tree::of(&[
            ("docs/a.md", text),
            ("README.md", readme),
            ("docs/howto/x.md", ""),
            ("docs/p.svg", "<svg/>"),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn code_blocks_are_not_read() {
        assert_eq!(check(&Tree::of(&[("a.md", "```\n[x](nowhere)\n# no heading\n```\n")])), []);
    }

    #[test]
    fn a_link_above_the_root_is_found() {
        assert_eq!(check(&Tree::of(&[("a.md", "[x](../a.md)")])).len(), 1);
    }

    #[test]
    fn anchors_are_those_of_github() {
        assert_eq!(anchor("Save, `restore` and_more: 2"), "save-restore-and_more-2");
    }
}
