//! Small things that the tests of this crate share.

use std::fs;
use std::path::PathBuf;

/// A new directory that is removed with everything in it when the value is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch::in_directory(std::env::temp_dir())
    }

    /// In a file system in memory, where there is one.
    pub(crate) fn in_memory() -> Scratch {
        let shm = PathBuf::from("/dev/shm");
        Scratch::in_directory(if shm.is_dir() { shm } else { std::env::temp_dir() })
    }

    fn in_directory(parent: PathBuf) -> Scratch {
        Scratch(tempfile::tempdir_in(parent).unwrap().keep())
    }

    /// The names in it, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Numbers that look random and are the same in every run: SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }
}

/// `len` bytes that depend on `seed` and on their place.
pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(1 << 32));
    (0..len).map(|_| random.below(256) as u8).collect()
}
