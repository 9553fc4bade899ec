//! Compiled kernels of this user, on disk. A file is used only when it belongs to the user, nobody
//! else may write it, and it is whole and made from exactly this text; everything else counts as
//! not there. It is a convenience: what cannot be written is compiled again.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernels::compile::Cubin;

const MAGIC: &[u8; 8] = b"UNSPOOLK";
/// Magic, key, length, check.
const HEAD: usize = 8 + 16 + 8 + 16;
/// No kernel of ours is near this size.
const LARGEST: u64 = 64 << 20;

/// What a cubin was made from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key(u128);

/// A folder of compiled kernels.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// The user's: `unspool/kernels` in `XDG_CACHE_HOME`, or in `.cache` of the home.
    #[must_use]
    pub fn of_user() -> Option<Cache> {
        let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        // The standard says that a relative path counts as none.
        let root = named.filter(|path| path.is_absolute()).or(home)?;
        Some(Cache::at(root.join("unspool").join("kernels")))
    }

    /// One in `folder`, which is made when something is put into it.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Cache {
        Cache { folder: folder.into() }
    }

    /// The key of a text for an architecture by a compiler. Every part is closed off, so that no
    /// two triples run together.
    #[must_use]
    pub fn key(source: &str, arch: &str, compiler: (i32, i32)) -> Key {
        let compiler = format!("{}.{}", compiler.0, compiler.1);
        // The first one stands for the compiler's options.
        let parts = ["2", env!("CARGO_PKG_VERSION"), &compiler, arch, source];
        let closed = parts.iter().flat_map(|part| {
            let len = (part.len() as u64).to_le_bytes();
            len.into_iter().chain(part.bytes())
        });
        Key(fnv128(closed))
    }

    /// The cubin of `key`, if a trustworthy one is there.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<Cubin> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
            .open(self.path(key))
            .ok()?;
        let metadata = file.metadata().ok()?;
        let own = metadata.uid() == rustix::process::geteuid().as_raw();
        if !metadata.is_file() || !own || metadata.mode() & 0o022 != 0 || metadata.len() > LARGEST {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(LARGEST).read_to_end(&mut bytes).ok()?;
        open(key, bytes)
    }

    /// Keeps `cubin`. Readers see the whole file or none.
    pub fn put(&self, key: Key, cubin: &Cubin) {
        let _ = self.write(key, cubin);
    }

    fn write(&self, key: Key, cubin: &Cubin) -> io::Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{:032x}.{}.{number}.tmp", key.0, std::process::id());
        let temporary = self.folder.join(name);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&temporary)?;
        let written = fill(file, key, cubin).and_then(|()| fs::rename(&temporary, self.path(key)));
        written.inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })
    }

    fn path(&self, key: Key) -> PathBuf {
        Path::new(&self.folder).join(format!("{:032x}.cubin", key.0))
    }
}

fn fill(mut file: File, key: Key, cubin: &Cubin) -> io::Result<()> {
    let bytes = cubin.bytes();
    let mut head = Vec::with_capacity(HEAD);
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(&key.0.to_le_bytes());
    head.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    head.extend_from_slice(&fnv128(bytes.iter().copied()).to_le_bytes());
    file.write_all(&head)?;
    file.write_all(bytes)
}

/// The cubin in a file of the cache, if the file is whole and of this key.
fn open(key: Key, mut bytes: Vec<u8>) -> Option<Cubin> {
    let (head, body) = bytes.split_at_checked(HEAD)?;
    let number =
        |range: std::ops::Range<usize>| Some(u128::from_le_bytes(head[range].try_into().ok()?));
    let len = u64::from_le_bytes(head[24..32].try_into().ok()?);
    let right = head.starts_with(MAGIC)
        && number(8..24)? == key.0
        && len == body.len() as u64
        && number(32..48)? == fnv128(body.iter().copied());
    if !right {
        return None;
    }
    bytes.drain(..HEAD);
    Cubin::from_bytes(bytes)
}

/// FNV-1a of 128 bits: against accidents, which is all that is left once only the user can write
/// the files. Source: Fowler, Noll, Vo, "The FNV Non-Cryptographic Hash Algorithm".
fn fnv128(bytes: impl Iterator<Item = u8>) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let name = format!("unspool-cubin-{name}-{}", std::process::id());
            Folder(std::env::temp_dir().join(name))
        }

        fn cache(&self) -> Cache {
            Cache::at(self.0.join("a/b"))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn cubin() -> Cubin {
        Cubin::from_bytes(b"\x7fELF and the rest".to_vec()).unwrap()
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv128(std::iter::empty()), 0x6c62272e07bb014262b821756295c58d);
        assert_eq!(fnv128(std::iter::once(b'a')), 0xd228cb696f1a8caf78912b704e4a8964);
    }

    #[test]
    fn a_key_depends_on_every_part_and_on_where_parts_end() {
        let key = Cache::key("source", "sm_90", (13, 0));
        assert_eq!(key, Cache::key("source", "sm_90", (13, 0)));
        assert_ne!(key, Cache::key("source ", "sm_90", (13, 0)));
        assert_ne!(key, Cache::key("source", "sm_80", (13, 0)));
        assert_ne!(key, Cache::key("source", "sm_90", (13, 1)));
        assert_ne!(Cache::key("b", "a", (1, 0)), Cache::key("", "ab", (1, 0)));
    }

    #[test]
    fn what_was_put_is_there_for_its_key_only() {
        let folder = Folder::new("put");
        let (cache, key) = (folder.cache(), Cache::key("x", "sm_90", (13, 0)));
        assert_eq!(cache.get(key), None);
        cache.put(key, &cubin());
        assert_eq!(cache.get(key), Some(cubin()));
        assert_eq!(cache.get(Cache::key("y", "sm_90", (13, 0))), None);
    }

    #[test]
    fn any_changed_or_missing_byte_makes_a_file_count_as_not_there() {
        let folder = Folder::new("torn");
        let (cache, key) = (folder.cache(), Cache::key("x", "sm_90", (13, 0)));
        cache.put(key, &cubin());
        let whole = fs::read(cache.path(key)).unwrap();
        for index in 0..whole.len() {
            let mut changed = whole.clone();
            changed[index] ^= 0x10;
            fs::write(cache.path(key), &changed).unwrap();
            assert_eq!(cache.get(key), None, "byte {index} changed");
            fs::write(cache.path(key), &whole[..index]).unwrap();
            assert_eq!(cache.get(key), None, "cut at {index}");
        }
        fs::write(cache.path(key), &whole).unwrap();
        assert_eq!(cache.get(key), Some(cubin()));
    }

    #[test]
    fn a_file_that_others_may_write_is_not_trusted() {
        let folder = Folder::new("mode");
        let (cache, key) = (folder.cache(), Cache::key("x", "sm_90", (13, 0)));
        cache.put(key, &cubin());
        fs::set_permissions(cache.path(key), fs::Permissions::from_mode(0o622)).unwrap();
        assert_eq!(cache.get(key), None);
    }
}
