//! Where NVRTC may be: it is not a part of the driver, so it comes with the toolkit or with a
//! Python package, in one of several folders.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The environment variable that names the library or its folder.
pub(super) const VARIABLE: &str = "UNSPOOL_NVRTC";

const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// Library folders of NVIDIA's Python packages in `site-packages`, for CUDA 13 and 12.
const WHEELS: [&str; 3] = ["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib", "nvidia/cu12/lib"];

/// Candidates, in order. `extra` are folders that the caller knows, such as Python's `sys.path`.
pub(super) fn candidates(
    variable: impl Fn(&str) -> Option<OsString>,
    extra: &[PathBuf],
) -> Vec<PathBuf> {
    if let Some(named) = variable(VARIABLE) {
        let named = PathBuf::from(named);
        return if named.is_dir() { inside(&named) } else { vec![named] };
    }
    let mut found = Vec::new();
    for path in extra {
        found.extend(in_packages(path));
    }
    // By name alone: finds a library that is loaded already (PyTorch brings one), LD_LIBRARY_PATH,
    // ldconfig.
    found.extend(NAMES.iter().map(PathBuf::from));
    for home in ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(|name| variable(name)) {
        found.extend(inside(&Path::new(&home).join("lib64")));
    }
    found.extend(inside(Path::new("/usr/local/cuda/lib64")));
    for prefix in ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|name| variable(name)) {
        for packages in site_packages(Path::new(&prefix)) {
            found.extend(in_packages(&packages));
        }
    }
    for path in variable("PYTHONPATH").iter().flat_map(env::split_paths) {
        found.extend(in_packages(&path));
    }
    found
}

/// The libraries in a folder.
fn inside(folder: &Path) -> Vec<PathBuf> {
    let names = NAMES.iter().map(|name| folder.join(name));
    names.filter(|path| path.exists()).collect()
}

/// The libraries of NVIDIA's packages in one `site-packages`, and in the folder itself.
fn in_packages(path: &Path) -> Vec<PathBuf> {
    let folders = WHEELS.iter().map(|wheel| path.join(wheel)).chain([path.to_owned()]);
    folders.flat_map(|folder| inside(&folder)).collect()
}

/// `lib/python3*/site-packages` of an environment.
fn site_packages(prefix: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(prefix.join("lib")) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
        .map(|entry| entry.path().join("site-packages"))
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    #[test]
    fn the_library_of_a_wheel_is_found_in_its_environment() {
        let root = tempfile::tempdir().unwrap().keep();
        let library = root.join("lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
        touch(&library);
        let set = |name: &str| (name == "VIRTUAL_ENV").then(|| root.clone().into_os_string());
        let list = candidates(set, &[]);
        let other = candidates(|_| None, &[root.join("lib/python3.12/site-packages")]);
        fs::remove_dir_all(&root).unwrap();
        assert!(list.contains(&library), "{list:?}");
        assert_eq!(other.first(), Some(&library));
    }

    #[test]
    fn a_library_that_is_named_is_the_only_one_tried() {
        let named = |name: &str| (name == VARIABLE).then(|| "/some/libnvrtc.so.13".into());
        assert_eq!(candidates(named, &[]), [PathBuf::from("/some/libnvrtc.so.13")]);
    }
}
