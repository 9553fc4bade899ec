//! A cache on disk of kernels that were compiled on the user's machine, for devices without shipped
//! kernels. A file is used only when it belongs to the user, nobody else may write it, and it is
//! whole and made from exactly this text; any other file is ignored. The cache is a convenience:
//! what cannot be written is compiled again.

use std::borrow::Cow;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernels::image::{Image, Key, Target};
use crate::kernels::pack::{NewImage, Pack};

/// Kernels of ours are far smaller than this.
const LARGEST: u64 = 64 << 20;

/// Version of a compiler.
type CompilerVersion = (i32, i32);

/// A folder of compiled kernels, each a pack of one image.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// The user's folder: `unspool/kernels` in `XDG_CACHE_HOME`, or in `.cache` of the home
    /// directory.
    #[must_use]
    pub fn of_user() -> Option<Cache> {
        let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        // The XDG specification says to ignore a relative path.
        let root = named.filter(|path| path.is_absolute()).or(home)?;
        Some(Cache::at(root.join("unspool").join("kernels")))
    }

    /// A cache in `folder`, which is created when the first image is stored.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Cache {
        Cache { folder: folder.into() }
    }

    /// The compiled form of a text, if a trustworthy file has it.
    #[must_use]
    pub fn get(&self, key: Key, target: Target, compiler: CompilerVersion) -> Option<Image> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
            .open(self.path(key, target, compiler))
            .ok()?;
        let metadata = file.metadata().ok()?;
        let own = metadata.uid() == rustix::process::geteuid().as_raw();
        if !metadata.is_file() || !own || metadata.mode() & 0o022 != 0 || metadata.len() > LARGEST {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(LARGEST).read_to_end(&mut bytes).ok()?;
        let pack = Pack::open(Cow::Owned(bytes)).filter(|pack| pack.compiler() == compiler)?;
        pack.exact(key, target)
    }

    /// Stores an image. Readers see the whole file or none.
    pub fn put(&self, key: Key, target: Target, compiler: CompilerVersion, image: &Image) {
        let made = NewImage { key, target, image: image.clone() };
        let _ = Pack::write(compiler, &[vec![made]], 1)
            .and_then(|bytes| self.write(&self.path(key, target, compiler), &bytes));
    }

    fn write(&self, path: &PathBuf, bytes: &[u8]) -> io::Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_extension(format!("{}.{number}.tmp", std::process::id()));
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&temporary)?;
        let written = file.write_all(bytes).and_then(|()| fs::rename(&temporary, path));
        written.inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })
    }

    fn path(&self, key: Key, target: Target, (major, minor): CompilerVersion) -> PathBuf {
        self.folder.join(format!("{:032x}-{target}-{major}_{minor}.kernels", key.0))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::kernels::image::Arch;

    const CODE: Target = Target::Code(Arch::new(9, 0));
    const VERSION: CompilerVersion = (13, 0);

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

    fn image() -> Image {
        Image::from_bytes(b"\x7fELF and the rest".to_vec()).unwrap()
    }

    #[test]
    fn what_was_put_is_there_for_its_text_target_and_compiler_only() {
        let folder = Folder::new("put");
        let (cache, key) = (folder.cache(), Key::of("x"));
        assert_eq!(cache.get(key, CODE, VERSION), None);
        cache.put(key, CODE, VERSION, &image());
        assert_eq!(cache.get(key, CODE, VERSION), Some(image()));
        assert_eq!(cache.get(Key::of("y"), CODE, VERSION), None);
        assert_eq!(cache.get(key, Target::Ptx(Arch::new(9, 0)), VERSION), None);
        assert_eq!(cache.get(key, CODE, (13, 1)), None);
    }

    #[test]
    fn a_file_of_another_text_or_a_damaged_one_counts_as_not_there() {
        let folder = Folder::new("torn");
        let (cache, key) = (folder.cache(), Key::of("x"));
        cache.put(key, CODE, VERSION, &image());
        let path = cache.path(key, CODE, VERSION);
        let whole = fs::read(&path).unwrap();
        fs::copy(&path, cache.path(Key::of("y"), CODE, VERSION)).unwrap();
        assert_eq!(cache.get(Key::of("y"), CODE, VERSION), None);
        for index in 0..whole.len() {
            fs::write(&path, &whole[..index]).unwrap();
            assert_eq!(cache.get(key, CODE, VERSION), None, "cut at {index}");
        }
        fs::write(&path, &whole).unwrap();
        assert_eq!(cache.get(key, CODE, VERSION), Some(image()));
    }

    #[test]
    fn a_file_that_others_may_write_is_not_trusted() {
        let folder = Folder::new("mode");
        let (cache, key) = (folder.cache(), Key::of("x"));
        cache.put(key, CODE, VERSION, &image());
        let path = cache.path(key, CODE, VERSION);
        fs::set_permissions(path, fs::Permissions::from_mode(0o622)).unwrap();
        assert_eq!(cache.get(key, CODE, VERSION), None);
    }
}
