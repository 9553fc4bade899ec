//! Nothing names a folder of the machine that it was written on.

use crate::finding::Finding;
use crate::tree::{File, Tree};

/// First parts of paths that exist on one person's machine only.
const FOLDERS: &[&str] = &["home", "root", "Users", "work"];

/// Lines with such a path, in every text file.
pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().flat_map(local).collect()
}

fn local(file: &File) -> Vec<Finding> {
    file.lines()
        .filter_map(|(line, text)| Some((line, folder(text)?)))
        .map(|(line, folder)| {
            Finding::new(
                &file.path,
                line,
                format!("an absolute path in /{folder}"),
                "it exists on one machine only",
                "Use a path relative to the project, or a neutral example such as /scratch/me",
            )
        })
        .collect()
}

/// The folder of the first absolute path on this line that is of one machine.
fn folder(text: &str) -> Option<&'static str> {
    FOLDERS.iter().copied().find(|folder| {
        let path = format!("/{folder}/");
        text.match_indices(&path).any(|(at, _)| begins(&text[..at]))
    })
}

/// Whether a path may begin after this text. Within a longer path (`src/home/x`) or an address
/// (`https://x.example/home/`) a folder of that name begins no absolute path.
fn begins(before: &str) -> bool {
    !before.ends_with(|c: char| c.is_alphanumeric() || "._-~/}$".contains(c))
}

#[cfg(test)]
mod tests {
    use super::{FOLDERS, check};
    use crate::tree::Tree;

    #[test]
    fn every_folder_is_found_where_an_absolute_path_begins() {
        for folder in FOLDERS {
            let text = format!("ok\nopen(\"/{folder}/me/x\")\n");
            let found = check(&Tree::of(&[("a.py", &text)]));
            assert_eq!((found.len(), found[0].line), (1, 2), "{folder}");
        }
    }

    #[test]
    fn relative_paths_and_addresses_are_left_alone() {
        let text = format!("src/{0}/x https://a.example/{0}/ ../{0}/y $HOME/{0}/z", FOLDERS[3]);
        assert_eq!(check(&Tree::of(&[("a.md", &text)])), []);
    }
}
