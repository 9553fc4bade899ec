//! The foot of an object: its last 48 bytes, a line of text that says how many bytes come before it
//! and what their checksum is. It is specified in `docs/reference/format.md`.

use crc_fast::{CrcAlgorithm, Digest};

/// The bytes of a foot.
pub(crate) const FOOT: usize = 48;

const NAME: &str = "unspool-end 1 ";

/// What the foot of an object says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Foot {
    /// The bytes before the foot.
    pub(crate) bytes: u64,
    /// Their checksum.
    pub(crate) checksum: u64,
}

impl Foot {
    /// The bytes of the foot.
    pub(crate) fn render(self) -> [u8; FOOT] {
        let text = format!("{NAME}{:016x} {:016x}\n", self.bytes, self.checksum);
        let mut foot = [b' '; FOOT];
        foot.copy_from_slice(text.as_bytes());
        foot
    }

    /// What these bytes say, when they are a foot as it is written.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Foot> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (length, checksum) = text.strip_prefix(NAME)?.trim_end().split_once(' ')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let foot = Foot { bytes: number(length)?, checksum: number(checksum)? };
        (foot.render() == bytes).then_some(foot)
    }
}

/// A checksum of bytes that come in pieces: CRC-64/NVME, as of frames.
#[derive(Clone)]
pub(crate) struct Sum(Digest);

impl Sum {
    pub(crate) fn new() -> Sum {
        Sum(Digest::new(CrcAlgorithm::Crc64Nvme))
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.finalize()
    }

    /// The checksum of these bytes.
    #[cfg(any(test, feature = "object-store"))]
    pub(crate) fn of(bytes: &[u8]) -> u64 {
        crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foot_comes_back_and_has_one_way_to_be_written() {
        let foot = Foot { bytes: 800, checksum: 0x0123_4567_89ab_cdef };
        let bytes = foot.render();
        assert_eq!(&bytes, b"unspool-end 1 0000000000000320 0123456789abcdef\n");
        assert_eq!(Foot::parse(&bytes), Some(foot));
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/format.md");
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains(std::str::from_utf8(&bytes).unwrap()), "the page shows this one");
        for place in 0..FOOT {
            for bit in 0..8 {
                let mut changed = bytes;
                changed[place] ^= 1 << bit;
                assert_ne!(Foot::parse(&changed), Some(foot), "{place} {bit}");
            }
        }
        assert_eq!(Foot::parse(&bytes[1..]), None);
        assert_eq!(Foot::parse(&[0xff; FOOT]), None);
        assert_eq!(Foot::parse(b"unspool-end 1 +000000000000320 0123456789abcdef\n"), None);
    }
}
