//! A pack of compiled kernels: one file with the images of every text that is shipped, for several
//! architectures. The program that embeds the library registers it once with [`ship`].
//!
//! An image is found by the text that it was made from, so an image of another text is never used:
//! a pack that is older than the library counts as missing. Similar images are compressed together,
//! which halves the size.
//!
//! The file: magic, version of the compiler, number of images; for each its key, architecture, kind
//! and place; a checksum of all of this; then frames of zstd, each with its own checksum. Numbers
//! are
//! little-endian.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use crate::error::{DeviceError, DeviceErrorKind};
use crate::kernels::image::{Arch, Image, Key, Target, fnv128};

const MAGIC: &[u8; 8] = b"UNSPOOLP";
/// Magic, version, number of images.
const HEAD: usize = 8 + 2 * 4 + 4;
/// Key, architecture, kind, begin and length of the frame, begin and length inside the frame.
const ENTRY: usize = 16 + 3 * 4 + 4 * 8;
const SUM: usize = 16;
/// Frames of ours hold less than this.
const LARGEST: usize = 64 << 20;

/// A file of compiled kernels.
#[derive(Clone)]
pub struct Pack {
    bytes: Cow<'static, [u8]>,
    compiler: (i32, i32),
    entries: Vec<ImageEntry>,
}

/// The place of an image.
#[derive(Clone, Debug)]
struct ImageEntry {
    key: Key,
    target: Target,
    /// Position of the frame in the file.
    frame: Range<usize>,
    /// Position of the image in the content of the frame.
    place: Range<usize>,
}

/// An image to be written into a pack.
#[derive(Clone, Debug)]
pub struct NewImage {
    /// The key of its text.
    pub key: Key,
    /// Its target.
    pub target: Target,
    /// The kernels.
    pub image: Image,
}

/// How a device can run the kernels of a pack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// Machine code for it is included.
    Binary,
    /// The driver compiles the included PTX, and caches the result.
    Ptx,
    /// The device cannot run them.
    No,
}

static SHIPPED: OnceLock<Pack> = OnceLock::new();

/// Registers `bytes` as the pack of this process; only the first call counts. Empty bytes are
/// ignored.
///
/// # Errors
/// When the bytes are damaged.
pub fn ship(bytes: &'static [u8]) -> Result<(), DeviceError> {
    if bytes.is_empty() {
        return Ok(());
    }
    let pack = Pack::open(Cow::Borrowed(bytes)).ok_or_else(|| {
        let message = "the compiled kernels that came with the library are damaged";
        DeviceError::new(DeviceErrorKind::Damaged, message).with_advice("Install it again.")
    })?;
    let _ = SHIPPED.set(pack);
    Ok(())
}

/// The pack of this process.
#[must_use]
pub fn shipped() -> Option<&'static Pack> {
    SHIPPED.get()
}

impl Pack {
    /// Reads the index of a pack; `None` when it is damaged.
    #[must_use]
    pub fn open(bytes: Cow<'static, [u8]>) -> Option<Pack> {
        let head = bytes.get(..HEAD)?;
        let number = |at: usize| Some(u32::from_le_bytes(head[at..at + 4].try_into().ok()?));
        let compiler = (number(8)?.try_into().ok()?, number(12)?.try_into().ok()?);
        let end = HEAD + ENTRY.checked_mul(number(16)? as usize)?;
        let index = bytes.get(..end)?;
        let sum = u128::from_le_bytes(bytes.get(end..end + SUM)?.try_into().ok()?);
        if !head.starts_with(MAGIC) || sum != fnv128(index.iter().copied()) {
            return None;
        }
        let entries =
            index[HEAD..].chunks(ENTRY).map(ImageEntry::parse).collect::<Option<Vec<_>>>()?;
        entries.iter().all(|entry| entry.frame.end <= bytes.len()).then_some(())?;
        Some(Pack { bytes, compiler, entries })
    }

