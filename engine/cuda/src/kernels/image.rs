//! Compiled kernels as bytes, the key of their text, and the architectures that they run on.

use std::fmt;

use crate::driver::DeviceInfo;

/// An architecture that kernels are compiled for: compute capability 9.0 is `sm_90`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Arch {
    major: u32,
    minor: u32,
}

impl Arch {
    /// The architecture of a compute capability.
    #[must_use]
    pub const fn new(major: u32, minor: u32) -> Arch {
        Arch { major, minor }
    }

    /// The architecture of a device.
    #[must_use]
    pub fn of(device: &DeviceInfo) -> Arch {
        let (major, minor) = device.compute_capability;
        Arch { major, minor }
    }

    /// Major and minor number of the compute capability.
    #[must_use]
    pub fn numbers(self) -> (u32, u32) {
        (self.major, self.minor)
    }

    /// Whether a device of this architecture runs machine code for `other`: CUDA promises that for
    /// one of the same major number and a minor number that is not larger.
    fn runs(self, other: Arch) -> bool {
        self.major == other.major && self.minor >= other.minor
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}

/// The form of code that a compiler produces, and for which architecture.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Target {
    /// PTX for devices of this architecture and all later ones, whose driver compiles it.
    Ptx(Arch),
    /// Machine code for devices that run this architecture.
    Code(Arch),
}

impl Target {
    /// The architecture.
    #[must_use]
    pub fn arch(self) -> Arch {
        let (Target::Code(arch) | Target::Ptx(arch)) = self;
        arch
    }

    /// Whether a device can run it.
    #[must_use]
    pub fn suits(self, device: Arch) -> bool {
        match self {
            Target::Code(arch) => device.runs(arch),
            Target::Ptx(arch) => device >= arch,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Code(arch) => write!(f, "{arch}"),
            Target::Ptx(Arch { major, minor }) => write!(f, "compute_{major}{minor}"),
        }
    }
}

/// Hash of the text that kernels were compiled from and of the compiler's options.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key(pub(super) u128);

impl Key {
    /// The key of a text.
    #[must_use]
    pub fn of(source: &str) -> Key {
        // The first byte identifies the compiler's options.
        Key(fnv128([3].into_iter().chain(source.bytes())))
    }
}

/// Compiled kernels: machine code of one architecture (an ELF file, which CUDA calls a cubin), or
/// PTX, a text that the driver compiles for its device.
#[derive(Clone, PartialEq, Eq)]
pub struct Image(Vec<u8>);

const ELF: &[u8] = b"\x7fELF";

impl Image {
    /// Takes an ELF file or PTX; `None` for other bytes.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Image> {
        let is_text = bytes.starts_with(b"//") && bytes.ends_with(&[0]);
        (is_text || bytes.starts_with(ELF)).then_some(Image(bytes))
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is PTX.
    #[must_use]
    pub fn is_ptx(&self) -> bool {
        !self.0.starts_with(ELF)
    }

    /// Whether it has a kernel of this name: a section of machine code, or an entry of PTX.
    #[must_use]
    pub fn has_kernel(&self, name: &str) -> bool {
        let sought =
            if self.is_ptx() { format!(".entry {name}(") } else { format!("\0.text.{name}\0") };
        self.0.windows(sought.len()).any(|part| part == sought.as_bytes())
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_ptx() { "PTX" } else { "Cubin" };
        write!(f, "{kind} of {} bytes", self.0.len())
    }
}

/// FNV-1a of 128 bits. Source: Fowler, Noll, Vo, "The FNV Non-Cryptographic Hash Algorithm".
pub(super) fn fnv128(bytes: impl Iterator<Item = u8>) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv128(std::iter::empty()), 0x6c62272e07bb014262b821756295c58d);
        assert_eq!(fnv128(std::iter::once(b'a')), 0xd228cb696f1a8caf78912b704e4a8964);
    }

    #[test]
    fn a_key_depends_on_the_text() {
        assert_eq!(Key::of("source"), Key::of("source"));
        assert_ne!(Key::of("source"), Key::of("source "));
    }

    #[test]
    fn machine_code_runs_on_later_devices_of_the_same_major_number() {
        let runs = |device: (u32, u32), code: (u32, u32)| {
            Arch::new(device.0, device.1).runs(Arch::new(code.0, code.1))
        };
        assert!(runs((8, 0), (8, 0)) && runs((8, 9), (8, 0)) && runs((12, 1), (12, 0)));
        assert!(!runs((8, 0), (8, 6)) && !runs((9, 0), (8, 0)) && !runs((8, 9), (9, 0)));
    }

    #[test]
    fn kernels_are_found_by_their_whole_names() {
        let cubin = Image::from_bytes(b"\x7fELF\0.text.twine_encode\0.text.f\0".to_vec()).unwrap();
        assert!(cubin.has_kernel("twine_encode") && cubin.has_kernel("f") && !cubin.is_ptx());
        assert!(!cubin.has_kernel("twine"));
        let ptx = Image::from_bytes(b"//\n.visible .entry f(\n)\n\0".to_vec()).unwrap();
        assert!(ptx.is_ptx() && ptx.has_kernel("f") && !ptx.has_kernel("g"));
        assert_eq!(Image::from_bytes(b"// no end".to_vec()), None);
        assert_eq!(Image::from_bytes(Vec::new()), None);
    }
}
