//! The files in which the system describes itself, below a root that tests put elsewhere.

use std::fs;
use std::path::{Path, PathBuf};

/// The files of one system.
#[derive(Clone, Debug)]
pub(crate) struct System {
    root: PathBuf,
}

impl System {
    /// This one.
    pub(crate) fn here() -> System {
        System { root: PathBuf::from("/") }
    }

    /// The text of a file, whose path is written without its leading slash, without white space
    /// around it; `None` when it cannot be read.
    fn text(&self, path: &str) -> Option<String> {
        debug_assert!(!path.starts_with('/'));
        let bytes = fs::read(self.root.join(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Where a library is that this process has loaded, by the beginning of its file's name.
    pub(super) fn loaded(&self, name: &str) -> Option<PathBuf> {
        let maps = self.text("proc/self/maps")?;
        maps.lines().find_map(|line| {
            // Address, access, offset, device, inode, then the path.
            let path = Path::new(line.get(line.find('/')?..)?);
            let ours = path.file_name()?.to_str()?.starts_with(name);
            ours.then(|| path.to_owned())
        })
    }

    /// A field of `/proc/self/status`, in bytes.
    pub(crate) fn own_status(&self, name: &str) -> Option<u64> {
        kib_field(&self.text("proc/self/status")?, name)
    }
}

/// The line `name: N kB` of a text, in bytes.
fn kib_field(text: &str, name: &str) -> Option<u64> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(field, _)| *field == name)?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use unspool_testkit::Scratch;

    use super::*;

    /// A system with one file about this process.
    fn with(name: &str, text: &str) -> (Scratch, System) {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.path().join("proc/self")).unwrap();
        fs::write(scratch.path().join("proc/self").join(name), text).unwrap();
        let system = System { root: scratch.path().to_owned() };
        (scratch, system)
    }

    #[test]
    fn the_path_of_a_loaded_library_is_found_by_its_name() {
        let maps = "7f00-7f01 r--p 00000000 08:01 12 /usr/lib/libcudart.so.13\n\
                    7f02-7f03 r-xp 00000000 00:00 0 \n\
                    7f04-7f05 r--p 00000000 08:01 13 /usr/lib/a b/libcuda.so.580.82.07\n";
        let (_files, system) = with("maps", maps);
        let found = system.loaded("libcuda.so");
        assert_eq!(found, Some(PathBuf::from("/usr/lib/a b/libcuda.so.580.82.07")));
        assert_eq!(system.loaded("libnvrtc.so"), None);
    }

    #[test]
    fn fields_of_the_status_are_read_in_bytes() {
        let (_files, system) = with("status", "Name:\tx\nVmLck:\t      12 kB\nVmPin:\t  odd\n");
        assert_eq!(system.own_status("VmLck"), Some(12 * 1024));
        assert_eq!((system.own_status("VmPin"), system.own_status("VmSwap")), (None, None));
        assert_eq!(with("maps", "").1.own_status("VmLck"), None, "without the file");
    }
}
