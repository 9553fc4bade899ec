//! The files of the project, read once, so that checks are functions of text and tests can plant
//! whatever they like.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// One text file.
#[derive(Clone, Debug)]
pub struct File {
    /// Path from the root, with `/` between its parts.
    pub path: String,
    /// What is in it.
    pub text: String,
}

impl File {
    /// The lines with their numbers, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Whether the file's extension is one of these.
    pub fn is(&self, extensions: &[&str]) -> bool {
        Path::new(&self.path)
            .extension()
            .and_then(|found| found.to_str())
            .is_some_and(|found| extensions.contains(&found))
    }

    /// Whether the file lies in this folder.
    pub fn within(&self, folder: &str) -> bool {
        self.path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
    }
}

/// Every file that git tracks or would track.
#[derive(Clone, Default, Debug)]
pub struct Tree {
    /// The text files, ordered by path.
    pub files: Vec<File>,
    /// Every path that a link may name: all files (also those that are not text) and folders.
    pub paths: BTreeSet<String>,
}

impl Tree {
    /// Reads the files of the git checkout in `root`.
    pub fn read(root: &Path) -> Result<Tree, String> {
        let mut tree = Tree::default();
        for path in listed(root)? {
            let Ok(bytes) = std::fs::read(root.join(&path)) else {
                continue; // deleted in the working tree, or a link that leads nowhere
            };
            tree.add(path, String::from_utf8(bytes).ok());
        }
        Ok(tree)
    }

    /// Adds one file; `text` is `None` when it is not text.
    pub fn add(&mut self, path: String, text: Option<String>) {
        let mut folder = path.as_str();
        while let Some((parent, _)) = folder.rsplit_once('/') {
            self.paths.insert(parent.to_owned());
            folder = parent;
        }
        self.paths.insert(path.clone());
        if let Some(text) = text {
            self.files.push(File { path, text });
        }
    }

    /// The file at `path`.
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// A tree of these files, for tests.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            tree.add((*path).to_owned(), Some((*text).to_owned()));
        }
        tree
    }
}

/// The paths that git tracks, and those that are new and not ignored.
fn listed(root: &Path) -> Result<Vec<String>, String> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot run git: {error}; install it"))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git ls-files failed: {reason}\nRun this in a git checkout."));
    }
    let names = String::from_utf8_lossy(&output.stdout);
    let unique: BTreeSet<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
    Ok(unique.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[test]
    fn folders_of_a_file_are_paths_too() {
        let tree = Tree::of(&[("a/b/c.md", "x")]);
        assert!(tree.paths.contains("a/b") && tree.paths.contains("a"));
        assert!(tree.paths.contains("a/b/c.md"));
    }

    #[test]
    fn a_folder_is_matched_by_whole_names() {
        let tree = Tree::of(&[("engine/core-extra/x.rs", "")]);
        assert!(!tree.files[0].within("engine/core"));
        assert!(tree.files[0].within("engine/core-extra"));
    }
}
