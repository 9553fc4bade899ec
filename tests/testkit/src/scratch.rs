//! A directory for one test.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// A new directory that is removed with everything in it when the value is dropped. Its name is
/// drawn by chance, because the number of a process comes back and what a killed one left is there.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// Creates it in the directory for temporary files.
    ///
    /// # Panics
    /// When it cannot be created.
    #[must_use]
    pub fn new() -> Scratch {
        Scratch::in_directory(&std::env::temp_dir())
    }

    /// Creates it in `parent`, which exists.
    ///
    /// # Panics
    /// When it cannot be created.
    #[must_use]
    pub fn in_directory(parent: &Path) -> Scratch {
        match TempDir::new_in(parent) {
            Ok(dir) => Scratch(dir),
            Err(error) => panic!("no directory can be made in {}: {error}", parent.display()),
        }
    }

    /// Path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The names of its entries, in order.
    ///
    /// # Panics
    /// When it cannot be read.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch::new()
    }
}
