//! A cache on disk of kernels that were compiled on the user's machine, for devices without shipped
//! kernels. A file is used only when it can be trusted, is whole, and was made from exactly this
//! text; any other file is ignored. What cannot be written is compiled again.

use std::borrow::Cow;
use std::path::PathBuf;

use crate::kernels::image::{Image, Key, Target};
use crate::kernels::pack::{NewImage, Pack};
use crate::user_cache;

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
    /// `kernels` in the user's cache folder.
    #[must_use]
    pub fn of_user() -> Option<Cache> {
        Some(Cache::at(user_cache::folder()?.join("kernels")))
    }

    /// A cache in `folder`, which is created when the first image is stored.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Cache {
        Cache { folder: folder.into() }
    }

    /// The compiled form of a text, if a trustworthy file has it.
    #[must_use]
    pub fn get(&self, key: Key, target: Target, compiler: CompilerVersion) -> Option<Image> {
        let bytes = user_cache::read(&self.path(key, target, compiler), LARGEST)?;
        let pack = Pack::open(Cow::Owned(bytes)).filter(|pack| pack.compiler() == compiler)?;
        pack.exact(key, target)
    }

    /// Stores an image. Readers see the whole file or none.
    pub fn put(&self, key: Key, target: Target, compiler: CompilerVersion, image: &Image) {
        let made = NewImage { key, target, image: image.clone() };
        let _ = Pack::write(compiler, &[vec![made]], 1)
            .and_then(|bytes| user_cache::write(&self.path(key, target, compiler), &bytes));
    }

    fn path(&self, key: Key, target: Target, (major, minor): CompilerVersion) -> PathBuf {
        self.folder.join(format!("{:032x}-{target}-{major}_{minor}.kernels", key.0))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::kernels::image::Arch;

    const CODE: Target = Target::Code(Arch::new(9, 0));
    const VERSION: CompilerVersion = (13, 0);

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            Folder(tempfile::Builder::new().prefix(name).tempdir().unwrap().keep())
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