    /// The bytes of a pack. Images of one group are compressed together, at a level of zstd.
    ///
    /// # Errors
    /// When compression fails.
    pub fn write(
        compiler: (i32, i32),
        groups: &[Vec<NewImage>],
        level: i32,
    ) -> std::io::Result<Vec<u8>> {
        let count = groups.iter().map(Vec::len).sum::<usize>();
        let (mut index, mut frames) = (MAGIC.to_vec(), Vec::new());
        let first = HEAD + count * ENTRY + SUM;
        index.extend([compiler.0, compiler.1, count as i32].map(i32::to_le_bytes).as_flattened());
        for group in groups {
            let whole: Vec<u8> =
                group.iter().flat_map(|made| made.image.bytes()).copied().collect();
            let packed = compressed(&whole, level)?;
            let (frame, mut at) = (first + frames.len(), 0);
            for made in group {
                let len = made.image.bytes().len();
                let places = [frame, packed.len(), at, len].map(|number| number as u64);
                index.extend(made.key.0.to_le_bytes());
                let (major, minor) = made.target.arch().numbers();
                let kind = u32::from(matches!(made.target, Target::Ptx(_)));
                index.extend([major, minor, kind].map(u32::to_le_bytes).as_flattened());
                index.extend(places.map(u64::to_le_bytes).as_flattened());
                at += len;
            }
            frames.extend(packed);
        }
        let sum = fnv128(index.iter().copied());
        index.extend(sum.to_le_bytes());
        index.extend(frames);
        Ok(index)
    }

    /// The version of the compiler.
    #[must_use]
    pub fn compiler(&self) -> (i32, i32) {
        self.compiler
    }

    /// Number of images.
    #[must_use]
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Architectures with machine code, in ascending order.
    #[must_use]
    pub fn archs(&self) -> Vec<Arch> {
        let mut archs = self.targets(|target| matches!(target, Target::Code(_)));
        archs.sort_unstable();
        archs.dedup();
        archs
    }

    /// The first architecture that has PTX.
    #[must_use]
    pub fn first_ptx(&self) -> Option<Arch> {
        self.targets(|target| matches!(target, Target::Ptx(_))).into_iter().min()
    }

    fn targets(&self, is_meant: impl Fn(Target) -> bool) -> Vec<Arch> {
        let targets = self.entries.iter().map(|entry| entry.target);
        targets.filter(|target| is_meant(*target)).map(Target::arch).collect()
    }

    /// How a device can run its kernels.
    #[must_use]
    pub fn fit(&self, device: Arch) -> Fit {
        match self.best(device, |_| true).map(|entry| entry.target) {
            Some(Target::Code(_)) => Fit::Binary,
            Some(Target::Ptx(_)) => Fit::Ptx,
            None => Fit::No,
        }
    }

    /// The image of a text that suits a device best.
    #[must_use]
    pub fn image(&self, key: Key, device: Arch) -> Option<Image> {
        self.unpacked(self.best(device, |entry| entry.key == key)?)
    }

    /// The image of a text for exactly this target.
    #[must_use]
    pub fn exact(&self, key: Key, target: Target) -> Option<Image> {
        let mut entries = self.entries.iter();
        self.unpacked(entries.find(|entry| entry.key == key && entry.target == target)?)
    }

    /// Machine code for the latest architecture that the device runs, else PTX for it.
    fn best(&self, device: Arch, is_meant: impl Fn(&ImageEntry) -> bool) -> Option<&ImageEntry> {
        let meant = self.entries.iter().filter(|entry| is_meant(entry));
        meant.filter(|entry| entry.target.suits(device)).max_by_key(|entry| entry.target)
    }

    fn unpacked(&self, entry: &ImageEntry) -> Option<Image> {
        let frame = self.bytes.get(entry.frame.clone())?;
        let mut whole = zstd::bulk::decompress(frame, LARGEST.min(size_of_content(frame)?)).ok()?;
        whole.truncate(entry.place.end);
        Image::from_bytes(whole.split_off(entry.place.start.min(whole.len())))
            .filter(|image| image.bytes().len() == entry.place.len())
    }
}

impl fmt::Debug for Pack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} images of CUDA {:?} for {:?}", self.count(), self.compiler, self.archs())
    }
}

impl ImageEntry {
    fn parse(bytes: &[u8]) -> Option<ImageEntry> {
        let (key, rest) = bytes.split_first_chunk()?;
        let small = |index: usize| {
            Some(u32::from_le_bytes(rest.get(4 * index..4 * index + 4)?.try_into().ok()?))
        };
        let large = |index: usize| {
            let at = 12 + 8 * index;
            usize::try_from(u64::from_le_bytes(rest.get(at..at + 8)?.try_into().ok()?)).ok()
        };
        let range = |index: usize| {
            let begin = large(index)?;
            Some(begin..begin.checked_add(large(index + 1)?)?)
        };
        let arch = Arch::new(small(0)?, small(1)?);
        let target = if small(2)? == 0 { Target::Code(arch) } else { Target::Ptx(arch) };
        Some(ImageEntry {
            key: Key(u128::from_le_bytes(*key)),
            target,
            frame: range(0)?,
            place: range(2)?,
        })
    }
}

