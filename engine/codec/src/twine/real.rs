//! The four floating-point types: their bits, and the type that they are calculated in.
//!
//! Conversions are made of integers and of products of normal numbers, so that they are the same
//! where another library has set the processor to treat subnormal numbers as 0.

use std::ops::{Mul, Sub};

use super::layout::ValueKind;
use super::word::Word;

/// The type that a bound is checked in.
pub(super) trait Arithmetic:
    Copy + Default + PartialOrd + Mul<Output = Self> + Sub<Output = Self> + Send + Sync + 'static
{
    /// The bits of a coefficient.
    type Q: Word;
    /// The magnitude of a coefficient is below it.
    const LIMIT: Self;
    /// Below it, a value counts as 0 in a sum of squares.
    const NEGLIGIBLE: Self;
    /// The smallest normal number.
    const TINY: Self;

    fn from_f64(value: f64) -> Self;
    fn to_f64(self) -> f64;
    fn magnitude(self) -> Self;
    fn nearest_integer(self) -> Self;
    fn to_q(self) -> Self::Q;
    fn from_q(q: Self::Q) -> Self;
}

macro_rules! arithmetic {
    ($($float:ident $word:ident $signed:ident $limit:expr, $negligible:expr;)*) => {$(
        impl Arithmetic for $float {
            type Q = $word;
            const LIMIT: $float = $limit;
            const NEGLIGIBLE: $float = $negligible;
            const TINY: $float = $float::MIN_POSITIVE;

            #[inline(always)]
            fn from_f64(value: f64) -> $float {
                value as $float
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn magnitude(self) -> $float {
                self.abs()
            }

            #[inline(always)]
            fn nearest_integer(self) -> $float {
                self.round_ties_even()
            }

            #[inline(always)]
            fn to_q(self) -> $word {
                (self as $signed) as $word
            }

            #[inline(always)]
            fn from_q(q: $word) -> $float {
                (q as $signed) as $float
            }
        }
    )*};
}

arithmetic! {
    f32 u32 i32 1e9, f32::MIN_POSITIVE;
    f64 u64 i64 (1_u64 << 52) as f64, f64::from_bits((1023 - 500) << 52);
}

/// A floating-point type.
pub(super) trait Real: Copy + Send + Sync + 'static {
    /// Its bits.
    type V: Word;
    /// The type that it is calculated in.
    type A: Arithmetic;
    const KIND: ValueKind;

    /// The value in the arithmetic type, exactly.
    fn widen(bits: Self::V) -> Self::A;
    /// The nearest value, ties to even; infinity when that is too large. Not called with NaN.
    fn narrow(value: Self::A) -> Self::V;
}

#[derive(Clone, Copy)]
pub(super) struct F16;
#[derive(Clone, Copy)]
pub(super) struct Bf16;
#[derive(Clone, Copy)]
pub(super) struct F32;
#[derive(Clone, Copy)]
pub(super) struct F64;

impl Real for F32 {
    type V = u32;
    type A = f32;
    const KIND: ValueKind = ValueKind::Float32;

    #[inline(always)]
    fn widen(bits: u32) -> f32 {
        f32::from_bits(bits)
    }

    #[inline(always)]
    fn narrow(value: f32) -> u32 {
        value.to_bits()
    }
}

impl Real for F64 {
    type V = u64;
    type A = f64;
    const KIND: ValueKind = ValueKind::Float64;

    #[inline(always)]
    fn widen(bits: u64) -> f64 {
        f64::from_bits(bits)
    }

    #[inline(always)]
    fn narrow(value: f64) -> u64 {
        value.to_bits()
    }
}

impl Real for Bf16 {
    type V = u16;
    type A = f32;
    const KIND: ValueKind = ValueKind::BFloat16;

    #[inline(always)]
    fn widen(bits: u16) -> f32 {
        f32::from_bits(u32::from(bits) << 16)
    }

    #[inline(always)]
    fn narrow(value: f32) -> u16 {
        let bits = value.to_bits();
        ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
    }
}

impl Real for F16 {
    type V = u16;
    type A = f32;
    const KIND: ValueKind = ValueKind::Float16;

