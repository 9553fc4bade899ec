//! Where nvCOMP may be. It is optional and never shipped: it comes with a Python package or with
//! the system.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The environment variable that names the library or its folder.
pub(super) const VARIABLE: &str = "UNSPOOL_NVCOMP";

const NAMES: [&str; 2] = ["libnvcomp.so.6", "libnvcomp.so.5"];

/// The folder of NVIDIA's Python packages below `site-packages`.
const WHEEL: &str = "nvidia/libnvcomp/lib64";

/// Candidates, in order: the named library, else those in the folders `extra` (such as Python's
/// `sys.path`), else what the system finds by name.
pub(super) fn candidates(
    variable: impl Fn(&str) -> Option<OsString>,
    extra: &[PathBuf],
) -> Vec<PathBuf> {
    if let Some(named) = variable(VARIABLE) {
        let named = PathBuf::from(named);
        return if named.is_dir() { inside(&named) } else { vec![named] };
    }
    let wheels = extra.iter().flat_map(|folder| inside(&folder.join(WHEEL)));
    wheels.chain(NAMES.iter().map(PathBuf::from)).collect()
}

/// The libraries in a folder.
fn inside(folder: &Path) -> Vec<PathBuf> {
    let names = NAMES.iter().map(|name| folder.join(name));
    names.filter(|path| path.exists()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_library_of_a_package_comes_before_those_of_the_system() {
        let root = tempfile::tempdir().unwrap().keep();
        let folder = root.join(WHEEL);
        std::fs::create_dir_all(&folder).unwrap();
        for name in NAMES {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let list = candidates(|_| None, &[root.join("empty"), root.clone()]);
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(list[..2], [folder.join(NAMES[0]), folder.join(NAMES[1])]);
        assert_eq!(list[2..], NAMES.map(PathBuf::from));
    }

    #[test]
    fn a_library_that_is_named_is_the_only_one_tried() {
        let named = |name: &str| (name == VARIABLE).then(|| "/some/libnvcomp.so.6".into());
        let list = candidates(named, &[PathBuf::from("/elsewhere")]);
        assert_eq!(list, [PathBuf::from("/some/libnvcomp.so.6")]);
    }
}