fn compressed(bytes: &[u8], level: i32) -> std::io::Result<Vec<u8>> {
    let mut compressor = zstd::bulk::Compressor::new(level)?;
    compressor.include_checksum(true)?;
    compressor.compress(bytes)
}

/// The content size that a frame declares.
fn size_of_content(frame: &[u8]) -> Option<usize> {
    zstd::zstd_safe::get_frame_content_size(frame).ok()??.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(text: &str, arch: (u32, u32), bytes: &[u8]) -> NewImage {
        let image = Image::from_bytes(bytes.to_vec()).unwrap();
        let arch = Arch::new(arch.0, arch.1);
        let target = if image.is_ptx() { Target::Ptx(arch) } else { Target::Code(arch) };
        NewImage { key: Key::of(text), target, image }
    }

    fn file() -> Vec<u8> {
        let first = vec![
            made("a", (8, 0), b"\x7fELF a 80"),
            made("b", (8, 0), b"\x7fELF b 80, which is longer"),
            made("a", (8, 6), b"\x7fELF a 86"),
        ];
        let second = vec![made("a", (9, 0), b"\x7fELF a 90"), made("a", (10, 0), b"// ptx of a\0")];
        Pack::write((12, 9), &[first, second], 19).unwrap()
    }

    fn pack() -> Pack {
        Pack::open(Cow::Owned(file())).unwrap()
    }

    fn text(key: &str, device: (u32, u32)) -> Option<String> {
        let image = pack().image(Key::of(key), Arch::new(device.0, device.1))?;
        Some(String::from_utf8_lossy(image.bytes()).into_owned())
    }

    #[test]
    fn a_device_gets_the_machine_code_that_is_nearest_to_it_and_else_ptx() {
        assert_eq!(text("a", (8, 0)).unwrap(), "\x7fELF a 80");
        assert_eq!(text("a", (8, 9)).unwrap(), "\x7fELF a 86");
        assert_eq!(text("b", (8, 9)).unwrap(), "\x7fELF b 80, which is longer");
        assert_eq!(text("a", (9, 0)).unwrap(), "\x7fELF a 90");
        assert_eq!(text("a", (10, 3)).unwrap(), "// ptx of a\0");
        assert_eq!(text("a", (12, 0)).unwrap(), "// ptx of a\0");
        assert_eq!((text("a", (7, 5)), text("b", (9, 0)), text("c", (9, 0))), (None, None, None));
        let fits = [(7, 5), (8, 9), (9, 0), (11, 0)].map(|(a, b)| pack().fit(Arch::new(a, b)));
        assert_eq!(fits, [Fit::No, Fit::Binary, Fit::Binary, Fit::Ptx]);
        assert_eq!((pack().count(), pack().compiler()), (5, (12, 9)));
        assert_eq!(pack().archs(), [(8, 0), (8, 6), (9, 0)].map(|(a, b)| Arch::new(a, b)));
        let arch = Arch::new(10, 0);
        assert!(pack().exact(Key::of("a"), Target::Ptx(arch)).unwrap().is_ptx());
        assert_eq!(pack().exact(Key::of("a"), Target::Code(arch)), None);
        assert_eq!(pack().first_ptx(), Some(arch));
    }

    #[test]
    fn what_is_damaged_is_never_taken_for_kernels() {
        let (whole, sought) = (file(), (Key::of("b"), Arch::new(8, 0)));
        let kept = pack().image(sought.0, sought.1);
        let found = |bytes: Vec<u8>| {
            Pack::open(Cow::Owned(bytes)).and_then(|pack| pack.image(sought.0, sought.1))
        };
        for index in 0..whole.len() {
            let mut changed = whole.clone();
            changed[index] ^= 0x10;
            let image = found(changed);
            assert!(image.is_none() || image == kept, "byte {index} changed");
            let image = found(whole[..index].to_vec());
            assert!(image.is_none() || image == kept, "cut at {index}");
        }
        assert_eq!(found(whole), kept);
        assert!(kept.is_some());
    }

    #[test]
    fn damaged_bytes_are_refused_and_empty_bytes_are_ignored() {
        assert!(ship(b"").is_ok());
        let error = ship(b"UNSPOOLP and then something else").unwrap_err();
        assert_eq!(error.kind(), DeviceErrorKind::Damaged);
        assert!(shipped().is_none());
    }
}
