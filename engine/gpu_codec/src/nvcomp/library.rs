//! nvCOMP, loaded at run time. The version is checked first: the same names have other parameters
//! in other versions, so an unknown version is refused.

use std::env;
use std::ffi::c_int;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use unspool_codec::{Dtype, NvComp};

use super::find;
use super::formats::{Format, Major};
use unspool_cuda::{DeviceError, DeviceErrorKind};

/// A symbol that only the fake driver exports: its nvCOMP works on the fake's memory.
const OF_THE_FAKE: &[u8] = b"fakecuda_nvcomp";

/// The environment variable that names another driver than that of the system.
const OTHER_DRIVER: &str = "UNSPOOL_CUDA_DRIVER";

/// `nvcompProperties_t`.
#[repr(C)]
#[derive(Default)]
struct Properties {
    version: u32,
    cudart: u32,
}

/// The library. It stays loaded to the end of the process, as the CUDA runtime in it expects.
pub struct NvCompLibrary {
    handle: std::mem::ManuallyDrop<Library>,
    path: PathBuf,
    version: (u32, u32, u32),
    major: Major,
}

impl NvCompLibrary {
    /// Finds the library: by the environment variable `UNSPOOL_NVCOMP` (the library or its folder),
    /// else in NVIDIA's Python packages in `folders` (such as `sys.path`), else by its name.
    ///
    /// # Errors
    /// When no known version is found; the text says what to install.
    pub fn find_in(folders: &[PathBuf]) -> Result<Arc<NvCompLibrary>, DeviceError> {
        let candidates = find::candidates(|name| env::var_os(name), folders);
        let mut reason = "there is no such library".to_owned();
        for path in &candidates {
            match NvCompLibrary::load(path) {
                Ok(library) => return Ok(Arc::new(library)),
                Err(error) => reason = format!("{}: {error}", path.display()),
            }
        }
        let message = format!("nvCOMP cannot be used: {reason}");
        Err(DeviceError::new(DeviceErrorKind::Missing, message).with_advice(format!(
            "Install it (pip install nvidia-libnvcomp-cu13 or -cu12), name the library in {}, or \
             use one of Unspool's own codecs.",
            find::VARIABLE
        )))
    }

    fn load(path: &Path) -> Result<NvCompLibrary, String> {
        // SAFETY: its initialisers have no preconditions. RTLD_LOCAL, because it contains symbols
        // of other libraries.
        let library = unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) }
            .map_err(|error| error.to_string())?;
        let library = std::mem::ManuallyDrop::new(library);
        let number = version_of(&library)?;
        let version = (number / 1000, number % 1000 / 100, number % 100);
        let major = known(version)?;
        // SAFETY: the symbol is not dereferenced.
        let of_fake = unsafe { library.get::<*const u8>(OF_THE_FAKE) }.is_ok();
        if env::var_os(OTHER_DRIVER).is_some() != of_fake {
            return Err(format!(
                "it calls the system's driver by itself, and {OTHER_DRIVER} names another one"
            ));
        }
        Ok(NvCompLibrary { handle: library, path: path.to_owned(), version, major })
    }

    /// The path that it was loaded from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Major, minor and patch version.
    #[must_use]
    pub fn version(&self) -> (u32, u32, u32) {
        self.version
    }

    /// Whether this version has the format for values of `dtype`. Calls the library, and needs no
    /// device.
    #[must_use]
    pub fn takes(&self, codec: NvComp, dtype: &Dtype) -> bool {
        self.format(codec, dtype).is_ok_and(|format| {
            format.most().is_ok()
                && format.alignments(&format.compressing).is_ok()
                && format.alignments(&format.decompressing).is_ok()
        })
    }

    /// The functions and options of a format for values of `dtype`.
    pub(super) fn format(&self, codec: NvComp, dtype: &Dtype) -> Result<Format, DeviceError> {
        // SAFETY: `load` has checked this version.
        let format = unsafe { Format::find(&self.handle, self.major, codec, dtype) };
        format.ok_or_else(|| {
            let advice = match codec {
                NvComp::BitcompLossy(_) => "Bitcomp with a bound needs version 6.",
                _ => "Install nvCOMP 6, or use one of Unspool's own codecs.",
            };
            let message = format!("{self:?} has no {codec:?} for such values");
            DeviceError::new(DeviceErrorKind::Missing, message).with_advice(advice)
        })
    }
}

impl fmt::Debug for NvCompLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor, patch) = self.version;
        write!(f, "nvCOMP {major}.{minor}.{patch} at {}", self.path.display())
    }
}

fn version_of(library: &Library) -> Result<u32, String> {
    type GetProperties = unsafe extern "C" fn(*mut Properties) -> c_int;
    let name = b"nvcompGetProperties";
    // SAFETY: this function is the same in all versions since 2.3.
    let get = unsafe { library.get::<GetProperties>(name) };
    let get = get.map_err(|_| "it is not nvCOMP, or one before 2.3".to_owned())?;
    let mut properties = Properties::default();
    // SAFETY: a valid place.
    match unsafe { get(&raw mut properties) } {
        0 => Ok(properties.version),
        code => Err(format!("it does not report its version (status {code})")),
    }
}

/// The interface of a version, if it is known.
fn known((major, minor, patch): (u32, u32, u32)) -> Result<Major, String> {
    match major {
        5 => Ok(Major::Five),
        6 => Ok(Major::Six),
        _ => Err(format!(
            "it is version {major}.{minor}.{patch}, whose interface is another one; 5 and 6 can be \
             used"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_with_a_known_interface_are_taken() {
        assert_eq!(known((5, 1, 0)), Ok(Major::Five));
        assert_eq!(known((6, 0, 0)), Ok(Major::Six));
        for major in [2, 3, 4, 7, 12] {
            let text = known((major, 2, 1)).unwrap_err();
            assert!(text.contains(&format!("version {major}.2.1")), "{text}");
        }
    }
}
