//! Bytes that depend on a seed and on their position, so that lost, moved, repeated or stale bytes
//! are visible.

/// An endless sequence of bytes, named by a seed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pattern(pub u64);

impl Pattern {
    /// `len` bytes from byte `start` of the sequence on.
    #[must_use]
    pub fn bytes(self, start: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.fill(start, &mut out);
        out
    }

    /// Fills `out` with the bytes from byte `start` of the sequence on.
    pub fn fill(self, start: u64, out: &mut [u8]) {
        let mut word = self.word(start / 8).to_le_bytes();
        for (at, byte) in (start..).zip(out) {
            if at % 8 == 0 {
                word = self.word(at / 8).to_le_bytes();
            }
            *byte = word[(at % 8) as usize];
        }
    }

    /// Eight bytes: the finaliser of SplitMix64 (Steele, Lea and Flood, 2014), a bijection, over
    /// seed and place.
    fn word(self, index: u64) -> u64 {
        let mut z = (self.0 << 40).wrapping_add(index).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Position of the first difference of two slices, or the shorter length when only the lengths
/// differ. Keeps messages of tests short.
#[must_use]
pub fn first_difference(left: &[u8], right: &[u8]) -> Option<usize> {
    if left == right {
        return None;
    }
    let common = left.len().min(right.len());
    Some(left.iter().zip(right).position(|(a, b)| a != b).unwrap_or(common))
}

#[cfg(test)]
mod tests {
    use super::{Pattern, first_difference};

    #[test]
    fn a_pattern_is_the_same_whatever_piece_is_asked_for() {
        let whole = Pattern(3).bytes(0, 1000);
        assert_eq!(whole[17..900], Pattern(3).bytes(17, 883));
        assert_ne!(whole, Pattern(4).bytes(0, 1000));
    }

    #[test]
    fn the_first_difference_is_found() {
        assert_eq!(first_difference(b"abc", b"abc"), None);
        assert_eq!(first_difference(b"abc", b"abd"), Some(2));
        assert_eq!(first_difference(b"abc", b"ab"), Some(2));
    }
}