    #[inline(always)]
    fn widen(bits: u16) -> f32 {
        const REBIAS: u32 = (127 - 15) << 23;
        let magnitude = u32::from(bits & 0x7fff);
        let sign = u32::from(bits & 0x8000) << 16;
        let normal = (magnitude << 13) + REBIAS;
        // The magnitude of a subnormal number is its bits in units of 2^-24.
        let subnormal = (magnitude as f32 * f32::from_bits((127 - 24) << 23)).to_bits();
        let infinite = normal + REBIAS;
        let finite = if magnitude < 0x0400 { subnormal } else { normal };
        f32::from_bits(sign | if magnitude < 0x7c00 { finite } else { infinite })
    }

    #[inline(always)]
    fn narrow(value: f32) -> u16 {
        const SMALLEST_NORMAL: u32 = (127 - 14) << 23;
        const TOO_LARGE: u32 = (127 + 16) << 23;
        let sign = value.to_bits() >> 16 & 0x8000;
        let magnitude = value.to_bits() & 0x7fff_ffff;
        let normal = ((magnitude + 0x0fff + (magnitude >> 13 & 1)) >> 13).wrapping_sub(112 << 10);
        // Next to 0.5, the last bit of a float32 is worth 2^-24.
        let subnormal = (value.abs() + 0.5).to_bits().wrapping_sub(0.5_f32.to_bits());
        let small = if magnitude < SMALLEST_NORMAL { subnormal } else { normal };
        (sign | if magnitude < TOO_LARGE { small } else { 0x7c00 }) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::{Bf16, F16, Real};

    /// The value by the definition of the type, in float64.
    fn by_definition(bits: u16) -> f64 {
        let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
        let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
        match exponent {
            0 => sign * fraction * 2.0_f64.powi(-24),
            31 => sign * f64::INFINITY,
            _ => sign * (1024.0 + fraction) * 2.0_f64.powi(exponent - 25),
        }
    }

    fn is_nan(bits: u16) -> bool {
        bits & 0x7fff > 0x7c00
    }

    #[test]
    fn every_half_widens_exactly_and_comes_back() {
        for bits in (0..=u16::MAX).filter(|bits| !is_nan(*bits)) {
            assert_eq!(f64::from(F16::widen(bits)), by_definition(bits), "{bits:04x}");
            assert_eq!(F16::narrow(F16::widen(bits)), bits);
        }
        assert!((0..=u16::MAX).filter(|bits| is_nan(*bits)).all(|bits| F16::widen(bits).is_nan()));
    }

    #[test]
    fn between_two_halves_the_nearest_is_taken_and_the_even_one_in_the_middle() {
        for bits in 0..0x7bff_u16 {
            let (low, high) = (by_definition(bits), by_definition(bits + 1));
            let middle = ((low + high) / 2.0) as f32;
            let even = bits + (bits & 1);
            assert_eq!(F16::narrow(middle), even);
            assert_eq!(F16::narrow(middle.next_down()), bits);
            assert_eq!(F16::narrow(-middle.next_up()), (bits + 1) | 0x8000);
        }
        assert_eq!(F16::narrow(65519.996), 0x7bff);
        assert_eq!(F16::narrow(65520.0), 0x7c00);
        assert_eq!(F16::narrow(f32::NEG_INFINITY), 0xfc00);
    }

    #[test]
    fn bfloat16_rounds_to_the_nearest_and_to_even() {
        for bits in 0..0x7f7f_u16 {
            assert_eq!(Bf16::narrow(Bf16::widen(bits)), bits);
            let middle = f32::from_bits(u32::from(bits) << 16 | 0x8000);
            assert_eq!(Bf16::narrow(middle), bits + (bits & 1));
            assert_eq!(Bf16::narrow(f32::from_bits(middle.to_bits() + 1)), bits + 1);
            assert_eq!(Bf16::narrow(f32::from_bits(middle.to_bits() - 1)), bits);
        }
        assert_eq!(Bf16::narrow(f32::MAX), 0x7f80);
        assert_eq!(Bf16::narrow(f32::NEG_INFINITY), 0xff80);
    }
}
