//! Files in the user's cache folder. One is read only when it belongs to the user and nobody else
//! may write it. All of it is a convenience: what cannot be written is not there the next time.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The user's folder: `unspool` in `XDG_CACHE_HOME`, or in `.cache` of the home directory.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    // The XDG specification says to ignore a relative path.
    let root = named.filter(|path| path.is_absolute()).or(home)?;
    Some(root.join("unspool"))
}

/// The content of a file that can be trusted and has at most `largest` bytes.
#[must_use]
pub fn read(path: &Path, largest: u64) -> Option<Vec<u8>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    let metadata = file.metadata().ok()?;
    let own = metadata.uid() == rustix::process::geteuid().as_raw();
    if !metadata.is_file() || !own || metadata.mode() & 0o022 != 0 || metadata.len() > largest {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(largest).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Writes a file, and its folder if there is none. Readers see the whole file, the one before or
/// none.
///
/// # Errors
/// Those of the file system; nothing is left behind then.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let folder = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_extension(format!("{}.{number}.tmp", std::process::id()));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&temporary, path));
    written.inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}
