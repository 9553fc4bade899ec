//! A directory for one test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A new directory that is removed with everything in it when the value is dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

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
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = parent.join(format!("scratch-{}-{count}", std::process::id()));
        match fs::create_dir(&dir) {
            Ok(()) => Scratch(dir),
            Err(error) => panic!("{} cannot be made: {error}", dir.display()),
        }
    }

    /// Path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The names of its entries, in order.
    ///
    /// # Panics
    /// When it cannot be read.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
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

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
