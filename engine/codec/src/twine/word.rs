//! Unsigned integers of the four widths that values and coefficients have.

/// Bits of a value, or a coefficient in two's complement. All arithmetic wraps.
pub(super) trait Word: Copy + Default + Eq + Ord + Send + Sync + 'static {
    const BITS: u32;
    const BYTES: usize = Self::BITS as usize / 8;
    /// Words of 32 bits that hold one.
    const WORDS: usize = Self::BITS.div_ceil(32) as usize;
    const ZERO: Self;
    const ONES: Self;

    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn shl(self, bits: u32) -> Self;
    fn shr(self, bits: u32) -> Self;
    /// 0 or 1: whether it is not 0.
    fn some(self) -> Self;
    fn zigzag(self) -> Self;
    fn unzigzag(self) -> Self;
    /// Floats as integers of the same order, and back: the map is its own inverse.
    fn ordered(self) -> Self;
    fn rotate_left(self) -> Self;
    fn rotate_right(self) -> Self;
    fn flip_sign(self) -> Self;
    /// Bits up to the highest that is set.
    fn width(self) -> u32;
    fn low(self) -> u32;
    fn high(self) -> u32;
    /// From its low and high words, the rest cut off.
    fn from_words(low: u32, high: u32) -> Self;
    fn read(bytes: &[u8], values: &mut [Self]);
    fn write(values: &[Self], bytes: &mut [u8]);
}

macro_rules! words {
    ($($word:ident $signed:ident)*) => {$(
        impl Word for $word {
            const BITS: u32 = $word::BITS;
            const ZERO: $word = 0;
            const ONES: $word = $word::MAX;

            #[inline(always)]
            fn add(self, other: $word) -> $word {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn sub(self, other: $word) -> $word {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn or(self, other: $word) -> $word {
                self | other
            }

            #[inline(always)]
            fn xor(self, other: $word) -> $word {
                self ^ other
            }

            #[inline(always)]
            fn and(self, other: $word) -> $word {
                self & other
            }

            #[inline(always)]
            fn shl(self, bits: u32) -> $word {
                self.wrapping_shl(bits)
            }

            #[inline(always)]
            fn shr(self, bits: u32) -> $word {
                self.wrapping_shr(bits)
            }

            #[inline(always)]
            fn some(self) -> $word {
                $word::from(self != 0)
            }

            #[inline(always)]
            fn zigzag(self) -> $word {
                (self << 1) ^ ((self as $signed) >> ($word::BITS - 1)) as $word
            }

            #[inline(always)]
            fn unzigzag(self) -> $word {
                (self >> 1) ^ (self & 1).wrapping_neg()
            }

            #[inline(always)]
            fn ordered(self) -> $word {
                self ^ (((self as $signed) >> ($word::BITS - 1)) as $word >> 1)
            }

            #[inline(always)]
            fn rotate_left(self) -> $word {
                $word::rotate_left(self, 1)
            }

            #[inline(always)]
            fn rotate_right(self) -> $word {
                $word::rotate_right(self, 1)
            }

            #[inline(always)]
            fn flip_sign(self) -> $word {
                self ^ (1 << ($word::BITS - 1))
            }

            #[inline(always)]
            fn width(self) -> u32 {
                $word::BITS - self.leading_zeros()
            }

            #[inline(always)]
            fn low(self) -> u32 {
                self as u32
            }

            #[inline(always)]
            fn high(self) -> u32 {
                (u64::from(self) >> 32) as u32
            }

            #[inline(always)]
            fn from_words(low: u32, high: u32) -> $word {
                (u64::from(low) | u64::from(high) << 32) as $word
            }

            #[inline(always)]
            fn read(bytes: &[u8], values: &mut [$word]) {
                let pieces = bytes.as_chunks::<{ $word::BITS as usize / 8 }>().0;
                for (value, piece) in values.iter_mut().zip(pieces) {
                    *value = $word::from_le_bytes(*piece);
                }
            }

            #[inline(always)]
            fn write(values: &[$word], bytes: &mut [u8]) {
                let pieces = bytes.as_chunks_mut::<{ $word::BITS as usize / 8 }>().0;
                for (value, piece) in values.iter().zip(pieces) {
                    *piece = value.to_le_bytes();
                }
            }
        }
    )*};
}

words! { u8 i8 u16 i16 u32 i32 u64 i64 }

#[cfg(test)]
mod tests {
    use super::Word;

    #[test]
    fn zigzag_and_order_have_inverses() {
        for bits in 0..=u16::MAX {
            assert_eq!(bits.zigzag().unzigzag(), bits);
            assert_eq!(bits.ordered().ordered(), bits);
        }
        assert_eq!((-1_i32 as u32).zigzag(), 1);
        assert_eq!(u64::MAX.zigzag(), 1);
    }

    #[test]
    fn ordered_floats_ascend_as_integers() {
        let values = [f32::NEG_INFINITY, -2.0, -1e-45, -0.0, 0.0, 1e-45, 2.0, f32::INFINITY];
        let ordered = values.map(|value| value.to_bits().ordered() as i32);
        assert!(ordered.is_sorted(), "{ordered:?}");
        assert_eq!(ordered[3..5], [-1, 0]);
    }
}
